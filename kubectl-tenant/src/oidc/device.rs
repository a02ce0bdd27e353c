//! The device authorization grant (RFC 8628): the person signs in on another device.

use std::time::Duration;

use openidconnect::{Nonce, core::CoreTokenResponse};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tenant_shared::PLUGIN_CLIENT_ID;
use url::Url;

use super::{Issuer, Tokens, oauth_error::OauthError};
use crate::{
    broker_url,
    error::Error,
    http::{self, Answer, Failure},
    world::Clock,
};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// What is asked for: the same as in a browser.
const SCOPE: &str = "openid email offline_access";
/// Longest device code, in bytes.
const LONGEST_CODE: usize = 4096;
/// Longest code that a person types, in characters.
const LONGEST_USER_CODE: usize = 64;
/// Longest address of a page, in bytes.
const LONGEST_PAGE: usize = 2048;
/// Bounds of the time between two questions; 5 s is the default of RFC 8628 section 3.2.
const INTERVAL: std::ops::RangeInclusive<u64> = 1..=60;
const DEFAULT_INTERVAL: u64 = 5;
/// Longest life of a code that is believed, in seconds.
const LONGEST_LIFE: u64 = 30 * 60;

/// The two codes of a sign-in: one to ask with, one to type.
#[derive(Debug)]
pub(crate) struct DeviceCode {
    code: SecretString,
    /// What the person types or compares; printable.
    pub(crate) user_code: String,
    /// Where they do it.
    pub(crate) page: Url,
    /// The same page with the code filled in.
    pub(crate) complete_page: Option<Url>,
    /// How long both codes live.
    pub(crate) lifetime: Duration,
    /// Time between two questions.
    pub(crate) interval: Duration,
}

/// The answer as it is on the wire (RFC 8628 section 3.2).
#[derive(Deserialize)]
struct Wire {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

impl DeviceCode {
    /// Reads an answer; the error says what is wrong with it, without its secret.
    fn read(body: &[u8]) -> Result<Self, &'static str> {
        let wire: Wire = serde_json::from_slice(body).map_err(|_| "it is not in the right form")?;
        let is_code = |text: &str, longest: usize| {
            (1..=longest).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if !is_code(&wire.device_code, LONGEST_CODE) {
            return Err("its device code is empty, too long or not plain text");
        }
        let user_code_fits = wire.user_code.chars().count() <= LONGEST_USER_CODE;
        let printable = |text: &str| !text.trim().is_empty() && !text.contains(char::is_control);
        if !user_code_fits || !printable(&wire.user_code) {
            return Err("its user code is empty, too long or not printable");
        }
        let page = page(&wire.verification_uri).ok_or("its page has no safe address")?;
        let complete_page = match wire.verification_uri_complete.as_deref() {
            None => None,
            Some(text) => Some(self::page(text).ok_or("its page has no safe address")?),
        };
        if wire.expires_in == 0 {
            return Err("its code has expired already");
        }
        let interval = wire.interval.unwrap_or(DEFAULT_INTERVAL);
        Ok(Self {
            code: wire.device_code.into(),
            user_code: wire.user_code,
            page,
            complete_page,
            lifetime: Duration::from_secs(wire.expires_in.min(LONGEST_LIFE)),
            interval: Duration::from_secs(interval.clamp(*INTERVAL.start(), *INTERVAL.end())),
        })
    }
}

fn page(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok().filter(|_| text.len() <= LONGEST_PAGE)?;
    broker_url::is_safe(&url).then_some(url)
}

/// How things stand with a sign-in on another device.
pub(crate) enum Polled {
    /// Nobody has confirmed it yet.
    Pending,
    /// Nor that, and the questions come too fast: 5 s more between them from now on.
    SlowDown,
    /// It is done.
    Done(Tokens),
}

/// What an answer to a question says (RFC 8628 section 3.5).
enum Said {
    Pending,
    SlowDown,
    Denied,
    Expired,
    Refused(String),
    Tokens(Box<CoreTokenResponse>),
    /// Not an issuer's answer.
    Nothing,
}

fn said(is_success: bool, body: &[u8]) -> Said {
    if is_success {
        return serde_json::from_slice(body)
            .map_or(Said::Nothing, |tokens| Said::Tokens(Box::new(tokens)));
    }
    let Some(error) = OauthError::read(body) else { return Said::Nothing };
    match error.error.as_str() {
        "authorization_pending" => Said::Pending,
        "slow_down" => Said::SlowDown,
        "access_denied" => Said::Denied,
        "expired_token" => Said::Expired,
        _ => Said::Refused(error.text()),
    }
}

impl Issuer {
    /// Whether somebody without a browser can sign in on another device.
    pub(crate) fn offers_device_grant(&self) -> bool {
        self.device_endpoint().is_some()
    }

    fn device_endpoint(&self) -> Option<&Url> {
        self.metadata.additional_metadata().device_authorization_endpoint.as_ref()
    }

    /// Begins a sign-in on another device.
    pub(crate) async fn begin_device(&self) -> Result<DeviceCode, Error> {
        let endpoint = self.device_endpoint().ok_or_else(|| {
            Error::refused(format!("{} offers no sign-in on another device", self.broker))
                .hint("use kubectl tenant login --no-browser")
        })?;
        let form = [("client_id", PLUGIN_CLIENT_ID), ("scope", SCOPE)];
        let answer = self.post(endpoint.as_str(), &form).await?;
        if !answer.status().is_success() {
            return Err(match OauthError::read(answer.body()) {
                Some(error) => Error::refused(format!(
                    "{} refused the sign-in on another device: {}",
                    self.broker,
                    error.text()
                ))
                .hint("use kubectl tenant login --no-browser"),
                None => self.http.refusal(&answer),
            });
        }
        DeviceCode::read(answer.body()).map_err(|why| {
            Error::unreachable(format!(
                "{} gave an answer for the sign-in on another device that was not used: {why}",
                self.broker
            ))
            .hint("use kubectl tenant login --no-browser")
        })
    }

    /// Asks whether the person has confirmed it. An error of the kind `Unreachable` is no answer,
    /// and the question may be asked again; every other one is the end.
    pub(crate) async fn poll_device(
        &self,
        code: &DeviceCode,
        clock: &Clock,
    ) -> Result<Polled, Error> {
        let (endpoint, _) = self.endpoints()?;
        let before = clock.now();
        let form = [
            ("grant_type", GRANT),
            ("device_code", code.code.expose_secret()),
            ("client_id", PLUGIN_CLIENT_ID),
        ];
        let answer = self.post(&endpoint, &form).await?;
        let again = "begin again: kubectl tenant login --device";
        match said(answer.status().is_success(), answer.body()) {
            Said::Pending => Ok(Polled::Pending),
            Said::SlowDown => Ok(Polled::SlowDown),
            Said::Denied => Err(Error::refused("the sign-in was refused on the broker's page")
                .hint(format!("if that was a mistake, {again}"))),
            Said::Expired => {
                Err(Error::other("the code expired before anybody confirmed it").hint(again))
            }
            Said::Refused(why) => Err(Error::refused(format!(
                "{} refused the sign-in on another device: {why}",
                self.broker
            ))
            .hint(again)),
            Said::Nothing => Err(self.http.refusal(&answer)),
            Said::Tokens(tokens) => {
                let offset = http::clock_offset(&answer, clock.now()).unwrap_or(0);
                // There was no request of ours with a nonce in it: the device code is the binding.
                let no_nonce = |_: Option<&Nonce>| Ok(());
                self.signed_in(&tokens, no_nonce, clock, (before, offset)).map(Polled::Done)
            }
        }
    }

    /// Sends a form.
    pub(super) async fn post(&self, url: &str, form: &[(&str, &str)]) -> Result<Answer, Error> {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = ::http::Request::post(url)
            .header(::http::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(::http::header::ACCEPT, "application/json")
            .body(body.into_bytes())
            .map_err(|error| Error::other(format!("cannot form a request: {error}")))?;
        self.http.send(request).await.map_err(|Failure(error)| error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn answer() -> serde_json::Value {
        json!({
            "device_code": "c0de", "user_code": "ABCD-EFGH",
            "verification_uri": "https://b.example/device",
            "verification_uri_complete": "https://b.example/device?user_code=ABCD-EFGH",
            "expires_in": 600, "interval": 5, "unknown": [1],
        })
    }

    fn with(key: &str, value: serde_json::Value) -> Result<DeviceCode, &'static str> {
        let mut answer = answer();
        answer[key] = value;
        DeviceCode::read(answer.to_string().as_bytes())
    }

    #[test]
    fn an_answer_is_read_within_bounds() {
        let code = DeviceCode::read(answer().to_string().as_bytes()).unwrap();
        assert_eq!((code.user_code.as_str(), code.interval.as_secs()), ("ABCD-EFGH", 5));
        assert!(!format!("{code:?}").contains("c0de"));
        let seconds = |read: Result<DeviceCode, _>| read.unwrap().interval.as_secs();
        assert_eq!(seconds(with("interval", json!(null))), 5);
        assert_eq!(seconds(with("interval", json!(0))), 1);
        assert_eq!(seconds(with("interval", json!(u64::MAX))), 60);
        assert_eq!(with("expires_in", json!(u64::MAX)).unwrap().lifetime.as_secs(), LONGEST_LIFE);
        assert!(with("verification_uri_complete", json!(null)).unwrap().complete_page.is_none());
    }

    #[test]
    fn what_could_harm_the_terminal_or_the_person_is_refused() {
        for (key, value) in [
            ("device_code", json!("")),
            ("device_code", json!("a b")),
            ("device_code", json!("x".repeat(LONGEST_CODE + 1))),
            ("user_code", json!("")),
            ("user_code", json!("A\u{1b}[2J")),
            ("user_code", json!("A".repeat(65))),
            ("verification_uri", json!("http://b.example/device")),
            ("verification_uri", json!("javascript:alert(1)")),
            ("verification_uri", json!("device")),
            ("verification_uri", json!(format!("https://b/{}", "x".repeat(LONGEST_PAGE)))),
            ("verification_uri_complete", json!("file:///etc/passwd")),
            ("expires_in", json!(0)),
            ("expires_in", json!(-1)),
            ("expires_in", json!("600")),
        ] {
            assert!(with(key, value.clone()).is_err(), "{key} {value}");
        }
    }

    #[test]
    fn each_answer_to_a_question_has_its_meaning() {
        let error = |code: &str| said(false, json!({"error": code}).to_string().as_bytes());
        assert!(matches!(error("authorization_pending"), Said::Pending));
        assert!(matches!(error("slow_down"), Said::SlowDown));
        assert!(matches!(error("access_denied"), Said::Denied));
        assert!(matches!(error("expired_token"), Said::Expired));
        assert!(matches!(error("invalid_client"), Said::Refused(_)));
        assert!(matches!(said(false, b"<html>"), Said::Nothing));
        assert!(matches!(said(true, b"{}"), Said::Nothing));
        let tokens = json!({"access_token": "a", "token_type": "Bearer"}).to_string();
        assert!(matches!(said(true, tokens.as_bytes()), Said::Tokens(_)));
    }

    proptest! {
        #[test]
        fn no_answer_is_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), ok: bool) {
            let _ = DeviceCode::read(&bytes);
            let _ = said(ok, &bytes);
        }

        #[test]
        fn what_is_shown_is_printable(user_code in ".{0,80}", page in ".{0,60}", life: u64) {
            let mut answer = answer();
            answer["user_code"] = json!(user_code);
            answer["verification_uri_complete"] = json!(format!("https://b.example/{page}"));
            answer["expires_in"] = json!(life);
            if let Ok(code) = DeviceCode::read(answer.to_string().as_bytes()) {
                let complete = code.complete_page.unwrap();
                let shown = format!("{}{}{complete}", code.user_code, code.page);
                prop_assert!(!shown.contains(char::is_control));
                prop_assert!(code.lifetime.as_secs() <= LONGEST_LIFE);
            }
        }
    }
}
