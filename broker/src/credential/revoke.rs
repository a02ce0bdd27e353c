//! One credential, taken back.
//!
//! The decision is written down first. Then what the token depends on is deleted: its own Secret if it
//! has one, else the workspace's ServiceAccount, and with that every other token of the workspace. What
//! the cluster does not do at once the sweep does.

use tenant_shared::{
    CredentialId, CredentialState, Revocation, RevocationState, RevokedBy, TOKEN_CACHE_SECONDS,
};
use uuid::Uuid;

use super::{
    Credentials, OUTLIVES_MS,
    records::{self, Record},
    secrets::{self, Due},
};
use crate::{
    access::{Owned as _, Permit, RevokeCredentials},
    audit::{self, Action},
    cluster::ClusterError,
    db::Tx,
    identity::Caller,
    problem::{chain, note},
    workspace::{Found, ROTATION, Steps, WorkspaceError},
};

/// Ids of other credentials in an answer.
const MOST_OTHERS: u32 = 100;
/// Steps of a revocation by Secret after the decision is on record.
const BY_SECRET: [&str; 2] = ["delete_secret", "finish"];

/// Why a credential was not revoked.
#[derive(Debug, thiserror::Error)]
pub enum RevokeError {
    /// The workspace has no credential of this id.
    #[error("the workspace has no such credential")]
    Unknown,
    /// The database.
    #[error("the database failed")]
    Storage(#[from] sqlx::Error),
}

impl Credentials {
    /// Revokes a credential of a workspace. Running it again goes on with the open steps.
    ///
    /// # Errors
    /// There is no such credential; the decision could not be written down. A step that the cluster
    /// did not do is open in the answer, and the sweep goes on with it.
    pub async fn revoke(
        &self,
        permit: &Permit<RevokeCredentials>,
        found: &Found,
        id: &CredentialId,
        reason: Option<String>,
    ) -> Result<Revocation, RevokeError> {
        let now = self.clock.now_ms();
        let caller = permit.caller();
        let mut steps = Steps::default();
        let Some(record) = records::find(&self.db, found.id(), id.as_str()).await? else {
            self.refused(caller, Some(found.id()), id, "the workspace has no such credential")
                .await?;
            return Err(RevokeError::Unknown);
        };
        // An API server accepts it for a while after its end.
        match record.state(now - OUTLIVES_MS) {
            CredentialState::Live => {
                let event = audit::Event {
                    user_id: Some(caller.user_id()),
                    session_id: Some(caller.session_id()),
                    workspace_id: Some(found.id()),
                    credential_id: Some(record.credential_id.clone()),
                    reason,
                    ..audit::Event::success(Action::RevokeCredential)
                };
                steps.run("record", self.decide(&record, event, now)).await?;
            }
            CredentialState::Revoked => {}
            state => {
                let why = format!("it was {} already", state.as_str());
                self.refused(caller, Some(found.id()), id, &why).await?;
                return self.answer(record, RevocationState::Over, None, steps).await;
            }
        }
        self.carry_out(found.id(), &record.credential_id, steps).await
    }

    /// Records that somebody was not allowed to revoke a credential, or could not.
    ///
    /// # Errors
    /// The database's.
    pub async fn refused(
        &self,
        caller: &Caller,
        workspace_id: Option<Uuid>,
        id: &CredentialId,
        why: &str,
    ) -> sqlx::Result<()> {
        let event = audit::Event {
            user_id: Some(caller.user_id()),
            session_id: Some(caller.session_id()),
            workspace_id,
            credential_id: Some(id.as_str().to_owned()),
            ..audit::Event::refused(Action::RevokeCredential, why)
        };
        self.metrics.action(Action::RevokeCredential, "refused");
        audit::record_alone(&self.db, &self.clock, event).await
    }

    /// Writes the decision down. Of two at once one does.
    async fn decide(&self, record: &Record, event: audit::Event, now: i64) -> sqlx::Result<()> {
        let (workspace, id) = (record.workspace_id, record.credential_id.as_str());
        let mut tx = self.db.begin().await?;
        let decided = match (&record.secret_name, &record.service_account_uid) {
            (Some(secret), _) => {
                let marked = records::mark(&mut tx, workspace, id, now).await?;
                if marked {
                    secrets::due_now(&mut tx, secret, now).await?;
                }
                marked
            }
            (None, Some(uid)) => self.intend_rotation(&mut tx, workspace, id, uid, now).await?,
            (None, None) => false,
        };
        if decided {
            audit::record(&mut tx, &self.clock, event).await?;
            tx.commit().await?;
            self.metrics.action(Action::RevokeCredential, "success");
        }
        Ok(())
    }

    /// Retires the ServiceAccount of this uid, and with it all that was issued of it. The workspace's
    /// row comes first, so that two at once wait for each other instead of deadlocking.
    async fn intend_rotation(
        &self,
        tx: &mut Tx,
        workspace: Uuid,
        id: &str,
        uid: &str,
        now: i64,
    ) -> sqlx::Result<bool> {
        let retired = self.workspaces.intend_rotation(tx, workspace, uid).await?;
        if retired {
            records::mark_all(tx, workspace, id, uid, now).await?;
            secrets::all_due_now(tx, workspace, now).await?;
        }
        Ok(retired)
    }

    /// Does in the cluster what was decided.
    async fn carry_out(
        &self,
        workspace: Uuid,
        id: &str,
        mut steps: Steps,
    ) -> Result<Revocation, RevokeError> {
        let mut record = self.record(workspace, id).await?;
        let own_secret = record
            .secret_name
            .clone()
            .filter(|_| record.revoked_with.as_deref() == Some(record.credential_id.as_str()));
        if let Some(name) = own_secret {
            match self.end_secret(&name, &mut steps).await {
                Ok(()) => {
                    let by = Some(RevokedBy::Secret);
                    return self.answer(record, RevocationState::Revoked, by, steps).await;
                }
                Err(EndError::Cluster(error @ ClusterError::Unavailable(_))) => {
                    note("cause", chain(&error));
                    steps.open(&BY_SECRET);
                    let by = Some(RevokedBy::Secret);
                    return self.answer(record, RevocationState::Revoking, by, steps).await;
                }
                Err(EndError::Cluster(error)) => {
                    note("cause", chain(&error));
                    steps.forget(BY_SECRET[0]);
                    self.rotate_instead(workspace, id).await?;
                    record = self.record(workspace, id).await?;
                }
                Err(EndError::Storage(error)) => return Err(error.into()),
            }
        }
        let rotated = match self.workspaces.by_id(workspace).await? {
            Some(found) => self.workspaces.rotate(&found, &mut steps).await,
            None => Ok(()),
        };
        let state = match rotated {
            Ok(()) => RevocationState::Revoked,
            Err(WorkspaceError::Storage(error)) => return Err(error.into()),
            Err(error) => {
                note("cause", chain(&error));
                steps.open(&ROTATION);
                RevocationState::Revoking
            }
        };
        self.answer(record, state, Some(RevokedBy::ServiceAccount), steps).await
    }

    async fn record(&self, workspace: Uuid, id: &str) -> sqlx::Result<Record> {
        records::find(&self.db, workspace, id).await?.ok_or(sqlx::Error::RowNotFound)
    }

    /// Deletes the Secret of a revoked credential, if it is not gone yet.
    async fn end_secret(&self, name: &str, steps: &mut Steps) -> Result<(), EndError> {
        let due = secrets::due_one(&self.db, name, self.clock.now_ms()).await?;
        let Some(due) = due else { return Ok(()) };
        steps.run(BY_SECRET[0], self.delete_secret(&due)).await?;
        Ok(steps.run(BY_SECRET[1], self.secret_gone(&due)).await?)
    }

    pub(super) async fn delete_secret(&self, due: &Due) -> Result<(), ClusterError> {
        self.cluster().delete_token_secret(&due.namespace, &due.name, due.uid.as_deref()).await
    }

    /// Forgets a Secret that is gone, and records it if its credential was revoked.
    pub(super) async fn secret_gone(&self, due: &Due) -> sqlx::Result<()> {
        let mut tx = self.db.begin().await?;
        if secrets::forget(&mut tx, &due.name).await?
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

    /// The cluster does not let the Secret of a revoked credential go, so the ServiceAccount has to.
    pub(super) async fn rotate_instead(&self, workspace: Uuid, id: &str) -> sqlx::Result<()> {
        let record = self.record(workspace, id).await?;
        let Some(uid) = &record.service_account_uid else { return Ok(()) };
        let mut tx = self.db.begin().await?;
        // It marks the others, and this one is marked already.
        if self.intend_rotation(&mut tx, workspace, id, uid, self.clock.now_ms()).await? {
            let why = "its Secret could not be deleted, so the ServiceAccount is replaced";
            let event = audit::Event {
                workspace_id: Some(workspace),
                credential_id: Some(id.to_owned()),
                reason: Some(why.to_owned()),
                ..audit::Event::success(Action::RevokeCredential)
            };
            audit::record(&mut tx, &self.clock, event).await?;
            tracing::warn!(%workspace, credential_id = id, why);
        }
        records::unbind(&mut tx, workspace, id).await?;
        tx.commit().await
    }

    async fn answer(
        &self,
        record: Record,
        state: RevocationState,
        by: Option<RevokedBy>,
        steps: Steps,
    ) -> Result<Revocation, RevokeError> {
        let (workspace, id) = (record.workspace_id, record.credential_id);
        let (count, others) = records::others(&self.db, workspace, &id, MOST_OTHERS).await?;
        Ok(Revocation {
            credential_id: id,
            workspace_id: workspace,
            state,
            by,
            others_revoked: u32::try_from(count).unwrap_or(u32::MAX),
            others,
            accepted_for_seconds: if by.is_some() { TOKEN_CACHE_SECONDS } else { 0 },
            steps: steps.into_answer(&[]),
        })
    }
}

#[derive(Debug, thiserror::Error)]
enum EndError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Storage(#[from] sqlx::Error),
}
