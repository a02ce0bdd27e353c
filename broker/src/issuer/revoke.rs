//! The revocation endpoint, `POST /oauth2/revoke` (RFC 7009): it signs the user out.

use poem::{
    Request, Response,
    http::{StatusCode, header},
};

use super::{
    Issuer,
    parameters::{self, MAX_SECRET_BYTES, ParameterError, Parameters},
    tokens::{public_client::public_client, refresh_tokens, token_error::TokenError},
};
use crate::{
    audit::{self, Action, Event},
    base::{
        request_context::{Field, record_field},
        secret::PlainSecret,
    },
    identity::sessions,
};

/// Ends the session of an access token or refresh token. A token with a narrower scope than its
/// session is revoked alone. The response is 200 for an unknown token as well (section 2.2), so
/// that it reveals nothing.
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
    let params = Parameters::from_body(request).await?;
    params.refuse_repeated()?;
    public_client(request, &params)?;
    // A longer text is no token of this issuer. The hint is not needed, because the prefix tells
    // the kind.
    let Some(token) = params.optional("token", parameters::MAX_BYTES)? else {
        return Err(ParameterError::Missing("token").into());
    };
    if token.len() > MAX_SECRET_BYTES {
        return Ok(());
    }
    let hash = PlainSecret::presented(token).hash();
    let session_id = if token.starts_with(sessions::ACCESS_PREFIX) {
        match sessions::find_by_access_token(issuer.db(), hash).await? {
            // A token for the gateway only can revoke itself and not the session.
            Some((_, Some(_))) => {
                let mut tx = issuer.db().begin().await?;
                sessions::end_access_token(&mut tx, hash).await?;
                return Ok(tx.commit().await?);
            }
            found => found.map(|(session_id, _)| session_id),
        }
    } else {
        refresh_tokens::find_session(issuer.db(), hash).await?
    };
    let Some(session_id) = session_id else { return Ok(()) };
    let mut tx = issuer.db().begin().await?;
    let now = issuer.clock().now_ms();
    let Some(user_id) = sessions::end(&mut tx, session_id, now, "signed out").await? else {
        return Ok(());
    };
    let event = Event {
        user_id: Some(user_id),
        session_id: Some(session_id),
        ..Event::success(Action::SignOut)
    };
    audit::record(&mut tx, issuer.clock(), event).await?;
    tx.commit().await?;
    issuer.metrics().action(Action::SignOut.as_str(), "success");
    record_field(Field::UserId, user_id);
    record_field(Field::SessionId, session_id);
    Ok(())
}
