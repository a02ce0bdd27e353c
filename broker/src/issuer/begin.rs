//! A session begins, with what the person who signed in proved.

use super::{Issuer, authorization::Redeemed};
use crate::{
    db::Tx,
    identity::session::{self, Session},
    problem,
};

/// Begins the session that a sign-in was for, and remembers it with the sign-in. `None` if the user
/// may not sign in any more.
pub(super) async fn session(
    issuer: &Issuer,
    tx: &mut Tx,
    row: &Redeemed,
    now: i64,
) -> sqlx::Result<Option<Session>> {
    let settings = issuer.settings();
    let new = session::New {
        id: issuer.clock().random_id(),
        user_id: row.user_id,
        client_id: &row.client_id,
        scope: &row.scope,
        ip_address: problem::request_address().map(|address| address.to_string()),
        user_agent: problem::request_user_agent(),
        auth_time: row.authenticated_at,
        created_at: now,
        idle_expires_at: now + i64::from(settings.session_idle_seconds) * 1000,
        // The session is as old as the sign-in, not as the code's way to the client.
        expires_at: row.authenticated_at + i64::from(settings.session_max_seconds) * 1000,
    };
    let session = session::begin(tx, &new).await?;
    if let Some(session) = &session {
        super::authorization::link(tx, row.id, session.id).await?;
    }
    Ok(session)
}
