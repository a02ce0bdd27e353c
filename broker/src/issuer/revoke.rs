//! `POST /oauth2/revoke` (RFC 7009): the person signs out.

use poem::{
    Request, Response,
    http::{StatusCode, header},
};

use super::{
    Issuer,
    parameters::Parameters,
    refresh,
    token::{self, MOST_TOKEN_BYTES, TokenError},
};
use crate::{
    audit::{self, Action, Event},
    identity::session,
    problem::note,
    secret::PlainSecret,
};

/// Ends the session of a token, whichever kind it is; of a token with less than its session, that token. 200 also for a token that nobody knows
/// (section 2.2), so that there is nothing to learn here.
pub(super) async fn revoke(issuer: Issuer, mut request: Request) -> Response {
    match end(&issuer, &mut request).await {
        Ok(()) => Response::builder()
            .status(StatusCode::OK)
            .header(header::CACHE_CONTROL, "no-store")
            .finish(),
        Err(error) => error.response(),
    }
}

async fn end(issuer: &Issuer, request: &mut Request) -> Result<(), TokenError> {
    let sent = Parameters::of_body(request).await?;
    sent.refuse_repeated()?;
    token::client(request, &sent)?;
    // What is too long is no token of ours; the hint is not needed, the prefix says it.
    let Some(token) = sent.optional("token", super::parameters::MOST_BYTES)? else {
        return Err(super::parameters::ParameterFault::Missing("token").into());
    };
    if token.len() > MOST_TOKEN_BYTES {
        return Ok(());
    }
    let hash = PlainSecret::presented(token).hash();
    let session_id = if token.starts_with(session::ACCESS_PREFIX) {
        match session::of_access_token(issuer.db(), hash).await? {
            // Whoever has a token for the gateway alone decides over that and not over the session.
            Some((_, Some(_))) => {
                let mut tx = issuer.db().begin().await?;
                session::end_access_token(&mut tx, hash).await?;
                return Ok(tx.commit().await?);
            }
            found => found.map(|(session_id, _)| session_id),
        }
    } else {
        refresh::session_of(issuer.db(), hash).await?
    };
    let Some(session_id) = session_id else { return Ok(()) };
    let mut tx = issuer.db().begin().await?;
    let now = issuer.clock().now_ms();
    let Some(user_id) = session::end(&mut tx, session_id, now, "signed out").await? else {
        return Ok(());
    };
    let event = Event {
        user_id: Some(user_id),
        session_id: Some(session_id),
        ..Event::success(Action::SignOut)
    };
    audit::record(&mut tx, issuer.clock(), event).await?;
    tx.commit().await?;
    issuer.metrics().action(Action::SignOut, "success");
    note("user_id", user_id);
    note("session_id", session_id);
    Ok(())
}
