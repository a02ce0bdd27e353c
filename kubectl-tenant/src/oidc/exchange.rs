//! Token exchange (RFC 8693): a workload's OIDC token for an access token, and an access token for
//! one that is valid for the gateway only.

use openidconnect::core::CoreTokenResponse;
use secrecy::{ExposeSecret as _, SecretString};
use tenant_shared::{GATEWAY_SCOPE, PLUGIN_CLIENT_ID};

use super::{Issuer, access_token, oauth_error::OauthError};
use crate::{
    error::Error,
    http::{Http, RequestError},
    store::AccessToken,
    workload_identity::IdToken,
    world::Clock,
};

const TOKEN_EXCHANGE_GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const JWT_TOKEN_TYPE: &str = "urn:ietf:params:oauth:token-type:jwt";
const ACCESS_TOKEN_TYPE: &str = "urn:ietf:params:oauth:token-type:access_token";
/// Error code of the broker for an access token that is no longer valid (section 2.2.2).
const INVALID_REQUEST: &str = "invalid_request";

/// Parsed response to a token exchange (RFC 8693 section 2.2).
enum ExchangeResponse {
    Token(AccessToken),
    Refused(String),
    /// Not a response of an issuer.
    Unrecognized,
}

fn parse_exchange_response(is_success: bool, body: &[u8], before: i64) -> ExchangeResponse {
    if is_success {
        return serde_json::from_slice::<CoreTokenResponse>(body)
            .map_or(ExchangeResponse::Unrecognized, |response| {
                ExchangeResponse::Token(access_token(&response, before))
            });
    }
    OauthError::parse(body)
        .map_or(ExchangeResponse::Unrecognized, |error| ExchangeResponse::Refused(error.text()))
}

impl Issuer {
    /// Exchanges a workload's OIDC token for an access token that is valid for one workspace.
    pub(crate) async fn exchange_id_token(
        &self,
        token: &IdToken,
        workspace: &str,
        clock: &Clock,
    ) -> Result<AccessToken, Error> {
        let (endpoint, _) = self.endpoints()?;
        let form = [
            ("grant_type", TOKEN_EXCHANGE_GRANT_TYPE),
            ("subject_token", token.secret()),
            ("subject_token_type", JWT_TOKEN_TYPE),
            ("audience", workspace),
            ("client_id", PLUGIN_CLIENT_ID),
        ];
        let before = clock.now();
        let response = self.post_form(&endpoint, &form).await?;
        match parse_exchange_response(response.status().is_success(), response.body(), before) {
            ExchangeResponse::Token(token) => Ok(token),
            ExchangeResponse::Refused(why) => Err(Error::refused(format!(
                "{} does not accept the OIDC token of this machine for {workspace}: {why}",
                self.broker
            ))
            .hint(
                "ask the broker's operator for a rule that matches the token's issuer, audience and \
                 claims; the token may also have expired",
            )),
            ExchangeResponse::Unrecognized => Err(self.http.refusal(&response)),
        }
    }
}

/// Exchanges an access token for one that is valid for the gateway only; `None` if the access token
/// is no longer valid.
pub(crate) async fn exchange_for_gateway_token(
    http: &Http,
    token_endpoint: &str,
    token: &SecretString,
    clock: &Clock,
) -> Result<Option<AccessToken>, Error> {
    let form = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", TOKEN_EXCHANGE_GRANT_TYPE)
        .append_pair("subject_token", token.expose_secret())
        .append_pair("subject_token_type", ACCESS_TOKEN_TYPE)
        .append_pair("scope", GATEWAY_SCOPE)
        .append_pair("client_id", PLUGIN_CLIENT_ID)
        .finish();
    let request = ::http::Request::post(token_endpoint)
        .header(::http::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(form.into_bytes())
        .map_err(|error| Error::other(format!("the stored session is malformed: {error}")))?;
    let before = clock.now();
    let response = http.send(request).await.map_err(|RequestError(error)| error)?;
    if response.status().is_success()
        && let ExchangeResponse::Token(token) =
            parse_exchange_response(true, response.body(), before)
    {
        return Ok(Some(token));
    }
    match OauthError::parse(response.body()) {
        Some(error) if error.error == INVALID_REQUEST => Ok(None),
        Some(error) if error.error == "unsupported_grant_type" => {
            Err(Error::refused("the broker does not issue gateway-only tokens")
                .hint("the broker is older than kubectl-tenant; ask its operator to update it"))
        }
        _ => Err(http.refusal(&response)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn exchange_responses_are_classified() {
        let token = br#"{"access_token":"a","token_type":"Bearer","issued_token_type":"t"}"#;
        assert!(matches!(parse_exchange_response(true, token, 0), ExchangeResponse::Token(_)));
        let ExchangeResponse::Refused(why) =
            parse_exchange_response(false, br#"{"error":"invalid_target"}"#, 0)
        else {
            panic!("not refused")
        };
        assert_eq!(why, "invalid_target");
        assert!(matches!(parse_exchange_response(true, b"{}", 0), ExchangeResponse::Unrecognized));
        assert!(matches!(
            parse_exchange_response(false, b"<html>", 0),
            ExchangeResponse::Unrecognized
        ));
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), ok: bool) {
            let _ = parse_exchange_response(ok, &bytes, 0);
        }
    }
}
