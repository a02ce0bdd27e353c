//! What was found, on record once, however often it is seen.

use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

use crate::{
    audit::{self, Action},
    cluster::Difference,
    db::Tx,
    workspace::{
        Found, Workspaces,
        state::Event,
        store::{self, drift},
    },
};

/// One thing that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// Kind of the object.
    pub(super) kind: &'static str,
    /// What is wrong with it.
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
    /// Puts these findings on record and ends the others of this workspace. With `lost` its namespace
    /// is gone, and with it the workspace, until its owner asks for it again.
    pub(super) async fn record_findings(
        &self,
        found: &Found,
        findings: &[Finding],
        lost: bool,
    ) -> sqlx::Result<()> {
        let known = drift::of(&self.db, found.id).await?;
        let is_new = |finding: &&Finding| {
            !known.iter().any(|row| (row.kind.as_str(), row.what.as_str()) == finding.key())
        };
        let is_over = |row: &&drift::Row| {
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
            if drift::add(&mut tx, found.id, finding.key(), self.clock.now_ms()).await? {
                let (kind, what) = (finding.kind, finding.difference.text());
                let event = entry(Action::DriftFound, found.id, format!("{kind} {what}"));
                audit::record(&mut tx, &self.clock, event).await?;
                tracing::warn!(workspace = %found.id, kind, what, "drift found");
                counted.push(*finding);
            }
        }
        for row in over {
            let (kind, what) = (row.kind.as_str(), row.what.as_str());
            if drift::remove(&mut tx, found.id, (kind, what)).await? {
                let reason = format!("{kind} {what}: it is as it has to be again");
                audit::record(&mut tx, &self.clock, entry(Action::DriftEnded, found.id, reason))
                    .await?;
            }
        }
        if lost && found.status() == WorkspaceStatus::Provisioned {
            store::advance(&mut tx, &self.clock, found.id, Event::Lost).await?;
        }
        tx.commit().await?;
        for finding in counted {
            self.metrics.drift_found(finding.kind, finding.difference.as_str());
        }
        Ok(())
    }

    /// Puts on record that a finding was set right.
    pub(super) async fn record_repair(&self, found: &Found, finding: Finding) -> sqlx::Result<()> {
        let mut tx = self.db.begin().await?;
        self.record_repair_in(&mut tx, found, finding).await?;
        tx.commit().await
    }

    /// As [`Workspaces::record_repair`], in a transaction that does more.
    pub(super) async fn record_repair_in(
        &self,
        tx: &mut Tx,
        found: &Found,
        finding: Finding,
    ) -> sqlx::Result<()> {
        if drift::remove(tx, found.id, finding.key()).await? {
            let (kind, what) = (finding.kind, finding.difference.text());
            let event = entry(Action::DriftRepaired, found.id, format!("{kind} {what}"));
            audit::record(tx, &self.clock, event).await?;
            tracing::info!(workspace = %found.id, kind, what, "drift repaired");
            self.metrics.drift_repaired(finding.kind, finding.difference.as_str());
        }
        Ok(())
    }
}
