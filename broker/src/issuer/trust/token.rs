//! A signed token of another issuer (RFC 7519, RFC 8725), and what must be true of it.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::Algorithm;
use serde::Deserialize;
use serde_json::{Map, Value};
use url::Url;

use super::{Distrust, Keys};

/// Bytes of a token at most.
pub(in crate::issuer) const MOST_BYTES: usize = 16 * 1024;
/// By how much another issuer's clock may be off, in seconds.
pub(in crate::issuer) const SKEW: i64 = 60;
/// Bytes of a subject at most (OpenID Connect Core 1.0 section 2: 255).
const MOST_SUBJECT_BYTES: usize = 255;

/// What kind of token is expected. A token of one kind is never taken for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::issuer) enum Kind {
    /// Who signed in (OpenID Connect Core 1.0 section 2). With more than one audience it says that
    /// it was made for us.
    Id,
    /// That somebody signed out (OpenID Connect Back-Channel Logout 1.0 section 2.4).
    Logout,
    /// Who a machine is.
    Workload,
}

/// Statements that the issuer signed, for us, and that are true now.
#[derive(Clone, Debug)]
pub(in crate::issuer) struct Claims(Map<String, Value>);

#[derive(Deserialize)]
struct Header {
    alg: Value,
    kid: Option<String>,
    typ: Option<String>,
    #[serde(default)]
    crit: Option<Value>,
}

/// A token that is taken apart and not believed yet.
struct Parsed<'a> {
    algorithm: Algorithm,
    kid: Option<String>,
    typ: Option<String>,
    signed: &'a str,
    signature: &'a str,
    claims: Map<String, Value>,
}

impl Claims {
    /// The claims of a token, if its signature, its issuer, its audience and its time are right.
    /// `now` is in milliseconds, `keys_at` is where the issuer's keys are.
    pub(in crate::issuer) async fn verify(
        token: &str,
        kind: Kind,
        (keys, keys_at): (&Keys, &Url),
        (issuer, audience): (&str, &str),
        now: i64,
    ) -> Result<Self, Distrust> {
        let parsed = parse(token)?;
        // Looked at before any key is fetched: what is not for us costs nothing.
        let claims = Self(parsed.claims);
        claims.check(kind, parsed.typ.as_deref(), issuer, audience, now / 1000)?;
        let key = keys.find(keys_at, parsed.kid.as_deref(), parsed.algorithm).await?;
        let (signature, signed) = (parsed.signature, parsed.signed.as_bytes());
        match jsonwebtoken::crypto::verify(signature, signed, &key, parsed.algorithm) {
            Ok(true) => Ok(claims),
            _ => Err(Distrust::Refused("its signature is wrong")),
        }
    }

    fn check(
        &self,
        kind: Kind,
        typ: Option<&str>,
        issuer: &str,
        audience: &str,
        now: i64,
    ) -> Result<(), Distrust> {
        let refused = |why| Err(Distrust::Refused(why));
        if self.text("iss") != Some(issuer) {
            return refused("it is another issuer's");
        }
        let audiences = self.audiences();
        if !audiences.contains(&audience) {
            return refused("it is for somebody else");
        }
        let is_logout = self.has_logout_event();
        let typ_fits = matches!(
            (kind, typ.map(str::to_ascii_lowercase).as_deref()),
            (_, None | Some("jwt"))
                | (Kind::Logout, Some("logout+jwt"))
                | (Kind::Workload, Some("at+jwt"))
        );
        if !typ_fits || is_logout != (kind == Kind::Logout) {
            return refused("it is a token of another kind");
        }
        if kind == Kind::Id {
            let party = self.text("azp");
            let party_is_we = party == Some(audience);
            if (self.0.contains_key("azp") || audiences.len() > 1) && !party_is_we {
                return refused("it was made for somebody else");
            }
        }
        match self.seconds("iat") {
            Some(at) if at <= now + SKEW => {}
            Some(_) => return refused("it was issued in the future"),
            None => return refused("it does not say when it was issued"),
        }
        match self.seconds("exp") {
            Some(end) if end > now - SKEW => {}
            Some(_) => return refused("it has expired"),
            // Older logout tokens have no end.
            None if kind == Kind::Logout && !self.0.contains_key("exp") => {}
            None => return refused("it does not say when it expires"),
        }
        if self.0.contains_key("nbf") && self.seconds("nbf").is_none_or(|from| from > now + SKEW) {
            return refused("it is not valid yet");
        }
        if kind != Kind::Logout && self.subject().is_none() {
            return refused("it does not say who it is about");
        }
        Ok(())
    }

    /// The subject, of 1 to 255 bytes.
    pub(in crate::issuer) fn subject(&self) -> Option<&str> {
        self.text("sub").filter(|text| (1..=MOST_SUBJECT_BYTES).contains(&text.len()))
    }

    /// A claim that is a text.
    pub(in crate::issuer) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// A claim that is a time, in seconds since 1970; fractions are cut off (RFC 7519 section 2).
    pub(in crate::issuer) fn seconds(&self, name: &str) -> Option<i64> {
        let value = self.0.get(name)?;
        #[expect(clippy::cast_possible_truncation, reason = "it saturates, and is a time")]
        value.as_i64().or_else(|| value.as_f64().map(|seconds| seconds as i64))
    }

    /// All claims.
    pub(in crate::issuer) fn all(&self) -> &Map<String, Value> {
        &self.0
    }

    fn audiences(&self) -> Vec<&str> {
        match self.0.get("aud") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    fn has_logout_event(&self) -> bool {
        let events = self.0.get("events").and_then(Value::as_object);
        events.is_some_and(|events| {
            events.contains_key("http://schemas.openid.net/event/backchannel-logout")
        })
    }
}

/// The issuer that a token names, to find out whose keys to check it with. It proves nothing.
pub(in crate::issuer) fn unverified_issuer(token: &str) -> Option<String> {
    parse(token).ok()?.claims.get("iss")?.as_str().map(str::to_owned)
}

fn parse(token: &str) -> Result<Parsed<'_>, Distrust> {
    const MALFORMED: Distrust = Distrust::Refused("it is not a signed token (JWT)");
    if token.len() > MOST_BYTES {
        return Err(Distrust::Refused("it is larger than 16 KiB"));
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(MALFORMED)?;
    let (header, payload) = signed.split_once('.').ok_or(MALFORMED)?;
    let header: Header = decoded(header).ok_or(MALFORMED)?;
    if header.crit.is_some() {
        // Nothing that it could name is understood here (RFC 7515 section 4.1.11).
        return Err(Distrust::Refused("it uses extensions that are not known here"));
    }
    let algorithm = serde_json::from_value(header.alg)
        .ok()
        .filter(|algorithm| {
            use Algorithm::{HS256, HS384, HS512};
            !matches!(algorithm, HS256 | HS384 | HS512)
        })
        .ok_or(Distrust::Refused("it is not signed with a public-key algorithm known here"))?;
    let claims = decoded(payload).ok_or(MALFORMED)?;
    Ok(Parsed { algorithm, kid: header.kid, typ: header.typ, signed, signature, claims })
}

fn decoded<T: serde::de::DeserializeOwned>(part: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn usual() -> Value {
        json!({ "iss": "https://a", "sub": "ada", "aud": "us", "iat": NOW, "exp": NOW + 300 })
    }

    fn check(kind: Kind, typ: Option<&str>, claims: &Value) -> Result<(), &'static str> {
        let claims = Claims(claims.as_object().unwrap().clone());
        claims.check(kind, typ, "https://a", "us", NOW).map_err(|error| match error {
            Distrust::Refused(why) => why,
            Distrust::Outage(_) => unreachable!(),
        })
    }

    fn with(name: &str, value: Value) -> Value {
        let mut claims = usual();
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value,
        }
        claims
    }

    #[test]
    fn every_claim_is_checked() {
        assert_eq!(check(Kind::Id, None, &usual()), Ok(()));
        for (name, value) in [
            ("iss", json!("https://b")),
            ("iss", json!("https://a/")),
            ("iss", Value::Null),
            ("aud", json!("them")),
            ("aud", json!([])),
            ("aud", json!({ "us": 1 })),
            ("aud", json!(["us", "them"])),
            ("aud", Value::Null),
            ("azp", json!("them")),
            ("azp", json!(7)),
            ("exp", json!(NOW - 60)),
            ("exp", json!("soon")),
            ("exp", Value::Null),
            ("iat", json!(NOW + 61)),
            ("iat", Value::Null),
            ("nbf", json!(NOW + 61)),
            ("nbf", json!("now")),
            ("sub", Value::Null),
            ("sub", json!("")),
            ("sub", json!("s".repeat(256))),
            ("sub", json!(7)),
            ("events", json!({ "http://schemas.openid.net/event/backchannel-logout": {} })),
        ] {
            let claims = with(name, value);
            assert!(check(Kind::Id, None, &claims).is_err(), "{claims}");
        }
        for (name, value) in [
            ("aud", json!(["us"])),
            ("azp", json!("us")),
            ("exp", json!(NOW - 59)),
            ("exp", json!(1_800_000_000.5)),
            ("iat", json!(NOW + 60)),
            ("nbf", json!(NOW + 60)),
        ] {
            let claims = with(name, value);
            assert_eq!(check(Kind::Id, None, &claims), Ok(()), "{claims}");
        }
    }

    #[test]
    fn a_token_of_one_kind_is_never_another() {
        let logout =
            with("events", json!({ "http://schemas.openid.net/event/backchannel-logout": {} }));
        assert_eq!(check(Kind::Logout, Some("logout+jwt"), &logout), Ok(()));
        assert!(check(Kind::Workload, None, &logout).is_err());
        assert!(check(Kind::Logout, None, &usual()).is_err());
        assert!(check(Kind::Id, Some("at+jwt"), &usual()).is_err());
        assert!(check(Kind::Id, Some("logout+jwt"), &usual()).is_err());
        assert_eq!(check(Kind::Id, Some("JWT"), &usual()), Ok(()));
        assert_eq!(check(Kind::Workload, Some("at+jwt"), &usual()), Ok(()));
        // A machine's token may be for others, too.
        assert_eq!(check(Kind::Workload, None, &with("aud", json!(["us", "them"]))), Ok(()));
    }

    #[test]
    fn only_public_key_algorithms_are_read() {
        let token = |header: Value| {
            let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
            format!("{}.{}.c2ln", part(&header), part(&usual()))
        };
        for header in [
            json!({ "alg": "none" }),
            json!({ "alg": "None" }),
            json!({ "alg": "HS256" }),
            json!({ "alg": 7 }),
            json!({}),
            json!({ "alg": "ES256", "crit": ["exp"] }),
        ] {
            assert!(parse(&token(header.clone())).is_err(), "{header}");
        }
        assert!(parse(&token(json!({ "alg": "ES256" }))).is_ok());
        for text in ["", ".", "..", "a.b", "a.b.c.d", "ä.b.c"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&"a".repeat(MOST_BYTES + 1)).is_err());
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text in "[A-Za-z0-9_.-]{0,80}|.{0,40}", json in ".{0,60}") {
            let _ = parse(&text);
            let part = URL_SAFE_NO_PAD.encode(&json);
            let _ = parse(&format!("{part}.{part}.{part}"));
        }

        #[test]
        fn no_claims_break_the_check(number in any::<f64>(), text in ".{0,20}") {
            let mut claims = usual();
            for name in ["exp", "iat", "nbf"] {
                claims[name] = json!(number);
                let _ = check(Kind::Id, Some(&text), &claims);
            }
        }
    }
}
