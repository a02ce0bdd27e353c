//! Revocation of one credential.
//!
//! The decision is recorded first. Then the object that the token is bound to is deleted: its own
//! Secret if it has one, otherwise the workspace's ServiceAccount, which revokes every other token
//! of the workspace too. The sweep finishes what fails in the cluster.

use tenant_shared::{
    CredentialId, CredentialState, Revocation, RevocationState, RevokedBy, TOKEN_CACHE_SECONDS,
};
use uuid::Uuid;

use super::{
    Credentials, TOKEN_GRACE_MS,
    records::{self, CredentialRecord},
    secrets::{self, DueSecret},
};
use crate::{
    access::{Permit, Resource as _, RevokeCredentials},
    audit::{self, Action},
    base::{
        db::Tx,
        error_chain,
        request_context::{Field, record_field},
    },
    cluster::ClusterError,
    identity::Caller,
    workspace::{ROTATION_STEPS, Steps, WorkspaceError, WorkspaceRow},
};

/// Maximum number of ids of other credentials in a response.
const MAX_OTHER_IDS: u32 = 100;
/// Steps of a revocation by Secret after the decision is on record.
const SECRET_STEPS: [&str; 2] = ["delete_secret", "finish"];

/// Error of a revocation.
#[derive(Debug, thiserror::Error)]
pub enum RevokeError {
    /// The workspace has no credential of this id.
    #[error("the workspace has no such credential")]
    Unknown,
    /// The database failed.
    #[error("the database failed")]
    Storage(#[from] sqlx::Error),
}

impl Credentials {
    /// Authorizes the revocation of a credential. A refusal is recorded in the audit trail, unless
    /// there is no such workspace.
    ///
    /// # Errors
    /// The caller may not revoke credentials of the workspace, or must not learn about it; or the
    /// database failed.
    pub async fn authorize_revocation(
        &self,
        caller: &Caller,
        workspace: Uuid,
        id: &CredentialId,
    ) -> Result<Permit<RevokeCredentials, WorkspaceRow>, WorkspaceError> {
        let authorized = self.workspaces.authorize(caller, workspace).await;
        if matches!(authorized, Err(WorkspaceError::Access(_)))
            && self.workspaces.current_status(workspace).await?.is_some()
        {
            let why = format!("the workspace {workspace} is not the caller's");
            self.record_refusal(caller, None, id, &why).await?;
        }
        authorized
    }

    /// Revokes a credential of a workspace. Idempotent: a second call continues with the open
    /// steps.
    ///
    /// # Errors
    /// There is no such credential, or the decision could not be recorded. A step that failed in
    /// the cluster is no error: it is open in the result, and the sweep retries it.
    #[tracing::instrument(level = "debug", skip_all, fields(credential_id = id.as_str()))]
    pub async fn revoke(
        &self,
        permit: &Permit<RevokeCredentials, WorkspaceRow>,
        id: &CredentialId,
        reason: Option<String>,
    ) -> Result<Revocation, RevokeError> {
        let now = self.clock.now_ms();
        let (caller, workspace) = (permit.caller(), permit.resource().id());
        let mut steps = Steps::default();
        let Some(record) = records::find(&self.db, workspace, id.as_str()).await? else {
            let why = "the workspace has no such credential";
            self.record_refusal(caller, Some(workspace), id, why).await?;
            return Err(RevokeError::Unknown);
        };
        // An API server may accept a token for a while after its expiry.
        match record.state(now - TOKEN_GRACE_MS) {
            CredentialState::Live => {
                let event = audit::Event {
                    workspace_id: Some(workspace),
                    credential_id: Some(record.credential_id.clone()),
                    reason,
                    ..caller.event(Action::RevokeCredential)
                };
                steps.run("record", self.record_decision(&record, event, now)).await?;
            }
            CredentialState::Revoked => {}
            state => {
                let why = format!("the credential was {} already", state.as_str());
                self.record_refusal(caller, Some(workspace), id, &why).await?;
                return self.revocation_report(record, RevocationState::Over, None, steps).await;
            }
        }
        self.carry_out(workspace, &record.credential_id, steps).await
    }

    /// Records in the audit trail that the revocation of a credential was refused.
    async fn record_refusal(
        &self,
        caller: &Caller,
        workspace_id: Option<Uuid>,
        id: &CredentialId,
        why: &str,
    ) -> sqlx::Result<()> {
        let event = audit::Event {
            workspace_id,
            credential_id: Some(id.as_str().to_owned()),
            ..caller.event(Action::RevokeCredential)
        };
        self.metrics.action(Action::RevokeCredential.as_str(), "refused");
        audit::record_refusal(&self.db, &self.clock, event, &why).await
    }

    /// Records the decision. Of concurrent calls exactly one records it.
    async fn record_decision(
        &self,
        record: &CredentialRecord,
        event: audit::Event,
        now: i64,
    ) -> sqlx::Result<()> {
        let (workspace, id) = (record.workspace_id, record.credential_id.as_str());
        let mut tx = self.db.begin().await?;
        let decided = match (&record.secret_name, &record.service_account_uid) {
            (Some(secret), _) => {
                let marked = records::mark_revoked(&mut tx, workspace, id, now).await?;
                if marked {
                    secrets::mark_due(&mut tx, secret, now).await?;
                }
                marked
            }
            (None, Some(uid)) => self.begin_rotation(&mut tx, workspace, id, uid, now).await?,
            (None, None) => false,
        };
        if decided {
            audit::record(&mut tx, &self.clock, event).await?;
            tx.commit().await?;
            self.metrics.action(Action::RevokeCredential.as_str(), "success");
        }
        Ok(())
    }

    /// Retires the ServiceAccount with this uid, and marks all its credentials as revoked. The
    /// workspace's row is locked first, so that concurrent calls wait for each other instead of
    /// deadlocking.
    async fn begin_rotation(
        &self,
        tx: &mut Tx,
        workspace: Uuid,
        id: &str,
        uid: &str,
        now: i64,
    ) -> sqlx::Result<bool> {
        let retired = self.workspaces.begin_rotation(tx, workspace, uid).await?;
        if retired {
            records::mark_all_revoked(tx, workspace, id, uid, now).await?;
            secrets::mark_all_due(tx, workspace, now).await?;
        }
        Ok(retired)
    }

    /// Carries the decision out in the cluster.
    async fn carry_out(
        &self,
        workspace: Uuid,
        id: &str,
        mut steps: Steps,
    ) -> Result<Revocation, RevokeError> {
        let mut record = self.reload(workspace, id).await?;
        let own_secret = record
            .secret_name
            .clone()
            .filter(|_| record.revoked_with.as_deref() == Some(record.credential_id.as_str()));
        if let Some(name) = own_secret {
            match self.revoke_by_secret(&name, &mut steps).await {
                Ok(()) => {
                    let by = Some(RevokedBy::Secret);
                    return self
                        .revocation_report(record, RevocationState::Revoked, by, steps)
                        .await;
                }
                Err(RevokeSecretError::Cluster(
                    error @ (ClusterError::Unavailable(_) | ClusterError::NotConfigured(_)),
                )) => {
                    record_field(Field::Cause, error_chain(&error));
                    steps.add_open(&SECRET_STEPS);
                    let by = Some(RevokedBy::Secret);
                    return self
                        .revocation_report(record, RevocationState::Revoking, by, steps)
                        .await;
                }
                Err(RevokeSecretError::Cluster(error)) => {
                    record_field(Field::Cause, error_chain(&error));
                    steps.remove(SECRET_STEPS[0]);
                    self.fall_back_to_rotation(workspace, id).await?;
                    record = self.reload(workspace, id).await?;
                }
                Err(RevokeSecretError::Storage(error)) => return Err(error.into()),
            }
        }
        let state = match self.workspaces.continue_rotation(workspace, &mut steps).await {
            Ok(()) => RevocationState::Revoked,
            Err(WorkspaceError::Storage(error)) => return Err(error.into()),
            Err(error) => {
                record_field(Field::Cause, error_chain(&error));
                steps.add_open(&ROTATION_STEPS);
                RevocationState::Revoking
            }
        };
        self.revocation_report(record, state, Some(RevokedBy::ServiceAccount), steps).await
    }

    async fn reload(&self, workspace: Uuid, id: &str) -> sqlx::Result<CredentialRecord> {
        records::find(&self.db, workspace, id).await?.ok_or(sqlx::Error::RowNotFound)
    }

    /// Deletes the Secret of a revoked credential, unless it was deleted already.
    async fn revoke_by_secret(
        &self,
        name: &str,
        steps: &mut Steps,
    ) -> Result<(), RevokeSecretError> {
        let due = secrets::due_by_name(&self.db, name, self.clock.now_ms()).await?;
        let Some(due) = due else { return Ok(()) };
        steps.run(SECRET_STEPS[0], self.delete_secret(&due)).await?;
        Ok(steps.run(SECRET_STEPS[1], self.record_secret_deletion(&due)).await?)
    }

    pub(super) async fn delete_secret(&self, due: &DueSecret) -> Result<(), ClusterError> {
        let cluster = self.clusters.get(&due.cluster)?;
        cluster.delete_token_secret(&due.namespace, &due.name, due.uid.as_deref()).await
    }

    /// Deletes the row of a deleted Secret, and writes an audit entry if its credential was
    /// revoked.
    pub(super) async fn record_secret_deletion(&self, due: &DueSecret) -> sqlx::Result<()> {
        let mut tx = self.db.begin().await?;
        if secrets::delete(&mut tx, &due.name).await?
            && let Some(credential_id) = &due.revoked
        {
            let event = audit::Event {
                workspace_id: Some(due.workspace_id),
                credential_id: Some(credential_id.clone()),
                ..audit::Event::success(Action::CredentialRevoked)
            };
            audit::record(&mut tx, &self.clock, event).await?;
        }
        tx.commit().await
    }

    /// Rotates the ServiceAccount instead, because the Secret of a revoked credential cannot be
    /// deleted.
    pub(super) async fn fall_back_to_rotation(
        &self,
        workspace: Uuid,
        id: &str,
    ) -> sqlx::Result<()> {
        let record = self.reload(workspace, id).await?;
        let Some(uid) = &record.service_account_uid else { return Ok(()) };
        let mut tx = self.db.begin().await?;
        // This marks the other credentials; the credential itself is marked already.
        if self.begin_rotation(&mut tx, workspace, id, uid, self.clock.now_ms()).await? {
            let why =
                "the Secret of the credential cannot be deleted, so the ServiceAccount is replaced";
            let event = audit::Event {
                workspace_id: Some(workspace),
                credential_id: Some(id.to_owned()),
                reason: Some(why.to_owned()),
                ..audit::Event::success(Action::RevokeCredential)
            };
            audit::record(&mut tx, &self.clock, event).await?;
            tracing::warn!(
                workspace_id = %workspace, credential_id = id,
                "replacing the ServiceAccount, because the Secret of a credential cannot be deleted"
            );
        }
        records::clear_secret(&mut tx, workspace, id).await?;
        tx.commit().await
    }

    async fn revocation_report(
        &self,
        record: CredentialRecord,
        state: RevocationState,
        by: Option<RevokedBy>,
        steps: Steps,
    ) -> Result<Revocation, RevokeError> {
        let (workspace, id) = (record.workspace_id, record.credential_id);
        let (count, others) =
            records::revoked_together(&self.db, workspace, &id, MAX_OTHER_IDS).await?;
        Ok(Revocation {
            credential_id: id,
            workspace_id: workspace,
            state,
            by,
            others_revoked: u32::try_from(count).unwrap_or(u32::MAX),
            others,
            accepted_for_seconds: if by.is_some() { TOKEN_CACHE_SECONDS } else { 0 },
            steps: steps.into_steps(&[]),
        })
    }
}

#[derive(Debug, thiserror::Error)]
enum RevokeSecretError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Storage(#[from] sqlx::Error),
}
