//! The audit trail: who did what, recorded in the same transaction as the change itself.
//!
//! Events are a closed catalogue. A row never holds a secret; it names a credential by its `jti`,
//! which the audit log of the cluster shows too. Rows are written when the events happen and are
//! chained shortly afterwards ([`chain`]), so that a later change to a row is detectable.

use std::path::PathBuf;

use tokio::sync::Semaphore;
use tracing::Instrument as _;
use uuid::Uuid;

use crate::{
    base::{
        clock::Clock,
        db::{Db, Tx},
        request_context::{self, spawn_in_request_context},
    },
    on_engine,
};

/// The columns of a [`TrailRow`], for statements that are concatenated at compile time.
macro_rules! columns {
    () => {
        "id, user_id, workspace_id, action, ip_address, created_at, outcome, session_id, \
         credential_id, request_id, reason, subject_user_id, subject_session_id"
    };
}

pub mod api;
mod catalogue;
pub mod chain;
mod export;
mod keys;
mod retention;
#[cfg(test)]
mod tests;
mod trail;

pub use catalogue::Action;
pub use export::ExportPage;
use export::export_page;
pub use keys::{AuditKeyError, AuditKeyFiles, AuditKeys};
pub use retention::prune;
pub use trail::{AuditTrail, Filter, RowWithEmails, Scope, TrailRow, WholeTrail};

/// Settings of the audit trail.
#[derive(Clone, Debug, Default)]
pub struct AuditSettings {
    /// PEM files with EC P-256 keys, at least one in each; the first key signs checkpoints, all of
    /// them verify.
    pub signing_key_files: Vec<PathBuf>,
    /// JSON Web Key Set with public keys that signed earlier checkpoints.
    pub known_keys_file: Option<PathBuf>,
    /// Rows are deleted after this number of days; 0 keeps them forever.
    pub retention_days: u32,
}

/// The outcome of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOutcome {
    /// The action succeeded.
    Success,
    /// The action was refused.
    Refused,
}

/// One event. The address and the request id come from the current request.
#[derive(Clone, Debug)]
pub struct Event {
    /// The action of the catalogue.
    pub action: Action,
    pub outcome: EventOutcome,
    /// The actor, if known: a user who was signed in, or who proved their identity.
    pub user_id: Option<Uuid>,
    /// The user whom the action affected, if that is not the actor.
    pub subject_user_id: Option<Uuid>,
    /// The workspace that the action affected.
    pub workspace_id: Option<Uuid>,
    /// The session in which the actor acted.
    pub session_id: Option<Uuid>,
    /// The session that the action affected, if that is not the session of the actor.
    pub subject_session_id: Option<Uuid>,
    /// The credential (its `jti`) that was issued or revoked.
    pub credential_id: Option<String>,
    /// The reason as text; never a secret.
    pub reason: Option<String>,
}

impl Event {
    /// An event that succeeded; callers add the other fields with struct update syntax.
    pub fn success(action: Action) -> Self {
        Self {
            action,
            outcome: EventOutcome::Success,
            user_id: None,
            subject_user_id: None,
            workspace_id: None,
            session_id: None,
            subject_session_id: None,
            credential_id: None,
            reason: None,
        }
    }

    /// Sets the affected user. The row names them only if they are not the actor.
    #[must_use]
    pub fn to_user(mut self, user_id: Uuid) -> Self {
        self.subject_user_id = (self.user_id != Some(user_id)).then_some(user_id);
        self
    }

    /// Sets the affected session. The row names it only if it is not the session of the actor.
    #[must_use]
    pub fn to_session(mut self, session_id: Uuid) -> Self {
        self.subject_session_id = (self.session_id != Some(session_id)).then_some(session_id);
        self
    }

    /// An event that was refused, with the reason.
    pub fn refused(action: Action, reason: impl Into<String>) -> Self {
        Self {
            outcome: EventOutcome::Refused,
            reason: Some(reason.into()),
            ..Self::success(action)
        }
    }

    /// Adds the id, the time, and the address and request id of the current request, so that
    /// another task can record the event.
    pub fn with_request_context(self, clock: &Clock) -> StampedEvent {
        StampedEvent {
            id: clock.ordered_id(),
            created_at: clock.now_ms(),
            ip_address: request_context::request_address().map(|address| address.to_string()),
            request_id: request_context::request_id(),
            event: self,
        }
    }
}

/// An event with its id, time, client address and request id.
#[derive(Clone, Debug)]
pub struct StampedEvent {
    id: Uuid,
    created_at: i64,
    ip_address: Option<String>,
    request_id: Option<String>,
    event: Event,
}

const INSERT: &str = "\
INSERT INTO audit_logs (id, user_id, workspace_id, action, ip_address, created_at, outcome, \
  session_id, credential_id, request_id, reason, subject_user_id, subject_session_id) \
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";

/// Records an event: it becomes durable with the transaction, or not at all.
///
/// # Errors
/// The database failed; the audited action must not happen then.
pub async fn record(tx: &mut Tx, clock: &Clock, event: Event) -> sqlx::Result<()> {
    record_stamped(tx, &event.with_request_context(clock)).await
}

/// Records an event that already carries its id, time and request context.
///
/// # Errors
/// See [`record`].
pub async fn record_stamped(tx: &mut Tx, stamped: &StampedEvent) -> sqlx::Result<()> {
    let event = &stamped.event;
    let outcome = match event.outcome {
        EventOutcome::Success => "success",
        EventOutcome::Refused => "refused",
    };
    on_engine!(tx.connection(), c => sqlx::query(INSERT)
        .bind(stamped.id)
        .bind(event.user_id)
        .bind(event.workspace_id)
        .bind(event.action.as_str())
        .bind(&stamped.ip_address)
        .bind(stamped.created_at)
        .bind(outcome)
        .bind(event.session_id)
        .bind(&event.credential_id)
        .bind(&stamped.request_id)
        .bind(&event.reason)
        .bind(event.subject_user_id)
        .bind(event.subject_session_id)
        .execute(c).await.map(drop))
}

/// Records an event in a transaction of its own, for refusals that change nothing else.
///
/// # Errors
/// The database failed.
pub async fn record_in_own_tx(db: &Db, clock: &Clock, event: Event) -> sqlx::Result<()> {
    let mut tx = db.begin().await?;
    record(&mut tx, clock, event).await?;
    tx.commit().await
}

/// Refusals that are recorded concurrently. A client may have any number of requests refused, and
/// disconnect each time.
const MAX_CONCURRENT_REFUSALS: usize = 64;

/// Permits to record refusals, of all services of this process.
static REFUSAL_PERMITS: Semaphore = Semaphore::const_new(MAX_CONCURRENT_REFUSALS);

/// Records a refused request in a transaction of its own, with the text of its error as the reason. Once
/// fewer than 64 others are being recorded, the row is written although the client disconnects
/// meanwhile.
///
/// # Errors
/// The database failed.
pub async fn record_refusal(
    db: &Db,
    clock: &Clock,
    event: Event,
    refusal: &(dyn std::fmt::Display + Sync),
) -> sqlx::Result<()> {
    record_refusal_with(&REFUSAL_PERMITS, (db, clock), event, refusal).await
}

async fn record_refusal_with(
    permits: &'static Semaphore,
    (db, clock): (&Db, &Clock),
    event: Event,
    refusal: &(dyn std::fmt::Display + Sync),
) -> sqlx::Result<()> {
    // A request that waits here ends with its client, so the tasks are bounded.
    let permit = permits.acquire().await.map_err(|_| sqlx::Error::WorkerCrashed)?;
    let event =
        Event { outcome: EventOutcome::Refused, reason: Some(refusal.to_string()), ..event };
    let (db, clock) = (db.clone(), clock.clone());
    let recorded = spawn_in_request_context(
        async move {
            let _permit = permit;
            record_in_own_tx(&db, &clock, event).await
        }
        .in_current_span(),
    );
    recorded.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
}
