//! Token exchange (RFC 8693): a machine's OIDC token for a short access token.

use openidconnect::core::CoreTokenResponse;
use tenant_shared::PLUGIN_CLIENT_ID;

use super::{Issuer, access, oauth_error::OauthError};
use crate::{error::Error, machine::IdToken, store::AccessToken, world::Clock};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";

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
