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

pub use kubeconfig::{Mode, Parts, TokenSource, render};
pub use ledger::{Ledger, NotRecorded};
pub use records::RevokedCredential;
pub(crate) use records::revoked_after;
pub use revoke::RevokeError;

use crate::{
    access::{Permit, ReadWorkspace},
    audit::{self, Action},
    base::{clock::Clock, db::Db, telemetry::Metrics},
    cluster::{Cluster, ClusterError, IssuedToken, TokenSecret},
    workspace::{Active, Workspaces},
};

/// How long an API server may accept a token after its expiry, in milliseconds: 60 s of leeway and
/// 10 s in its token cache.
const TOKEN_GRACE_MS: i64 = 70_000;

/// Issues and revokes credentials. Clones share everything.
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

/// Why no credential was issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The cluster failed.
    #[error("the cluster failed")]
    Cluster(#[from] ClusterError),
    /// The issuance could not be recorded; the token was dropped.
    #[error("the audit row could not be written")]
    Ledger(#[from] NotRecorded),
}

/// A credential that is recorded and may be returned. Its `Debug` output does not show the token.
#[derive(Debug)]
pub struct Issued {
    /// The bearer token for the Kubernetes API.
    pub token: SecretString,
    /// Expiry of the token, by the cluster's clock.
    pub expires_at: jiff::Timestamp,
    /// Seconds from the issuance to the expiry.
    pub lifetime: u32,
    /// The `jti` claim of the token.
    pub credential_id: String,
    /// The workspace that the token is for.
    pub workspace_id: Uuid,
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
    /// The same service on another share of the database connections. The ledger stays the same.
    #[must_use]
    pub fn with_db(&self, db: &Db) -> Self {
        Self { db: db.clone(), workspaces: self.workspaces.with_db(db), ..self.clone() }
    }

    /// A service for these workspaces with this ledger. With `bind` every token gets its own
    /// Secret.
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
    /// The cluster failed, or the record could not be made durable. No token is returned then.
    pub async fn issue(&self, active: &Active, kind: CredentialKind) -> Result<Issued, IssueError> {
        let action = audit_action(kind);
        let caller = active.permit().caller();
        let workspace_id = active.permit().workspace().unwrap_or_default();
        let (namespace, uid) = (active.namespace(), active.service_account_uid());
        let secret =
            if self.bind { self.create_secret(namespace, workspace_id).await? } else { None };
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
            event: event.with_request_context(&self.clock),
        };
        let recorded = self.ledger.record(entry).await;
        self.metrics.action(action, if recorded.is_ok() { "success" } else { "refused" });
        recorded?;
        Ok(Issued { token, expires_at, lifetime, credential_id, workspace_id })
    }

    /// Creates a Secret for one token. `None` if the tenant's quota has no room for it or the
    /// broker may not create it. A token without a Secret can be revoked too, but only together
    /// with the others.
    async fn create_secret(
        &self,
        namespace: &str,
        workspace_id: Uuid,
    ) -> Result<Option<TokenSecret>, IssueError> {
        let name = format!("{TOKEN_SECRET_PREFIX}{}", self.clock.random_id());
        let now_ms = self.clock.now_ms();
        let new = secrets::NewSecret { name: name.clone(), workspace_id, now_ms };
        if !self.ledger.reserve_secret(new).await? {
            tracing::warn!(
                workspace = %workspace_id,
                "token not bound to a Secret: the workspace has too many"
            );
            return Ok(None);
        }
        match self.cluster().create_token_secret(namespace, workspace_id, &name).await {
            Ok(secret) => Ok(Some(secret)),
            Err(error @ (ClusterError::Refused(_) | ClusterError::Conflict(_))) => {
                tracing::warn!(
                    workspace = %workspace_id, error = crate::base::error_chain(&error),
                    "token not bound to a Secret: the quota is used up, or the right is missing"
                );
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A page of a workspace's credentials, newest first, after the credential with this id.
    /// Without `all` the page has live credentials only.
    ///
    /// # Errors
    /// The database failed.
    pub async fn list(
        &self,
        permit: &Permit<ReadWorkspace>,
        all: bool,
        after: Option<&str>,
        limit: usize,
    ) -> sqlx::Result<CredentialPage> {
        let now = self.clock.now_ms();
        let workspace = permit.workspace().unwrap_or_default();
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

    fn cluster(&self) -> &Cluster {
        self.workspaces.cluster()
    }
}
