//! Refresh tokens: each works once and brings its successor (RFC 9700 section 4.14.2).
//!
//! One that is used again is a sign that somebody else has it, and its session ends. The exception is
//! an answer that was lost: within a short grace the client gets one more successor, as long as none
//! of the successors was used. The first successor that is used makes its siblings void. Using a void
//! one ends the session, so two chains never grow from one token.
//!
//! Refreshes of one session run one after another, because each holds the row of the session.

use uuid::Uuid;

use super::{
    Issuer,
    connector::check,
    parameters::Parameters,
    token::{self, Granted, MOST_TOKEN_BYTES, TokenError},
};
use crate::{
    audit::{self, Action, Event},
    db::{Db, Tx},
    identity::session,
    on_engine,
    secret::{PlainSecret, SecretHash},
};

/// What every refresh token begins with.
pub(super) const PREFIX: &str = "tbr_";

/// Successors of one token at most, which bounds the rows that a client in a loop leaves.
const MAX_SUCCESSORS: i64 = 16;

/// When a client that retried too often may retry again, in seconds: well before the grace ends, because a use
/// after it ends the session.
const RETRY_SECONDS: u64 = 1;

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
    // A token that nobody knows costs a read, not a transaction that writes.
    let Some(session_id) = session_of(issuer.db(), token).await? else { return Err(WORTHLESS) };
    check::before_refresh(issuer, token).await?;
    let (now, settings) = (issuer.clock().now_ms(), issuer.settings());
    let mut tx = issuer.db().begin().await?;
    let idle_expires_at = now + i64::from(settings.session_idle_seconds) * 1000;
    // First of all, because it locks the row of the session.
    let Some(session) = session::slide(&mut tx, session_id, now, idle_expires_at).await? else {
        return Err(WORTHLESS);
    };
    let Some(presented) = presented(&mut tx, token).await? else { return Err(WORTHLESS) };
    match presented.judge(now, i64::from(settings.refresh_grace_seconds) * 1000) {
        Verdict::First => spend(&mut tx, token, now).await?,
        Verdict::Retry => {}
        Verdict::TooMany(seconds) => return Err(TokenError::TooMany(seconds)),
        Verdict::Reuse => return Err(used_again(issuer, tx, session_id, now).await?),
    }
    // Another client's, or too much asked: the transaction is dropped and the token not spent.
    if session.client_id != client_id {
        return Err(WORTHLESS);
    }
    if !asked.split(' ').filter(|scope| !scope.is_empty()).all(|scope| session.has_scope(scope)) {
        return Err(TokenError::Scope);
    }
    let granted = token::grant(issuer, &mut tx, &session, None, Some(token), now).await?;
    tx.commit().await?;
    Ok(granted)
}

/// What a use of a refresh token is.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Its first use.
    First,
    /// A retry of a client that did not get the answer.
    Retry,
    /// One retry too many; the next may come after so many seconds.
    TooMany(u64),
    /// A use by somebody who must not have the token.
    Reuse,
}

/// A refresh token that was presented, and its relatives.
#[derive(Debug, sqlx::FromRow)]
struct Presented {
    used_at: Option<i64>,
    /// How many successors it has.
    successors: i64,
    /// How many of them were used.
    used_successors: i64,
    /// How many other successors of its parent were used.
    used_siblings: i64,
}

impl Presented {
    fn judge(&self, now: i64, grace_ms: i64) -> Verdict {
        if self.used_siblings > 0 || self.used_successors > 0 {
            return Verdict::Reuse;
        }
        let Some(used_at) = self.used_at else { return Verdict::First };
        let left = used_at + grace_ms - now;
        if left <= 0 {
            Verdict::Reuse
        } else if self.successors >= MAX_SUCCESSORS {
            Verdict::TooMany(RETRY_SECONDS)
        } else {
            Verdict::Retry
        }
    }
}

/// The token was used again after the grace, or one of its relatives was used: its session ends.
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
INSERT INTO refresh_tokens (token_hash, session_id, issued_at, parent_hash) \
VALUES ($1, $2, $3, $4)";

/// Makes a refresh token known, as a successor of `parent` unless it is the first of its session.
pub(super) async fn add(
    tx: &mut Tx,
    token: SecretHash,
    session_id: Uuid,
    parent: Option<SecretHash>,
    now: i64,
) -> sqlx::Result<()> {
    let parent = parent.as_ref().map(SecretHash::as_bytes);
    on_engine!(tx.connection(), c => sqlx::query(ADD)
        .bind(token.as_bytes()).bind(session_id).bind(now).bind(parent)
        .execute(c).await.map(drop))
}

const PRESENTED: &str = "\
SELECT used_at, \
  (SELECT COUNT(*) FROM refresh_tokens s WHERE s.parent_hash = t.token_hash) AS successors, \
  (SELECT COUNT(*) FROM refresh_tokens s WHERE s.parent_hash = t.token_hash \
     AND s.used_at IS NOT NULL) AS used_successors, \
  (SELECT COUNT(*) FROM refresh_tokens s WHERE s.parent_hash = t.parent_hash \
     AND s.token_hash <> t.token_hash AND s.used_at IS NOT NULL) AS used_siblings \
FROM refresh_tokens t WHERE token_hash = $1";

/// The token and its relatives, as they are while the row of the session is locked.
async fn presented(tx: &mut Tx, token: SecretHash) -> sqlx::Result<Option<Presented>> {
    on_engine!(tx.connection(), c => sqlx::query_as(PRESENTED)
        .bind(token.as_bytes()).fetch_optional(c).await)
}

const SPEND: &str = "UPDATE refresh_tokens SET used_at = $2 WHERE token_hash = $1";

async fn spend(tx: &mut Tx, token: SecretHash, now: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(SPEND)
        .bind(token.as_bytes()).bind(now).execute(c).await.map(drop))
}

const SESSION_OF: &str = "SELECT session_id FROM refresh_tokens WHERE token_hash = $1";

/// The session of a refresh token, used or not.
pub(super) async fn session_of(db: &Db, token: SecretHash) -> sqlx::Result<Option<Uuid>> {
    on_engine!(db.reader(), pool => sqlx::query_scalar(SESSION_OF)
        .bind(token.as_bytes()).fetch_optional(pool).await)
}

const FORGET: &str = "\
DELETE FROM refresh_tokens WHERE session_id IN (SELECT id FROM sessions \
  WHERE ended_at <= $1 OR idle_expires_at <= $1 OR expires_at <= $1)";

/// Forgets the tokens of sessions that were over by this time.
pub(super) async fn forget(tx: &mut Tx, before: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(FORGET).bind(before).execute(c).await.map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE_MS: i64 = 30_000;

    fn judge(used_at: Option<i64>, successors: [i64; 2], used_siblings: i64) -> Verdict {
        let [successors, used_successors] = successors;
        Presented { used_at, successors, used_successors, used_siblings }.judge(100_000, GRACE_MS)
    }

    #[test]
    fn a_use_is_judged_by_the_token_and_its_relatives() {
        let (late, in_time) = (Some(70_000), Some(70_001));
        assert_eq!(judge(None, [0, 0], 0), Verdict::First);
        assert_eq!(judge(None, [0, 0], 1), Verdict::Reuse, "a void sibling");
        assert_eq!(judge(in_time, [1, 0], 0), Verdict::Retry);
        assert_eq!(judge(in_time, [0, 0], 0), Verdict::Retry, "its successors are not known");
        assert_eq!(judge(in_time, [MAX_SUCCESSORS, 0], 0), Verdict::TooMany(1));
        assert_eq!(judge(in_time, [2, 1], 0), Verdict::Reuse, "a successor was used");
        assert_eq!(judge(in_time, [1, 0], 1), Verdict::Reuse, "a sibling was used");
        assert_eq!(judge(late, [1, 0], 0), Verdict::Reuse);
        let at_once =
            Presented { used_at: Some(5), successors: 1, used_successors: 0, used_siblings: 0 };
        assert_eq!(at_once.judge(5, 0), Verdict::Reuse, "without a grace");
    }
}
