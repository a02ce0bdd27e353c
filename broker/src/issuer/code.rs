//! A code becomes a session, once (RFC 6749 section 4.1.3, RFC 7636 section 4.6).

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::{
    Issuer,
    authorization::{self, Redeemed},
    begin,
    parameters::Parameters,
    redirect,
    token::{self, Granted, MOST_TOKEN_BYTES, TokenError},
};
use crate::{
    audit::{self, Action, Event},
    db::Tx,
    identity::session,
    secret::{PlainSecret, SecretHash},
};

/// One answer for every code that is worth nothing.
const WORTHLESS: TokenError =
    TokenError::Grant("the code is unknown, used, expired or another request's; sign in again");

/// Redeems the code. Whatever comes of it, the code is used up, unless the database fails.
pub(super) async fn exchange(
    issuer: &Issuer,
    sent: &Parameters,
    client_id: &str,
) -> Result<Granted, TokenError> {
    let code = PlainSecret::presented(sent.required("code", MOST_TOKEN_BYTES)?).hash();
    let proof = Proof {
        client_id,
        // What is malformed is as wrong as what is another's.
        redirect_uri: sent.optional("redirect_uri", redirect::MOST_BYTES).unwrap_or_default(),
        verifier: sent.optional("code_verifier", 128).unwrap_or_default(),
    };
    let now = issuer.clock().now_ms();
    let mut tx = issuer.db().begin().await?;
    let Some(row) = authorization::redeem(&mut tx, code, now).await? else {
        return Err(used_again(issuer, tx, code, now).await?);
    };
    let session = if proof.fits(&row, now) {
        begin::session(issuer, &mut tx, &row, now).await?
    } else {
        None
    };
    let Some(session) = session else {
        tx.commit().await?;
        return Err(WORTHLESS);
    };
    let granted = token::grant(issuer, &mut tx, &session, row.nonce.as_deref(), None, now).await?;
    tx.commit().await?;
    Ok(granted)
}

/// What the client sends along to prove that the code is its own.
struct Proof<'a> {
    client_id: &'a str,
    redirect_uri: Option<&'a str>,
    verifier: Option<&'a str>,
}

impl Proof<'_> {
    fn fits(&self, row: &Redeemed, now: i64) -> bool {
        row.code_expires_at.is_some_and(|end| end > now)
            && row.client_id == self.client_id
            && self.redirect_uri == Some(row.redirect_uri.as_str())
            && self.verifier.is_some_and(|verifier| verifies(verifier, &row.code_challenge))
    }
}

/// Whether the challenge was made of this verifier (S256).
fn verifies(verifier: &str, challenge: &str) -> bool {
    let is_verifier = (43..=128).contains(&verifier.len())
        && verifier.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
    let made = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
    is_verifier && bool::from(made.as_bytes().ct_eq(challenge.as_bytes()))
}

/// The code is not there to be redeemed. If it was redeemed before, somebody has it who should not:
/// its session ends (RFC 6749 section 4.1.2).
async fn used_again(
    issuer: &Issuer,
    mut tx: Tx,
    code: SecretHash,
    now: i64,
) -> sqlx::Result<TokenError> {
    let Some(session_id) = authorization::session_of(&mut tx, code).await? else {
        return Ok(WORTHLESS);
    };
    let ended = session::end(&mut tx, session_id, now, "code used again").await?;
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
        issuer.metrics().action(Action::CodeReuse, "refused");
    }
    Ok(WORTHLESS)
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
    fn a_verifier_that_is_none_does_not_verify_even_its_own_challenge() {
        for verifier in ["short".to_owned(), "x".repeat(129), "ä".repeat(30), " ".repeat(50)] {
            let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
            assert!(!verifies(&verifier, &challenge), "{verifier}");
        }
    }
}
