//! Verification of a signed token of another issuer (JWT, RFC 7519, RFC 8725).

use jsonwebtoken::{Algorithm, TokenData, Validation};
use serde_json::{Map, Value};
use url::Url;

use super::{JwksCache, VerificationError};

/// Maximum bytes of a token that anybody may send.
pub(in crate::issuer) const MAX_JWT_BYTES: usize = 16 * 1024;
/// Maximum bytes of an ID token. It comes from the provider itself, which may name thousands of
/// groups in it.
const MAX_ID_TOKEN_BYTES: usize = 2 * 1024 * 1024;
/// Tolerated clock skew of another issuer, in seconds.
pub(in crate::issuer) const CLOCK_SKEW_SECONDS: i64 = 60;
/// Maximum bytes of a subject (OpenID Connect Core 1.0 section 2: 255).
const MAX_SUBJECT_BYTES: usize = 255;

/// The expected kind of token. A token of one kind is never accepted as another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::issuer) enum TokenKind {
    /// An ID token (OpenID Connect Core 1.0 section 2). With more than one audience its `azp` must
    /// name us.
    Id,
    /// A logout token (OpenID Connect Back-Channel Logout 1.0 section 2.4).
    Logout,
    Workload,
}

/// Claims that were verified: the issuer signed them for us, and they are valid now.
#[derive(Clone, Debug)]
pub(in crate::issuer) struct Claims(Map<String, Value>);

impl Claims {
    /// Verifies the signature, issuer, audience and times of a token and returns its claims. `now`
    /// is in milliseconds; `keys_at` is the URL of the keys of the issuer.
    pub(in crate::issuer) async fn verify(
        token: &str,
        kind: TokenKind,
        (keys, keys_at): (&JwksCache, &Url),
        (issuer, audience): (&str, &str),
        now: i64,
    ) -> Result<Self, VerificationError> {
        let unverified = parse(token, kind)?;
        let header = unverified.header;
        // Checked before any key is fetched, so that a token for somebody else causes no fetch.
        let typ = header.typ.as_deref();
        Self(unverified.claims).check(kind, typ, issuer, audience, now / 1000)?;
        let key = keys.find(keys_at, header.kid.as_deref(), header.alg).await?;
        let mut validation = Validation::new(header.alg);
        validation.set_issuer(&[issuer]);
        validation.set_audience(&[audience]);
        // The times were checked above: the library uses the system's clock, and requires `exp`,
        // which older logout tokens do not have.
        validation.validate_exp = false;
        validation.set_required_spec_claims(&["iss", "aud"]);
        match jsonwebtoken::decode(token, &key, &validation) {
            Ok(verified) => Ok(Self(verified.claims)),
            Err(_) => Err(VerificationError::Invalid("its signature is invalid")),
        }
    }

    fn check(
        &self,
        kind: TokenKind,
        typ: Option<&str>,
        issuer: &str,
        audience: &str,
        now: i64,
    ) -> Result<(), VerificationError> {
        let refused = |why| Err(VerificationError::Invalid(why));
        if self.text("iss") != Some(issuer) {
            return refused("its issuer (iss) is another one");
        }
        let audiences = self.audiences();
        if !audiences.contains(&audience) {
            return refused("its audience (aud) is another one");
        }
        let is_logout = self.has_logout_event();
        let typ_fits = matches!(
            (kind, typ.map(str::to_ascii_lowercase).as_deref()),
            (_, None | Some("jwt"))
                | (TokenKind::Logout, Some("logout+jwt"))
                | (TokenKind::Workload, Some("at+jwt"))
        );
        if !typ_fits || is_logout != (kind == TokenKind::Logout) {
            return refused("it is a token of another kind");
        }
        if kind == TokenKind::Id {
            let party = self.text("azp");
            let party_is_we = party == Some(audience);
            if (self.0.contains_key("azp") || audiences.len() > 1) && !party_is_we {
                return refused("its authorized party (azp) is another one");
            }
        }
        match self.seconds("iat") {
            Some(at) if at <= now + CLOCK_SKEW_SECONDS => {}
            Some(_) => return refused("it was issued in the future"),
            None => return refused("it has no issue time (iat)"),
        }
        match self.seconds("exp") {
            Some(end) if end > now - CLOCK_SKEW_SECONDS => {}
            Some(_) => return refused("it has expired"),
            // Older logout tokens have no `exp`.
            None if kind == TokenKind::Logout && !self.0.contains_key("exp") => {}
            None => return refused("it has no expiry time (exp)"),
        }
        if self.0.contains_key("nbf")
            && self.seconds("nbf").is_none_or(|from| from > now + CLOCK_SKEW_SECONDS)
        {
            return refused("it is not valid yet");
        }
        if kind != TokenKind::Logout && self.subject().is_none() {
            return refused("it has no valid subject (sub)");
        }
        Ok(())
    }

    /// The subject (`sub`), of 1 to 255 bytes.
    pub(in crate::issuer) fn subject(&self) -> Option<&str> {
        self.text("sub").filter(|text| (1..=MAX_SUBJECT_BYTES).contains(&text.len()))
    }

    /// A claim that is a string.
    pub(in crate::issuer) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// A claim that is a time, in seconds since 1970; fractions are truncated (RFC 7519 section 2).
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

/// The unverified issuer (`iss`) of a token, to select the keys for its verification. It proves
/// nothing.
pub(in crate::issuer) fn unverified_issuer(token: &str) -> Option<String> {
    parse(token, TokenKind::Workload).ok()?.claims.get("iss")?.as_str().map(str::to_owned)
}

/// Parses a token without verifying it.
fn parse(token: &str, kind: TokenKind) -> Result<TokenData<Map<String, Value>>, VerificationError> {
    let (max_bytes, too_large) = match kind {
        TokenKind::Id => (
            MAX_ID_TOKEN_BYTES,
            "the ID token is larger than 2 MiB: have the provider name fewer groups in it",
        ),
        TokenKind::Logout | TokenKind::Workload => (MAX_JWT_BYTES, "it is larger than 16 KiB"),
    };
    if token.len() > max_bytes {
        return Err(VerificationError::Invalid(too_large));
    }
    let parsed: TokenData<Map<String, Value>> = jsonwebtoken::dangerous::insecure_decode(token)
        .map_err(|_| VerificationError::Invalid("it is not a signed token (JWT)"))?;
    if parsed.header.crit.is_some() {
        // The broker supports no extension (RFC 7515 section 4.1.11).
        return Err(VerificationError::Invalid("it requires unsupported extensions (crit)"));
    }
    if matches!(parsed.header.alg, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512) {
        let text = "it is not signed with a supported public-key algorithm";
        return Err(VerificationError::Invalid(text));
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn usual() -> Value {
        json!({ "iss": "https://a", "sub": "ada", "aud": "us", "iat": NOW, "exp": NOW + 300 })
    }

    fn check(kind: TokenKind, typ: Option<&str>, claims: &Value) -> Result<(), &'static str> {
        let claims = Claims(claims.as_object().unwrap().clone());
        claims.check(kind, typ, "https://a", "us", NOW).map_err(|error| match error {
            VerificationError::Invalid(why) => why,
            VerificationError::Unavailable(_) => unreachable!(),
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
        assert_eq!(check(TokenKind::Id, None, &usual()), Ok(()));
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
            assert!(check(TokenKind::Id, None, &claims).is_err(), "{claims}");
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
            assert_eq!(check(TokenKind::Id, None, &claims), Ok(()), "{claims}");
        }
    }

    #[test]
    fn a_token_of_one_kind_is_never_accepted_as_another() {
        let logout =
            with("events", json!({ "http://schemas.openid.net/event/backchannel-logout": {} }));
        assert_eq!(check(TokenKind::Logout, Some("logout+jwt"), &logout), Ok(()));
        assert!(check(TokenKind::Workload, None, &logout).is_err());
        assert!(check(TokenKind::Logout, None, &usual()).is_err());
        assert!(check(TokenKind::Id, Some("at+jwt"), &usual()).is_err());
        assert!(check(TokenKind::Id, Some("logout+jwt"), &usual()).is_err());
        assert_eq!(check(TokenKind::Id, Some("JWT"), &usual()), Ok(()));
        assert_eq!(check(TokenKind::Workload, Some("at+jwt"), &usual()), Ok(()));
        // A token of a workload may have other audiences, too.
        assert_eq!(check(TokenKind::Workload, None, &with("aud", json!(["us", "them"]))), Ok(()));
    }

    #[test]
    fn only_public_key_algorithms_are_accepted() {
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
            assert!(parse(&token(header.clone()), TokenKind::Id).is_err(), "{header}");
        }
        assert!(parse(&token(json!({ "alg": "ES256" })), TokenKind::Id).is_ok());
        for text in ["", ".", "..", "a.b", "a.b.c.d", "ä.b.c"] {
            assert!(parse(text, TokenKind::Id).is_err(), "{text}");
        }
    }

    /// A provider may name thousands of groups in an ID token. Anybody may send the other tokens.
    #[test]
    fn only_an_id_token_may_be_large() {
        let body = json!({ "groups": vec!["a1b2c3d4-0000-4000-8000-000000000000"; 10_000] });
        let [header, body] =
            [json!({ "alg": "ES256" }), body].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let large = format!("{header}.{body}.c2ln");
        assert!(parse(&large, TokenKind::Id).is_ok());
        for kind in [TokenKind::Logout, TokenKind::Workload] {
            assert!(parse(&large, kind).is_err());
        }
        let larger = format!("{header}.{}.c2ln", body.repeat(5));
        match parse(&larger, TokenKind::Id) {
            Err(VerificationError::Invalid(why)) => assert!(why.contains("2 MiB"), "{why}"),
            other => panic!("{other:?}"),
        }
    }

    proptest! {
        #[test]
        fn no_token_causes_a_panic(text in "[A-Za-z0-9_.-]{0,80}|.{0,40}", json in ".{0,60}") {
            let _ = parse(&text, TokenKind::Id);
            let part = URL_SAFE_NO_PAD.encode(&json);
            let _ = parse(&format!("{part}.{part}.{part}"), TokenKind::Id);
        }

        #[test]
        fn no_claims_cause_a_panic(number in any::<f64>(), text in ".{0,20}") {
            let mut claims = usual();
            for name in ["exp", "iat", "nbf"] {
                claims[name] = json!(number);
                let _ = check(TokenKind::Id, Some(&text), &claims);
            }
        }
    }
}
