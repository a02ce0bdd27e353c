//! Credentials: a two-hour token for an active workspace.
//!
//! The order is the promise: the cluster issues the token, the ledger and the audit trail record
//! its id durably, and only then does it leave. If the row cannot be written the token is dropped.

pub mod api;
mod kubeconfig;
mod ledger;

use secrecy::SecretString;
use uuid::Uuid;

pub use kubeconfig::{Mode, Parts, User, render};
pub use ledger::Ledger;

use crate::{
    audit::{self, Action},
    clock::Clock,
    cluster::{Cluster, ClusterError, IssuedToken},
    telemetry::Metrics,
    workspace::Active,
};

/// Issues credentials. Clones share everything.
#[derive(Clone, Debug)]
pub struct Credentials {
    cluster: Cluster,
    ledger: Ledger,
    clock: Clock,
    metrics: Metrics,
}

/// Why no credential left.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The cluster.
    #[error("the cluster failed")]
    Cluster(#[from] ClusterError),
    /// The row could not be written; the token was dropped.
    #[error("the audit row could not be written")]
    Ledger(#[from] ledger::NotRecorded),
}

/// A credential that is on record and may leave. It does not print.
#[derive(Debug)]
pub struct Issued {
    /// The token.
    pub token: SecretString,
    /// When it ends, by the cluster's clock.
    pub expires_at: jiff::Timestamp,
    /// Seconds from its issuance to its end.
    pub lifetime: u32,
    /// Its `jti`.
    pub credential_id: String,
    /// The workspace it is for.
    pub workspace_id: Uuid,
}

impl Credentials {
    /// Issuing for this cluster with this ledger.
    pub fn new(cluster: Cluster, ledger: Ledger, clock: Clock, metrics: Metrics) -> Self {
        Self { cluster, ledger, clock, metrics }
    }

    /// Issues a token for an active workspace.
    ///
    /// # Errors
    /// The cluster failed, or the record could not be made durable; then no token leaves.
    pub async fn issue(&self, active: &Active, action: Action) -> Result<Issued, IssueError> {
        let caller = active.permit().caller();
        let workspace_id = active.permit().workspace().unwrap_or_default();
        let IssuedToken { token, expires_at, lifetime, credential_id } =
            self.cluster.request_token(active.namespace(), active.service_account_uid()).await?;
        let event = audit::Event {
            user_id: Some(caller.user_id()),
            session_id: Some(caller.session_id()),
            workspace_id: Some(workspace_id),
            credential_id: Some(credential_id.clone()),
            ..audit::Event::success(action)
        };
        let entry = ledger::Entry {
            credential_id: credential_id.clone(),
            workspace_id,
            session_id: caller.session_id(),
            expires_at_ms: expires_at.as_millisecond(),
            issued_at_ms: self.clock.now_ms(),
            event: event.stamped(&self.clock),
        };
        let recorded = self.ledger.record(entry).await;
        self.metrics.action(action, if recorded.is_ok() { "success" } else { "refused" });
        recorded?;
        Ok(Issued { token, expires_at, lifetime, credential_id, workspace_id })
    }
}
