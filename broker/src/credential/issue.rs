//! Issuance of one credential.

use secrecy::SecretString;
use tenant_shared::{CredentialKind, TOKEN_SECRET_PREFIX};
use uuid::Uuid;

use super::{Credentials, NotRecorded, audit_action, ledger, secrets};
use crate::{
    access::{Permit, UseWorkspace},
    audit,
    base::error_chain,
    cluster::{Cluster, ClusterError, IssuedToken, TokenSecret},
    workspace::{Active, WorkspaceError, WorkspaceRow},
};

/// Maximum number of attempts of an issuance whose ServiceAccount is replaced meanwhile.
const MAX_ATTEMPTS: usize = 4;

/// Error of an issuance.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The workspace is not active, or its ServiceAccount could not be replaced.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The cluster failed.
    #[error("the cluster failed")]
    Cluster(#[from] ClusterError),
    /// The issuance could not be recorded; the token was dropped.
    #[error("the audit row could not be written")]
    Ledger(#[from] NotRecorded),
}

impl IssueError {
    /// Whether a replaced ServiceAccount causes this error too.
    fn may_be_caused_by_rotation(&self) -> bool {
        matches!(
            self,
            Self::Ledger(NotRecorded::Changed)
                | Self::Cluster(ClusterError::Conflict(_) | ClusterError::NotFound(_))
        )
    }
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

impl Credentials {
    /// Issues a token for a workspace, and returns the proof that it was issued with. A rotation of
    /// the ServiceAccount is completed before; if the ServiceAccount is replaced meanwhile, the
    /// issuance is retried with the new one.
    ///
    /// # Errors
    /// The workspace is not active, the cluster failed, or the record could not be made durable. No
    /// token is returned then.
    #[tracing::instrument(level = "debug", skip_all, fields(?kind))]
    pub async fn issue(
        &self,
        mut permit: Permit<UseWorkspace, WorkspaceRow>,
        kind: CredentialKind,
    ) -> Result<(Active, Issued), IssueError> {
        for _ in 0..MAX_ATTEMPTS {
            permit = self.workspaces.complete_rotation(permit).await?;
            let active = self.workspaces.active(&permit)?;
            let error = match self.issue_once(&active, kind).await {
                Ok(issued) => return Ok((active, issued)),
                Err(error) => error,
            };
            permit = self
                .workspaces
                .authorize::<UseWorkspace>(permit.caller(), active.workspace_id())
                .await?;
            let is_replaced = !permit.resource().issues_with(active.service_account_uid());
            if !(is_replaced && error.may_be_caused_by_rotation()) {
                return Err(error);
            }
        }
        Err(WorkspaceError::Rotating.into())
    }

    async fn issue_once(
        &self,
        active: &Active,
        kind: CredentialKind,
    ) -> Result<Issued, IssueError> {
        let action = audit_action(kind);
        let caller = active.permit().caller();
        let workspace_id = active.workspace_id();
        let (namespace, uid) = (active.namespace(), active.service_account_uid());
        let cluster = self.cluster_of(active.permit().resource())?;
        // In the home of a tenant there are ServiceAccounts only.
        let secret = if self.bind && active.permit().resource().tenant_name().is_none() {
            self.create_secret(cluster, namespace, workspace_id).await?
        } else {
            None
        };
        let IssuedToken { token, expires_at, lifetime, credential_id } = cluster
            .request_token(namespace, active.service_account(), uid, secret.as_ref())
            .await?;
        let event = audit::Event {
            workspace_id: Some(workspace_id),
            credential_id: Some(credential_id.clone()),
            ..caller.event(action)
        };
        let entry = ledger::LedgerEntry {
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
        let outcome = if recorded.is_ok() { "success" } else { "refused" };
        self.metrics.action(action.as_str(), outcome);
        recorded?;
        Ok(Issued { token, expires_at, lifetime, credential_id, workspace_id })
    }

    /// Creates a Secret for one token. `None` if the tenant's quota has no room for it or the
    /// broker may not create it. A token without a Secret can be revoked too, but only together
    /// with the others.
    async fn create_secret(
        &self,
        cluster: &Cluster,
        namespace: &str,
        workspace_id: Uuid,
    ) -> Result<Option<TokenSecret>, IssueError> {
        let name = format!("{TOKEN_SECRET_PREFIX}{}", self.clock.random_id());
        let now_ms = self.clock.now_ms();
        let new = secrets::NewSecret { name: name.clone(), workspace_id, now_ms };
        if !self.ledger.reserve_secret(new).await? {
            tracing::warn!(
                workspace_id = %workspace_id,
                "token not bound to a Secret: the workspace has too many"
            );
            return Ok(None);
        }
        match cluster.create_token_secret(namespace, workspace_id, &name).await {
            Ok(secret) => Ok(Some(secret)),
            Err(error @ (ClusterError::Refused(_) | ClusterError::Conflict(_))) => {
                tracing::warn!(
                    workspace_id = %workspace_id, error = error_chain(&error),
                    "token not bound to a Secret: the quota is used up, or the right is missing"
                );
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}
