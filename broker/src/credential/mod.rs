//! Credentials: issuance and revocation of two-hour tokens for active workspaces.
//!
//! The order is a guarantee: the cluster issues the token, the ledger and the audit trail record
//! its id durably, and only then does the broker return it. If the row cannot be written, the token
//! is dropped.
//!
//! A token is valid as long as its ServiceAccount exists, which all tokens of a workspace share.
//! With `cluster.bind_tokens_to_secrets` each token is also bound to an empty Secret of its own, so
//! that it can be revoked alone.

pub mod api;
mod issue;
mod kubeconfig;
mod ledger;
mod records;
mod resolve;
mod revoke;
mod secrets;
mod sweep;
#[cfg(test)]
mod tests;
mod token_cache;

use tenant_shared::{CredentialKind, CredentialPage};

pub use issue::{IssueError, Issued};
pub use kubeconfig::{Parts, TokenSource, render};
pub use ledger::{Ledger, NotRecorded};
pub use records::RevokedCredential;
pub use resolve::{InvalidCredentialId, Issuance, resolve_credential};
pub use revoke::RevokeError;
pub use token_cache::{CachedToken, TokenCache};

use crate::{
    access::{Permit, ReadWorkspace, Resource as _},
    audit::Action,
    base::{clock::Clock, db::Db, telemetry::Metrics},
    cluster::{Cluster, ClusterError, Clusters},
    workspace::{WorkspaceRow, Workspaces},
};

/// How long an API server may accept a token after its expiry, in milliseconds: 60 s of leeway and
/// 10 s in its token cache.
const TOKEN_GRACE_MS: i64 = 70_000;

/// The dependencies of [`Credentials`].
#[derive(Debug)]
pub struct Dependencies {
    /// The database.
    pub db: Db,
    /// Authorizes actions on workspaces, and rotates their ServiceAccounts.
    pub workspaces: Workspaces,
    /// The clusters that workspaces are in.
    pub clusters: Clusters,
    /// Records issuances.
    pub ledger: Ledger,
    /// Source of times and identifiers.
    pub clock: Clock,
    /// Counts audited actions.
    pub metrics: Metrics,
    /// Whether each token is bound to a Secret of its own.
    pub bind: bool,
}

/// Issues and revokes credentials. Clones share everything.
#[derive(Clone, Debug)]
pub struct Credentials {
    db: Db,
    workspaces: Workspaces,
    clusters: Clusters,
    ledger: Ledger,
    clock: Clock,
    metrics: Metrics,
    bind: bool,
}

/// The audit action for an issuance of this kind.
fn audit_action(kind: CredentialKind) -> Action {
    match kind {
        CredentialKind::Kubeconfig => Action::IssueKubeconfig,
        CredentialKind::Gateway => Action::IssueGatewayToken,
        CredentialKind::Exec | CredentialKind::Other => Action::IssueCredential,
    }
}

impl Credentials {
    /// A service with these dependencies.
    pub fn new(dependencies: Dependencies) -> Self {
        let Dependencies { db, workspaces, clusters, ledger, clock, metrics, bind } = dependencies;
        Self { db, workspaces, clusters, ledger, clock, metrics, bind }
    }

    /// The same service on another pool of database connections. The ledger stays the same.
    #[must_use]
    pub fn with_db(&self, db: &Db) -> Self {
        Self { db: db.clone(), workspaces: self.workspaces.with_db(db), ..self.clone() }
    }

    /// Waits until the writer of the ledger ends by itself, which only a panic causes. Nothing is
    /// issued then.
    pub async fn writer_ended(&self) {
        self.ledger.writer_ended().await;
    }

    /// A page of a workspace's credentials, newest first, after the credential with this id.
    /// Without `all` the page has live credentials only.
    ///
    /// # Errors
    /// The database failed.
    pub async fn list(
        &self,
        permit: &Permit<ReadWorkspace, WorkspaceRow>,
        all: bool,
        after: Option<&str>,
        limit: usize,
    ) -> sqlx::Result<CredentialPage> {
        let now = self.clock.now_ms();
        let workspace = permit.resource().id();
        // One row more than requested shows whether there is a next page.
        let mut rows = records::list(&self.db, workspace, all, now, after, limit + 1).await?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next_cursor = rows.last().filter(|_| more).map(|row| row.credential_id.clone());
        Ok(CredentialPage {
            items: rows.into_iter().map(|row| row.into_api(now)).collect(),
            next_cursor,
        })
    }

    /// Credentials that were revoked after this time, in milliseconds since 1970.
    ///
    /// # Errors
    /// The database failed.
    pub async fn revoked_since(&self, since: i64) -> sqlx::Result<Vec<RevokedCredential>> {
        records::revoked_since(&self.db, since).await
    }

    /// Whether a credential was revoked.
    ///
    /// # Errors
    /// The database failed.
    pub async fn is_revoked(&self, id: &str) -> sqlx::Result<bool> {
        records::is_revoked(&self.db, id).await
    }

    /// The cluster that a workspace is in.
    fn cluster_of(&self, workspace: &WorkspaceRow) -> Result<&Cluster, ClusterError> {
        self.clusters.get(workspace.cluster())
    }
}
