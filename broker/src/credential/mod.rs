//! Credentials: a two-hour token for an active workspace, and taking one back.
//!
//! The order is the promise: the cluster issues the token, the ledger and the audit trail record
//! its id durably, and only then does it leave. If the row cannot be written the token is dropped.
//!
//! A token dies with its ServiceAccount, which all tokens of a workspace share. Where the operator
//! lets the broker (`cluster.bind_tokens_to_secrets`), each is bound to an empty Secret of its own
//! besides, and dies alone.

pub mod api;
mod kubeconfig;
mod ledger;
mod records;
mod revoke;
mod secrets;
mod sweep;
#[cfg(test)]
mod tests;

use secrecy::SecretString;
use tenant_shared::{CredentialKind, CredentialPage, TOKEN_SECRET_PREFIX};
use uuid::Uuid;

pub use kubeconfig::{Mode, Parts, User, render};
pub use ledger::{Ledger, NotRecorded};
pub use records::Revoked;
pub(crate) use records::revoked_after;
pub use revoke::RevokeError;

use crate::{
    access::{Permit, ReadWorkspace},
    audit::{self, Action},
    clock::Clock,
    cluster::{Cluster, ClusterError, IssuedToken, TokenSecret},
    db::Db,
    telemetry::Metrics,
    workspace::{Active, Workspaces},
};

/// How long an API server accepts a token past its end, in milliseconds: 60 s of leeway, 10 s of
/// memory.
const OUTLIVES_MS: i64 = 70_000;

/// Issues credentials and takes them back. Clones share everything.
#[derive(Clone, Debug)]
pub struct Credentials {
    db: Db,
    workspaces: Workspaces,
    ledger: Ledger,
    clock: Clock,
    metrics: Metrics,
    /// Whether each token is bound to a Secret of its own.
    bind: bool,
}

/// Why no credential left.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The cluster.
    #[error("the cluster failed")]
    Cluster(#[from] ClusterError),
    /// The row could not be written; the token was dropped.
    #[error("the audit row could not be written")]
    Ledger(#[from] NotRecorded),
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

/// What the audit trail calls the issuance of this kind.
fn action(kind: CredentialKind) -> Action {
    match kind {
        CredentialKind::Kubeconfig => Action::IssueKubeconfig,
        CredentialKind::Gateway => Action::IssueGatewayToken,
        CredentialKind::Exec | CredentialKind::Other => Action::IssueCredential,
    }
}

impl Credentials {
    /// The same on another share of the database. The ledger stays where it is.
    #[must_use]
    pub fn on(&self, db: &Db) -> Self {
        Self { db: db.clone(), workspaces: self.workspaces.on(db), ..self.clone() }
    }

    /// Issuing for these workspaces with this ledger; with `bind` every token gets a Secret of its
    /// own.
    pub fn new(
        db: Db,
        workspaces: Workspaces,
        ledger: Ledger,
        clock: Clock,
        metrics: Metrics,
        bind: bool,
    ) -> Self {
        Self { db, workspaces, ledger, clock, metrics, bind }
    }

    /// Issues a token for an active workspace.
    ///
    /// # Errors
    /// The cluster failed, or the record could not be made durable; then no token leaves.
    pub async fn issue(&self, active: &Active, kind: CredentialKind) -> Result<Issued, IssueError> {
        let action = action(kind);
        let caller = active.permit().caller();
        let workspace_id = active.permit().workspace().unwrap_or_default();
        let (namespace, uid) = (active.namespace(), active.service_account_uid());
        let secret = if self.bind { self.secret(namespace, workspace_id).await? } else { None };
        let IssuedToken { token, expires_at, lifetime, credential_id } =
            self.cluster().request_token(namespace, uid, secret.as_ref()).await?;
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
            user_id: caller.user_id(),
            session_id: caller.session_id(),
            kind,
            service_account_uid: uid.to_string(),
            secret,
            expires_at_ms: expires_at.as_millisecond(),
            issued_at_ms: self.clock.now_ms(),
            event: event.stamped(&self.clock),
        };
        let recorded = self.ledger.record(entry).await;
        self.metrics.action(action, if recorded.is_ok() { "success" } else { "refused" });
        recorded?;
        Ok(Issued { token, expires_at, lifetime, credential_id, workspace_id })
    }

    /// A Secret for one token. None if the tenant has no room for it or the broker may not make it: a
    /// token without is no less revocable, only not alone.
    async fn secret(
        &self,
        namespace: &str,
        workspace_id: Uuid,
    ) -> Result<Option<TokenSecret>, IssueError> {
        let name = format!("{TOKEN_SECRET_PREFIX}{}", self.clock.random_id());
        let now_ms = self.clock.now_ms();
        let new = secrets::New { name: name.clone(), workspace_id, now_ms };
        if !self.ledger.announce(new).await? {
            tracing::warn!(workspace = %workspace_id, "too many Secrets: a token is bound to none");
            return Ok(None);
        }
        match self.cluster().create_token_secret(namespace, workspace_id, &name).await {
            Ok(secret) => Ok(Some(secret)),
            Err(error @ (ClusterError::Refused(_) | ClusterError::Conflict(_))) => {
                tracing::warn!(
                    workspace = %workspace_id, error = crate::problem::chain(&error),
                    "a token is bound to no Secret: the quota is used up, or the right is missing"
                );
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A page of a workspace's credentials, newest first, after the one of this id; only those that
    /// work unless `all`.
    ///
    /// # Errors
    /// The database's.
    pub async fn list(
        &self,
        permit: &Permit<ReadWorkspace>,
        all: bool,
        after: Option<&str>,
        limit: usize,
    ) -> sqlx::Result<CredentialPage> {
        let now = self.clock.now_ms();
        let workspace = permit.workspace().unwrap_or_default();
        // One more than shown tells whether there is a next page.
        let mut rows = records::list(&self.db, workspace, all, now, after, limit + 1).await?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next_cursor = rows.last().filter(|_| more).map(|row| row.credential_id.clone());
        Ok(CredentialPage {
            items: rows.into_iter().map(|row| row.wire(now)).collect(),
            next_cursor,
        })
    }

    /// Credentials that were revoked after this time, in milliseconds since 1970.
    ///
    /// # Errors
    /// The database's.
    pub async fn revoked_since(&self, since: i64) -> sqlx::Result<Vec<Revoked>> {
        records::revoked_since(&self.db, since).await
    }

    /// Whether a credential was revoked.
    ///
    /// # Errors
    /// The database's.
    pub async fn is_revoked(&self, id: &str) -> sqlx::Result<bool> {
        records::is_revoked(&self.db, id).await
    }

    fn cluster(&self) -> &Cluster {
        self.workspaces.cluster()
    }
}
