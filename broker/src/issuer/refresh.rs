//! Refresh tokens: each works once and brings its successor (RFC 9700 section 4.14.2).
//!
//! One that is used again is a sign that somebody else has it, and its session ends. Not within a
//! short grace: two processes of one person may refresh at once, and an answer may be lost on its
//! way; then the session gets one more successor.

use uuid::Uuid;

use super::{
    Issuer,
    connector::check,
    parameters::Parameters,
    token::{self, Granted, MOST_TOKEN_BYTES, TokenError},
};
use crate::{
    audit::{self, Action, Event},
    db::Tx,
    identity::session,
    on_engine,
    secret::{PlainSecret, SecretHash},
};

/// What every refresh token begins with.
pub(super) const PREFIX: &str = "tbr_";

/// One answer for every refresh token that is worth nothing.
const WORTHLESS: TokenError = TokenError::Grant("the session is over; sign in again");

/// Brings new tokens for a refresh token, and moves the idle end of its session on.
pub(super) async fn exchange(
    issuer: &Issuer,
    sent: &Parameters,
    client_id: &str,
) -> Result<Granted, TokenError> {
    let token = PlainSecret::presented(sent.required("refresh_token", MOST_TOKEN_BYTES)?).hash();
    let asked = sent.optional("scope", 256)?.unwrap_or_default();
    check::before_refresh(issuer, token).await?;
    let (now, settings) = (issuer.clock().now_ms(), issuer.settings());
    let mut tx = issuer.db().begin().await?;
    let session_id = match spend(&mut tx, token, now).await? {
        Some(session_id) => session_id,
        None => match spent(&mut tx, token).await? {
            None => return Err(WORTHLESS),
            Some((session_id, used_at))
                if now - used_at < i64::from(settings.refresh_grace_seconds) * 1000 =>
            {
                session_id
            }
            Some((session_id, _)) => return Err(used_again(issuer, tx, session_id, now).await?),
        },
    };
    let idle_expires_at = now + i64::from(settings.session_idle_seconds) * 1000;
    let Some(session) = session::slide(&mut tx, session_id, now, idle_expires_at).await? else {
        return Err(WORTHLESS);
    };
    // Another client's, or too much asked: the transaction is dropped and the token not spent.
    if session.client_id != client_id {
        return Err(WORTHLESS);
    }
    if !asked.split(' ').filter(|scope| !scope.is_empty()).all(|scope| session.has_scope(scope)) {
        return Err(TokenError::Scope);
    }
    let granted = token::grant(issuer, &mut tx, &session, None, now).await?;
    tx.commit().await?;
    Ok(granted)
}

/// The token was used longer ago than the grace: its session ends.
async fn used_again(
    issuer: &Issuer,
    mut tx: Tx,
    session_id: Uuid,
    now: i64,
) -> sqlx::Result<TokenError> {
    let ended = session::end(&mut tx, session_id, now, "refresh token used again").await?;
    if let Some(user_id) = ended {
        let event = Event {
            user_id: Some(user_id),
            session_id: Some(session_id),
            ..Event::refused(
                Action::RefreshReuse,
                "the refresh token was used again; its session is ended",
            )
        };
        audit::record(&mut tx, issuer.clock(), event).await?;
    }
    tx.commit().await?;
    if ended.is_some() {
        issuer.metrics().action(Action::RefreshReuse, "refused");
    }
    Ok(WORTHLESS)
}

const ADD: &str = "\
INSERT INTO refresh_tokens (token_hash, session_id, issued_at) VALUES ($1, $2, $3)";

/// Makes a refresh token known.
pub(super) async fn add(
    tx: &mut Tx,
    token: SecretHash,
    session_id: Uuid,
    now: i64,
) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(ADD)
        .bind(token.as_bytes()).bind(session_id).bind(now).execute(c).await.map(drop))
}

/// One statement decides who is first; of two that come at once the second finds nothing.
const SPEND: &str = "\
UPDATE refresh_tokens SET used_at = $2 WHERE token_hash = $1 AND used_at IS NULL \
RETURNING session_id";

async fn spend(tx: &mut Tx, token: SecretHash, now: i64) -> sqlx::Result<Option<Uuid>> {
    on_engine!(tx.connection(), c => sqlx::query_scalar(SPEND)
        .bind(token.as_bytes()).bind(now).fetch_optional(c).await)
}

const SPENT: &str = "\
SELECT session_id, used_at FROM refresh_tokens WHERE token_hash = $1 AND used_at IS NOT NULL";

async fn spent(tx: &mut Tx, token: SecretHash) -> sqlx::Result<Option<(Uuid, i64)>> {
    on_engine!(tx.connection(), c => sqlx::query_as(SPENT)
        .bind(token.as_bytes()).fetch_optional(c).await)
}

const SESSION_OF: &str = "SELECT session_id FROM refresh_tokens WHERE token_hash = $1";

/// The session of a refresh token, used or not.
pub(super) async fn session_of(tx: &mut Tx, token: SecretHash) -> sqlx::Result<Option<Uuid>> {
    on_engine!(tx.connection(), c => sqlx::query_scalar(SESSION_OF)
        .bind(token.as_bytes()).fetch_optional(c).await)
}

const FORGET: &str = "\
DELETE FROM refresh_tokens WHERE session_id IN (SELECT id FROM sessions \
  WHERE ended_at <= $1 OR idle_expires_at <= $1 OR expires_at <= $1)";

/// Forgets the tokens of sessions that were over by this time.
pub(super) async fn forget(tx: &mut Tx, before: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(FORGET).bind(before).execute(c).await.map(drop))
}
