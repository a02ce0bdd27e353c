//! Polling of a device for its tokens (RFC 8628 sections 3.4 and 3.5).

use super::rows;
use crate::{
    base::secret::PlainSecret,
    issuer::{
        Issuer, authorization,
        parameters::{MAX_SECRET_BYTES, Parameters},
        sign_in::session_start,
        tokens::{
            issued_tokens::{self, IssuedTokens},
            token_error::TokenError,
        },
    },
};

/// One response for every invalid device code.
const INVALID_DEVICE_CODE: TokenError =
    TokenError::Grant("the device code is unknown, used or another client's; sign in again");

/// Redeems a device code for tokens once the user has allowed it.
pub(in crate::issuer) async fn redeem(
    issuer: &Issuer,
    sent: &Parameters,
    client_id: &str,
) -> Result<IssuedTokens, TokenError> {
    let code = PlainSecret::presented(sent.required("device_code", MAX_SECRET_BYTES)?).hash();
    let now = issuer.clock().now_ms();
    let mut tx = issuer.db().begin().await?;
    let Some(polled) = rows::poll(&mut tx, code, now).await? else {
        let known = rows::slow_down(&mut tx, code, now).await?;
        tx.commit().await?;
        return Err(if known { TokenError::SlowDown } else { INVALID_DEVICE_CODE });
    };
    let refusal = if polled.client_id != client_id || polled.redeemed_at.is_some() {
        Some(INVALID_DEVICE_CODE)
    } else if polled.decision.as_deref() == Some("denied") {
        Some(TokenError::AccessDenied)
    } else if polled.expires_at <= now {
        Some(TokenError::ExpiredToken)
    } else if polled.decision.is_none() {
        Some(TokenError::AuthorizationPending)
    } else {
        None
    };
    if let Some(refusal) = refusal {
        // The poll counts even if it is refused.
        tx.commit().await?;
        return Err(refusal);
    }
    if !rows::redeem(&mut tx, code, now).await? {
        return Err(INVALID_DEVICE_CODE);
    }
    let id = polled.authorization_id.unwrap_or_default();
    let Some(row) = authorization::redeem_by_id(&mut tx, id, now).await? else {
        return Err(INVALID_DEVICE_CODE);
    };
    let Some(session) = session_start::from_authorization(issuer, &mut tx, &row, now).await? else {
        tx.commit().await?;
        return Err(INVALID_DEVICE_CODE);
    };
    let granted = issued_tokens::issue(issuer, &mut tx, &session, None, None, now).await?;
    tx.commit().await?;
    Ok(granted)
}
