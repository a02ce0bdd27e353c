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
    http::{self, RequestError, Response},
    world::Clock,
};

const DEVICE_CODE_GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// Requested scopes, the same as in a browser.
const SCOPES: &str = "openid email offline_access";
/// Maximum length of a device code, in bytes.
const MAX_CODE_BYTES: usize = 4096;
/// Maximum length of a user code, in characters.
const MAX_USER_CODE_CHARS: usize = 64;
/// Maximum length of a verification URI, in bytes.
const MAX_URI_BYTES: usize = 2048;
/// Accepted polling intervals in seconds. The default of RFC 8628 section 3.2 is 5 s.
const POLL_INTERVAL_SECONDS: std::ops::RangeInclusive<u64> = 1..=60;
const DEFAULT_POLL_INTERVAL_SECONDS: u64 = 5;
/// Maximum lifetime of a code that is accepted, in seconds.
const MAX_LIFETIME_SECONDS: u64 = 30 * 60;

/// The codes of a device authorization: the device code for polling, and the user code to type.
#[derive(Debug)]
pub(crate) struct DeviceCode {
    code: SecretString,
    /// User code, which the person types or compares; printable.
    pub(crate) user_code: String,
    /// Verification URI: the page where the person enters the code.
    pub(crate) page: Url,
    /// The same page with the user code filled in (`verification_uri_complete`).
    pub(crate) complete_page: Option<Url>,
    /// Lifetime of both codes.
    pub(crate) lifetime: Duration,
    /// Polling interval.
    pub(crate) interval: Duration,
}

/// Device authorization response (RFC 8628 section 3.2).
#[derive(Deserialize)]
struct DeviceAuthorizationResponse {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

impl DeviceCode {
    /// Parses a response; the error says what is wrong with it and contains no secret.
    fn parse(body: &[u8]) -> Result<Self, &'static str> {
        let response: DeviceAuthorizationResponse =
            serde_json::from_slice(body).map_err(|_| "it is not in the right form")?;
        let is_code = |text: &str, max: usize| {
            (1..=max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if !is_code(&response.device_code, MAX_CODE_BYTES) {
            return Err("its device code is empty, too long or not plain text");
        }
        let user_code_fits = response.user_code.chars().count() <= MAX_USER_CODE_CHARS;
        let printable = |text: &str| !text.trim().is_empty() && !text.contains(char::is_control);
        if !user_code_fits || !printable(&response.user_code) {
            return Err("its user code is empty, too long or not printable");
        }
        let page =
            parse_safe_url(&response.verification_uri).ok_or("its page has no safe address")?;
        let complete_page = match response.verification_uri_complete.as_deref() {
            None => None,
            Some(text) => Some(parse_safe_url(text).ok_or("its page has no safe address")?),
        };
        if response.expires_in == 0 {
            return Err("its code has expired already");
        }
        let interval = response.interval.unwrap_or(DEFAULT_POLL_INTERVAL_SECONDS);
        Ok(Self {
            code: response.device_code.into(),
            user_code: response.user_code,
            page,
            complete_page,
            lifetime: Duration::from_secs(response.expires_in.min(MAX_LIFETIME_SECONDS)),
            interval: Duration::from_secs(
                interval.clamp(*POLL_INTERVAL_SECONDS.start(), *POLL_INTERVAL_SECONDS.end()),
            ),
        })
    }
}

fn parse_safe_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok().filter(|_| text.len() <= MAX_URI_BYTES)?;
    broker_url::is_safe(&url).then_some(url)
}

/// Result of one poll.
pub(crate) enum DevicePoll {
    /// The person has not confirmed the sign-in yet.
    Pending,
    /// The same, and the polls are too frequent: the interval grows by 5 s.
    SlowDown,
    /// The sign-in is complete.
    Done(Tokens),
}

/// Parsed response to a poll (RFC 8628 section 3.5).
enum PollResponse {
    Pending,
    SlowDown,
    Denied,
    Expired,
    Refused(String),
    Tokens(Box<CoreTokenResponse>),
    /// Not a response of an issuer.
    Unrecognized,
}

fn parse_poll_response(is_success: bool, body: &[u8]) -> PollResponse {
    if is_success {
        return serde_json::from_slice(body)
            .map_or(PollResponse::Unrecognized, |tokens| PollResponse::Tokens(Box::new(tokens)));
    }
    let Some(error) = OauthError::parse(body) else { return PollResponse::Unrecognized };
    match error.error.as_str() {
        "authorization_pending" => PollResponse::Pending,
        "slow_down" => PollResponse::SlowDown,
        "access_denied" => PollResponse::Denied,
        "expired_token" => PollResponse::Expired,
        _ => PollResponse::Refused(error.text()),
    }
}

impl Issuer {
    /// Whether the issuer supports the device grant.
    pub(crate) fn offers_device_grant(&self) -> bool {
        self.device_endpoint().is_some()
    }

    fn device_endpoint(&self) -> Option<&Url> {
        self.metadata.additional_metadata().device_authorization_endpoint.as_ref()
    }

    /// The hint to sign in with a pasted code instead.
    fn advise_pasting(&self) -> String {
        format!("use {}", self.command("login --no-browser"))
    }

    /// Sends a device authorization request.
    pub(crate) async fn request_device_code(&self) -> Result<DeviceCode, Error> {
        let endpoint = self.device_endpoint().ok_or_else(|| {
            Error::refused(format!("{} offers no sign-in on another device", self.broker))
                .hint(self.advise_pasting())
        })?;
        let form = [("client_id", PLUGIN_CLIENT_ID), ("scope", SCOPES)];
        let response = self.post_form(endpoint.as_str(), &form).await?;
        if !response.status().is_success() {
            return Err(match OauthError::parse(response.body()) {
                Some(error) => Error::refused(format!(
                    "{} refused the sign-in on another device: {}",
                    self.broker,
                    error.text()
                ))
                .hint(self.advise_pasting()),
                None => self.http.refusal(&response),
            });
        }
        DeviceCode::parse(response.body()).map_err(|why| {
            Error::unreachable(format!(
                "{} sent an invalid device authorization response: {why}",
                self.broker
            ))
            .hint(self.advise_pasting())
        })
    }

    /// Polls the token endpoint. After an error of the kind `Unreachable` the caller may poll
    /// again; every other error is final.
    pub(crate) async fn poll_device(
        &self,
        code: &DeviceCode,
        clock: &Clock,
    ) -> Result<DevicePoll, Error> {
        let (endpoint, _) = self.endpoints()?;
        let before = clock.now();
        let form = [
            ("grant_type", DEVICE_CODE_GRANT_TYPE),
            ("device_code", code.code.expose_secret()),
            ("client_id", PLUGIN_CLIENT_ID),
        ];
        let response = self.post_form(&endpoint, &form).await?;
        let again = format!("begin again: {}", self.command("login --device"));
        match parse_poll_response(response.status().is_success(), response.body()) {
            PollResponse::Pending => Ok(DevicePoll::Pending),
            PollResponse::SlowDown => Ok(DevicePoll::SlowDown),
            PollResponse::Denied => {
                Err(Error::refused("the sign-in was refused on the broker's page")
                    .hint(format!("if that was a mistake, {again}")))
            }
            PollResponse::Expired => {
                Err(Error::other("the code expired before anybody confirmed it").hint(again))
            }
            PollResponse::Refused(why) => Err(Error::refused(format!(
                "{} refused the sign-in on another device: {why}",
                self.broker
            ))
            .hint(again)),
            PollResponse::Unrecognized => Err(self.http.refusal(&response)),
            PollResponse::Tokens(tokens) => {
                let offset = http::clock_offset(&response, clock.now()).unwrap_or(0);
                // The request had no nonce: the device code binds the tokens to this sign-in.
                let no_nonce = |_: Option<&Nonce>| Ok(());
                self.verify_tokens(&tokens, no_nonce, clock, (before, offset)).map(DevicePoll::Done)
            }
        }
    }

    /// Sends a form to an endpoint of the issuer.
    pub(super) async fn post_form(
        &self,
        url: &str,
        form: &[(&str, &str)],
    ) -> Result<Response, Error> {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = ::http::Request::post(url)
            .header(::http::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(::http::header::ACCEPT, "application/json")
            .body(body.into_bytes())
            .map_err(|error| Error::other(format!("cannot build a request: {error}")))?;
        self.http.send(request).await.map_err(|RequestError(error)| error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn response() -> serde_json::Value {
        json!({
            "device_code": "c0de", "user_code": "ABCD-EFGH",
            "verification_uri": "https://b.example/device",
            "verification_uri_complete": "https://b.example/device?user_code=ABCD-EFGH",
            "expires_in": 600, "interval": 5, "unknown": [1],
        })
    }

    fn with(key: &str, value: serde_json::Value) -> Result<DeviceCode, &'static str> {
        let mut response = response();
        response[key] = value;
        DeviceCode::parse(response.to_string().as_bytes())
    }

    #[test]
    fn response_values_are_bounded() {
        let code = DeviceCode::parse(response().to_string().as_bytes()).unwrap();
        assert_eq!((code.user_code.as_str(), code.interval.as_secs()), ("ABCD-EFGH", 5));
        assert!(!format!("{code:?}").contains("c0de"));
        let seconds = |read: Result<DeviceCode, _>| read.unwrap().interval.as_secs();
        assert_eq!(seconds(with("interval", json!(null))), 5);
        assert_eq!(seconds(with("interval", json!(0))), 1);
        assert_eq!(seconds(with("interval", json!(u64::MAX))), 60);
        assert_eq!(
            with("expires_in", json!(u64::MAX)).unwrap().lifetime.as_secs(),
            MAX_LIFETIME_SECONDS
        );
        assert!(with("verification_uri_complete", json!(null)).unwrap().complete_page.is_none());
    }

    #[test]
    fn unsafe_responses_are_refused() {
        for (key, value) in [
            ("device_code", json!("")),
            ("device_code", json!("a b")),
            ("device_code", json!("x".repeat(MAX_CODE_BYTES + 1))),
            ("user_code", json!("")),
            ("user_code", json!("A\u{1b}[2J")),
            ("user_code", json!("A".repeat(65))),
            ("verification_uri", json!("http://b.example/device")),
            ("verification_uri", json!("javascript:alert(1)")),
            ("verification_uri", json!("device")),
            ("verification_uri", json!(format!("https://b/{}", "x".repeat(MAX_URI_BYTES)))),
            ("verification_uri_complete", json!("file:///etc/passwd")),
            ("expires_in", json!(0)),
            ("expires_in", json!(-1)),
            ("expires_in", json!("600")),
        ] {
            assert!(with(key, value.clone()).is_err(), "{key} {value}");
        }
    }

    #[test]
    fn poll_responses_are_classified() {
        let error =
            |code: &str| parse_poll_response(false, json!({"error": code}).to_string().as_bytes());
        assert!(matches!(error("authorization_pending"), PollResponse::Pending));
        assert!(matches!(error("slow_down"), PollResponse::SlowDown));
        assert!(matches!(error("access_denied"), PollResponse::Denied));
        assert!(matches!(error("expired_token"), PollResponse::Expired));
        assert!(matches!(error("invalid_client"), PollResponse::Refused(_)));
        assert!(matches!(parse_poll_response(false, b"<html>"), PollResponse::Unrecognized));
        assert!(matches!(parse_poll_response(true, b"{}"), PollResponse::Unrecognized));
        let tokens = json!({"access_token": "a", "token_type": "Bearer"}).to_string();
        assert!(matches!(parse_poll_response(true, tokens.as_bytes()), PollResponse::Tokens(_)));
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), ok: bool) {
            let _ = DeviceCode::parse(&bytes);
            let _ = parse_poll_response(ok, &bytes);
        }

        #[test]
        fn displayed_text_is_printable(user_code in ".{0,80}", page in ".{0,60}", life: u64) {
            let mut response = response();
            response["user_code"] = json!(user_code);
            response["verification_uri_complete"] = json!(format!("https://b.example/{page}"));
            response["expires_in"] = json!(life);
            if let Ok(code) = DeviceCode::parse(response.to_string().as_bytes()) {
                let complete = code.complete_page.unwrap();
                let shown = format!("{}{}{complete}", code.user_code, code.page);
                prop_assert!(!shown.contains(char::is_control));
                prop_assert!(code.lifetime.as_secs() <= MAX_LIFETIME_SECONDS);
            }
        }
    }
}
