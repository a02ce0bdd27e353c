//! Token exchange (RFC 8693): a machine's OIDC token for a short access token, and an access token for
//! one that is good for the gateway only.

use openidconnect::core::CoreTokenResponse;
use secrecy::{ExposeSecret as _, SecretString};
use tenant_shared::{GATEWAY_SCOPE, PLUGIN_CLIENT_ID};

use super::{Issuer, access, oauth_error::OauthError};
use crate::{
    error::Error,
    http::{Failure, Http},
    machine::IdToken,
    store::AccessToken,
    world::Clock,
};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
/// What the broker answers where the access token is worth nothing any more (section 2.2.2).
const INVALID_REQUEST: &str = "invalid_request";

/// What an answer says (RFC 8693 section 2.2).
enum Said {
    Token(AccessToken),
    Refused(String),
    /// Not an issuer's answer.
    Nothing,
}

fn said(is_success: bool, body: &[u8], before: i64) -> Said {
    if is_success {
        return serde_json::from_slice::<CoreTokenResponse>(body)
            .map_or(Said::Nothing, |answer| Said::Token(access(&answer, before)));
    }
    OauthError::read(body).map_or(Said::Nothing, |error| Said::Refused(error.text()))
}

impl Issuer {
    /// Exchanges a machine's token for an access token that is good for one workspace.
    pub(crate) async fn exchange(
        &self,
        token: &IdToken,
        workspace: &str,
        clock: &Clock,
    ) -> Result<AccessToken, Error> {
        let (endpoint, _) = self.endpoints()?;
        let form = [
            ("grant_type", GRANT),
            ("subject_token", token.secret()),
            ("subject_token_type", JWT),
            ("audience", workspace),
            ("client_id", PLUGIN_CLIENT_ID),
        ];
        let before = clock.now();
        let answer = self.post(&endpoint, &form).await?;
        match said(answer.status().is_success(), answer.body(), before) {
            Said::Token(token) => Ok(token),
            Said::Refused(why) => Err(Error::refused(format!(
                "{} does not take the OIDC token of this machine for {workspace}: {why}",
                self.broker
            ))
            .hint(
                "ask the people who run the broker for a rule that fits the token's issuer, \
                 audience and claims; a token may also have ended",
            )),
            Said::Nothing => Err(self.http.refusal(&answer)),
        }
    }
}

/// Exchanges an access token for one that is good for the gateway only; `None` if the access token is
/// worth nothing any more.
pub(crate) async fn gateway_token(
    http: &Http,
    token_endpoint: &str,
    token: &SecretString,
    clock: &Clock,
) -> Result<Option<AccessToken>, Error> {
    let form = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", GRANT)
        .append_pair("subject_token", token.expose_secret())
        .append_pair("subject_token_type", ACCESS_TOKEN)
        .append_pair("scope", GATEWAY_SCOPE)
        .append_pair("client_id", PLUGIN_CLIENT_ID)
        .finish();
    let request = ::http::Request::post(token_endpoint)
        .header(::http::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(form.into_bytes())
        .map_err(|error| Error::other(format!("the stored session is malformed: {error}")))?;
    let before = clock.now();
    let answer = http.send(request).await.map_err(|Failure(error)| error)?;
    if answer.status().is_success()
        && let Said::Token(token) = said(true, answer.body(), before)
    {
        return Ok(Some(token));
    }
    match OauthError::read(answer.body()) {
        Some(error) if error.error == INVALID_REQUEST => Ok(None),
        Some(error) if error.error == "unsupported_grant_type" => {
            Err(Error::refused("the broker issues no tokens for its gateway alone")
                .hint("the broker is older than kubectl-tenant; ask its operator to update it"))
        }
        _ => Err(http.refusal(&answer)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_answer_has_its_meaning() {
        let token = br#"{"access_token":"a","token_type":"Bearer","issued_token_type":"t"}"#;
        assert!(matches!(said(true, token, 0), Said::Token(_)));
        let Said::Refused(why) = said(false, br#"{"error":"invalid_target"}"#, 0) else {
            panic!("not refused")
        };
        assert_eq!(why, "invalid_target");
        assert!(matches!(said(true, b"{}", 0), Said::Nothing));
        assert!(matches!(said(false, b"<html>", 0), Said::Nothing));
    }

    proptest! {
        #[test]
        fn no_answer_is_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), ok: bool) {
            let _ = said(ok, &bytes, 0);
        }
    }
}
