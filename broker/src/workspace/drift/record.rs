//! Records of drift: a difference is recorded once, however often a round sees it.

use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

use crate::{
    audit::{self, Action},
    base::db::Tx,
    cluster::Difference,
    workspace::{
        WorkspaceRow, Workspaces,
        state::Event,
        store::{self, drift},
    },
};

/// A difference between an object and its desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// Kind of the object.
    pub(super) kind: &'static str,
    /// How the object differs.
    pub(super) difference: Difference,
}

impl Finding {
    fn key(self) -> (&'static str, &'static str) {
        (self.kind, self.difference.as_str())
    }
}

fn entry(action: Action, workspace: Uuid, reason: String) -> audit::Event {
    audit::Event {
        workspace_id: Some(workspace),
        reason: Some(reason),
        ..audit::Event::success(action)
    }
}

impl Workspaces {
    /// Records the findings, and ends the recorded drift of this workspace that is not among them.
    /// With `lost` the namespace is gone, so the workspace becomes failed until its owner calls
    /// `init` again.
    pub(super) async fn record_findings(
        &self,
        workspace: &WorkspaceRow,
        findings: &[Finding],
        lost: bool,
    ) -> sqlx::Result<()> {
        let known = drift::for_workspace(&self.db, workspace.id).await?;
        let is_new = |finding: &&Finding| {
            !known.iter().any(|row| (row.kind.as_str(), row.what.as_str()) == finding.key())
        };
        let is_over = |row: &&drift::DriftRow| {
            !findings.iter().any(|it| it.key() == (row.kind.as_str(), row.what.as_str()))
        };
        let (new, over): (Vec<_>, Vec<_>) =
            (findings.iter().filter(is_new).collect(), known.iter().filter(is_over).collect());
        if new.is_empty() && over.is_empty() && !lost {
            return Ok(());
        }
        let mut counted = Vec::new();
        let mut tx = self.db.begin().await?;
        for finding in new {
            if drift::add(&mut tx, workspace.id, finding.key(), self.clock.now_ms()).await? {
                let (kind, what) = (finding.kind, finding.difference.text());
                let event = entry(Action::DriftFound, workspace.id, format!("{kind} {what}"));
                audit::record(&mut tx, &self.clock, event).await?;
                tracing::warn!(workspace_id = %workspace.id, kind, what, "drift found");
                counted.push(*finding);
            }
        }
        for row in over {
            let (kind, what) = (row.kind.as_str(), row.what.as_str());
            if drift::remove(&mut tx, workspace.id, (kind, what)).await? {
                let reason = format!("{kind} {what}: it matches the desired state again");
                audit::record(
                    &mut tx,
                    &self.clock,
                    entry(Action::DriftEnded, workspace.id, reason),
                )
                .await?;
            }
        }
        if lost && workspace.status() == WorkspaceStatus::Provisioned {
            store::advance(&mut tx, &self.clock, workspace.id, Event::Lost).await?;
        }
        tx.commit().await?;
        for finding in counted {
            self.metrics.drift_found(finding.kind, finding.difference.as_str());
        }
        Ok(())
    }

    /// Records that a finding was repaired.
    pub(super) async fn record_repair(
        &self,
        workspace: &WorkspaceRow,
        finding: Finding,
    ) -> sqlx::Result<()> {
        let mut tx = self.db.begin().await?;
        self.record_repair_in(&mut tx, workspace, finding).await?;
        tx.commit().await
    }

    /// Like [`Workspaces::record_repair`], in the caller's transaction.
    pub(super) async fn record_repair_in(
        &self,
        tx: &mut Tx,
        workspace: &WorkspaceRow,
        finding: Finding,
    ) -> sqlx::Result<()> {
        if drift::remove(tx, workspace.id, finding.key()).await? {
            let (kind, what) = (finding.kind, finding.difference.text());
            let event = entry(Action::DriftRepaired, workspace.id, format!("{kind} {what}"));
            audit::record(tx, &self.clock, event).await?;
            tracing::info!(workspace_id = %workspace.id, kind, what, "drift repaired");
            self.metrics.drift_repaired(finding.kind, finding.difference.as_str());
        }
        Ok(())
    }
}
