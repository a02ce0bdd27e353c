//! Token exchange (RFC 8693): a machine's OIDC token for a short access token.

use openidconnect::OAuth2TokenResponse;
use openidconnect::core::CoreTokenResponse;
use secrecy::SecretString;
use tenant_shared::PLUGIN_CLIENT_ID;

use super::{Issuer, oauth_error::OauthError};
use crate::{error::Error, machine::IdToken};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";

/// What an answer says (RFC 8693 section 2.2).
enum Said {
    Token(SecretString),
    Refused(String),
    /// Not an issuer's answer.
    Nothing,
}

fn said(is_success: bool, body: &[u8]) -> Said {
    if is_success {
        return serde_json::from_slice::<CoreTokenResponse>(body).map_or(Said::Nothing, |answer| {
            Said::Token(answer.access_token().secret().clone().into())
        });
    }
    OauthError::read(body).map_or(Said::Nothing, |error| Said::Refused(error.text()))
}

impl Issuer {
    /// Exchanges a machine's token for an access token that is good for one workspace.
    pub(crate) async fn exchange(
        &self,
        token: &IdToken,
        workspace: &str,
    ) -> Result<SecretString, Error> {
        let (endpoint, _) = self.endpoints()?;
        let form = [
            ("grant_type", GRANT),
            ("subject_token", token.secret()),
            ("subject_token_type", JWT),
            ("audience", workspace),
            ("client_id", PLUGIN_CLIENT_ID),
        ];
        let answer = self.post(&endpoint, &form).await?;
        match said(answer.status().is_success(), answer.body()) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_answer_has_its_meaning() {
        let token = br#"{"access_token":"a","token_type":"Bearer","issued_token_type":"t"}"#;
        assert!(matches!(said(true, token), Said::Token(_)));
        let Said::Refused(why) = said(false, br#"{"error":"invalid_target"}"#) else {
            panic!("not refused")
        };
        assert_eq!(why, "invalid_target");
        assert!(matches!(said(true, b"{}"), Said::Nothing));
        assert!(matches!(said(false, b"<html>"), Said::Nothing));
    }

    proptest! {
        #[test]
        fn no_answer_is_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), ok: bool) {
            let _ = said(ok, &bytes);
        }
    }
}
