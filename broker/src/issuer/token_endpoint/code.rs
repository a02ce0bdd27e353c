//! Redemption of authorization codes: each code starts one session (RFC 6749 section 4.1.3, RFC
//! 7636 section 4.6).

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::{
    audit::{self, Action, Event},
    base::{
        db::Tx,
        secret::{PlainSecret, SecretHash},
    },
    identity::sessions,
    issuer::{
        Issuer,
        authorization::{self, RedeemedAuthorization},
        parameters::{MAX_SECRET_BYTES, Parameters},
        redirect,
        sign_in::session_start,
        tokens::{
            issued_tokens::{self, IssuedTokens},
            token_error::TokenError,
        },
    },
};

/// The same error for every code that is not valid.
const INVALID_CODE: TokenError =
    TokenError::Grant("the code is unknown, used, expired or another request's; sign in again");

/// Redeems the code for tokens. The code is used up even if the request is refused, unless the
/// database fails.
pub(in crate::issuer) async fn redeem(
    issuer: &Issuer,
    params: &Parameters,
    client_id: &str,
) -> Result<IssuedTokens, TokenError> {
    let code = PlainSecret::presented(params.required("code", MAX_SECRET_BYTES)?).hash();
    let proof = CodeProof {
        client_id,
        // A malformed value counts as a wrong one.
        redirect_uri: params.optional("redirect_uri", redirect::MAX_BYTES).unwrap_or_default(),
        verifier: params.optional("code_verifier", 128).unwrap_or_default(),
    };
    let now = issuer.clock().now_ms();
    let mut tx = issuer.db().begin().await?;
    let Some(row) = authorization::redeem(&mut tx, code, now).await? else {
        return Err(end_session_of_reused_code(issuer, tx, code, now).await?);
    };
    let session = if proof.matches(&row, now) {
        session_start::from_authorization(issuer, &mut tx, &row, now).await?
    } else {
        None
    };
    let Some(session) = session else {
        tx.commit().await?;
        return Err(INVALID_CODE);
    };
    let nonce = row.nonce.as_deref();
    let tokens = issued_tokens::issue(issuer, &mut tx, &session, nonce, None, now).await?;
    tx.commit().await?;
    Ok(tokens)
}

/// The parameters with which the client proves that the code is its own.
struct CodeProof<'a> {
    client_id: &'a str,
    redirect_uri: Option<&'a str>,
    verifier: Option<&'a str>,
}

impl CodeProof<'_> {
    fn matches(&self, row: &RedeemedAuthorization, now: i64) -> bool {
        row.code_expires_at.is_some_and(|end| end > now)
            && row.client_id == self.client_id
            && self.redirect_uri == Some(row.redirect_uri.as_str())
            && self.verifier.is_some_and(|verifier| verifies(verifier, &row.code_challenge))
    }
}

/// Whether the code challenge belongs to this verifier (S256).
fn verifies(verifier: &str, challenge: &str) -> bool {
    let is_verifier = (43..=128).contains(&verifier.len())
        && verifier.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
    let made = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
    is_verifier && bool::from(made.as_bytes().ct_eq(challenge.as_bytes()))
}

/// Handles a code that cannot be redeemed. If it was redeemed before, it has leaked, so the session
/// that it started is ended (RFC 6749 section 4.1.2).
async fn end_session_of_reused_code(
    issuer: &Issuer,
    mut tx: Tx,
    code: SecretHash,
    now: i64,
) -> sqlx::Result<TokenError> {
    let Some(session_id) = authorization::find_session(&mut tx, code).await? else {
        return Ok(INVALID_CODE);
    };
    let ended = sessions::end(&mut tx, session_id, now, "code used again").await?;
    if let Some(user_id) = ended {
        let event = Event {
            user_id: Some(user_id),
            session_id: Some(session_id),
            ..Event::refused(Action::CodeReuse, "the code was used again; its session is ended")
        };
        audit::record(&mut tx, issuer.clock(), event).await?;
    }
    tx.commit().await?;
    if ended.is_some() {
        issuer.metrics().action(Action::CodeReuse.as_str(), "refused");
    }
    Ok(INVALID_CODE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc_verifies() {
        // RFC 7636 appendix B.
        let challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
        assert!(verifies("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", challenge));
        assert!(!verifies("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXK", challenge));
        assert!(!verifies(challenge, challenge), "plain");
        assert!(!verifies("", challenge));
    }

    #[test]
    fn a_malformed_verifier_does_not_match_even_its_own_challenge() {
        for verifier in ["short".to_owned(), "x".repeat(129), "ä".repeat(30), " ".repeat(50)] {
            let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
            assert!(!verifies(&verifier, &challenge), "{verifier}");
        }
    }
}
