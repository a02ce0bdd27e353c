//! The end of sessions before their time.

use uuid::Uuid;

use crate::{
    audit::{self, Action, Event},
    base::db::Tx,
    identity::{Caller, Identity},
    on_engine,
};

const END_FOR_USER: &str = "\
UPDATE sessions SET ended_at = $2, ended_why = $3 \
WHERE user_id = $1 AND ended_at IS NULL AND idle_expires_at > $2 AND expires_at > $2 \
  AND ($4 = 0 OR id = $5) AND ($6 = 0 OR id <> $7) RETURNING id";

/// Selection of a user's sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SessionSelector {
    /// The session with this identifier.
    One(Uuid),
    /// All but the session with this identifier.
    AllBut(Uuid),
    /// All sessions of the user.
    All,
}

/// Ends valid sessions of a user immediately; returns the identifiers of those that it ended.
async fn end_for_user(
    tx: &mut Tx,
    user_id: Uuid,
    selector: SessionSelector,
    now: i64,
    reason: &str,
) -> sqlx::Result<Vec<Uuid>> {
    let (one, but) = match selector {
        SessionSelector::One(id) => (Some(id), None),
        SessionSelector::AllBut(id) => (None, Some(id)),
        SessionSelector::All => (None, None),
    };
    let bind = |id: Option<Uuid>| (i64::from(id.is_some()), id.unwrap_or_default());
    let ((by_one, one), (by_but, but)) = (bind(one), bind(but));
    on_engine!(tx.connection(), c => sqlx::query_scalar(END_FOR_USER)
        .bind(user_id).bind(now).bind(reason)
        .bind(by_one).bind(one).bind(by_but).bind(but)
        .fetch_all(c).await)
}

const END: &str = "\
UPDATE sessions SET ended_at = $2, ended_why = $3 WHERE id = $1 AND ended_at IS NULL \
RETURNING user_id";

/// Ends a session immediately; returns its user. `None` if it had ended already.
pub(crate) async fn end(
    tx: &mut Tx,
    id: Uuid,
    now: i64,
    reason: &str,
) -> sqlx::Result<Option<Uuid>> {
    on_engine!(tx.connection(), c => sqlx::query_scalar(END)
        .bind(id).bind(now).bind(reason).fetch_optional(c).await)
}

const END_EVERY: &str = "UPDATE sessions SET ended_at = $1, ended_why = $2 WHERE ended_at IS NULL";
const DELETE_ACCESS_TOKENS: &str = "DELETE FROM access_tokens";

/// The table that [`end_every`] empties.
pub(crate) const ACCESS_TOKENS: &str = "access_tokens";

/// Ends every session of every user and deletes all access tokens. Returns the number of sessions
/// that nobody had ended, expired ones included.
pub(crate) async fn end_every(tx: &mut Tx, now: i64, reason: &str) -> sqlx::Result<u64> {
    on_engine!(tx.connection(), c =>
        sqlx::query(DELETE_ACCESS_TOKENS).execute(c).await.map(drop))?;
    on_engine!(tx.connection(), c => sqlx::query(END_EVERY)
        .bind(now).bind(reason).execute(c).await.map(|done| done.rows_affected()))
}

const ENDED: &str = "SELECT id FROM sessions WHERE ended_at > $1";

impl Identity {
    /// Lists the sessions that somebody ended after this time, in milliseconds since 1970.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn ended_since(&self, since: i64) -> sqlx::Result<Vec<Uuid>> {
        on_engine!(self.db.reader(), pool =>
            sqlx::query_scalar(ENDED).bind(since).fetch_all(pool).await)
    }

    /// Ends sessions of the caller; returns their number.
    ///
    /// # Errors
    /// The database failed; then no session was ended.
    pub(crate) async fn end_own_sessions(
        &self,
        caller: &Caller,
        selector: SessionSelector,
    ) -> sqlx::Result<u32> {
        self.end_sessions_of_user(caller, caller.user_id, selector).await
    }

    /// Ends sessions of a user, requested by the user or by an administrator; returns their number.
    ///
    /// # Errors
    /// The database failed; then no session was ended.
    pub(crate) async fn end_sessions_of_user(
        &self,
        by: &Caller,
        user_id: Uuid,
        selector: SessionSelector,
    ) -> sqlx::Result<u32> {
        let reason = if by.user_id == user_id { "signed out" } else { "ended by an administrator" };
        let mut tx = self.db.begin().await?;
        let now = self.clock.now_ms();
        let ended = end_for_user(&mut tx, user_id, selector, now, reason).await?;
        self.record_ended(&mut tx, user_id, &ended, reason, by).await?;
        tx.commit().await?;
        for _ in &ended {
            self.metrics.action(Action::SignOut.as_str(), "success");
        }
        Ok(u32::try_from(ended.len()).unwrap_or(u32::MAX))
    }

    /// Ends all sessions of a user as part of the caller's transaction.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn end_all_sessions(
        &self,
        tx: &mut Tx,
        by: &Caller,
        user_id: Uuid,
        reason: &str,
    ) -> sqlx::Result<()> {
        let now = self.clock.now_ms();
        let ended = end_for_user(tx, user_id, SessionSelector::All, now, reason).await?;
        self.record_ended(tx, user_id, &ended, reason, by).await
    }

    async fn record_ended(
        &self,
        tx: &mut Tx,
        user_id: Uuid,
        ended: &[Uuid],
        reason: &str,
        by: &Caller,
    ) -> sqlx::Result<()> {
        for session_id in ended {
            let event = Event {
                reason: (by.user_id != user_id).then(|| reason.to_owned()),
                ..by.event(Action::SignOut)
            }
            .to_user(user_id)
            .to_session(*session_id);
            audit::record(tx, &self.clock, event).await?;
        }
        Ok(())
    }
}
