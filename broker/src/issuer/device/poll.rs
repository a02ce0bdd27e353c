//! The device asks whether its person has decided (RFC 8628 sections 3.4 and 3.5).

use super::{super::begin, rows};
use crate::{
    issuer::{
        Issuer, authorization,
        parameters::Parameters,
        token::{self, Granted, MOST_TOKEN_BYTES, TokenError},
    },
    secret::PlainSecret,
};

/// One answer for every device code that is worth nothing.
const WORTHLESS: TokenError =
    TokenError::Grant("the device code is unknown, used or another client's; sign in again");

/// Brings tokens once the person has said yes.
pub(in crate::issuer) async fn exchange(
    issuer: &Issuer,
    sent: &Parameters,
    client_id: &str,
) -> Result<Granted, TokenError> {
    let code = PlainSecret::presented(sent.required("device_code", MOST_TOKEN_BYTES)?).hash();
    let now = issuer.clock().now_ms();
    let mut tx = issuer.db().begin().await?;
    let Some(polled) = rows::poll(&mut tx, code, now).await? else {
        let known = rows::slow_down(&mut tx, code, now).await?;
        tx.commit().await?;
        return Err(if known { TokenError::SlowDown } else { WORTHLESS });
    };
    let refusal = if polled.client_id != client_id || polled.redeemed_at.is_some() {
        Some(WORTHLESS)
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
        // That it asked counts all the same.
        tx.commit().await?;
        return Err(refusal);
    }
    if !rows::redeem(&mut tx, code, now).await? {
        return Err(WORTHLESS);
    }
    let id = polled.authorization_id.unwrap_or_default();
    let Some(row) = authorization::redeem_id(&mut tx, id, now).await? else {
        return Err(WORTHLESS);
    };
    let Some(session) = begin::session(issuer, &mut tx, &row, now).await? else {
        tx.commit().await?;
        return Err(WORTHLESS);
    };
    let granted = token::grant(issuer, &mut tx, &session, None, None, now).await?;
    tx.commit().await?;
    Ok(granted)
}
