//! Compares what is open with the database, by state. [`super::closing`] finds out sooner what has
//! ended, but by the times that other replicas wrote down: where clocks differ, it can miss an end.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use tenant_shared::WorkspaceStatus;

use super::{Gateway, cut::Why};
use crate::{clock::ticks, problem::chain};

/// How often everything that is open is compared.
const EVERY: Duration = Duration::from_secs(30);

impl Gateway {
    /// Compares until it is dropped. It is a task of its own because a replica with thousands of
    /// streams takes seconds, and the faster way must not wait for them.
    pub(super) async fn keep_reconciling(self) {
        let mut ticks = ticks(EVERY);
        loop {
            ticks.tick().await;
            self.tokens.purge();
            self.visitors.purge();
            let began = Instant::now();
            match self.reconcile().await {
                Ok(0) => {}
                Ok(cut) => tracing::warn!(
                    streams = cut,
                    duration_ms = began.elapsed().as_millis(),
                    "streams are cut that should have ended before; compare the clocks of the replicas"
                ),
                Err(error) => tracing::warn!(
                    error = chain(&error),
                    "open streams cannot be compared with the database"
                ),
            }
        }
    }

    /// Ends every stream whose session, workspace, ServiceAccount or credential is no longer good;
    /// returns how many should have ended before. A session that expires is not one of these: nobody
    /// writes that down.
    async fn reconcile(&self) -> sqlx::Result<usize> {
        // Before the database is asked: what begins later is compared the next time.
        let open = self.streams.open();
        let sessions: HashSet<_> = open.iter().map(|facts| facts.session).collect();
        let mut over = HashSet::new();
        for session in sessions {
            if !self.identity.is_alive(session).await? {
                over.insert(session);
            }
        }
        self.streams.cut(Why::SessionEnded, |facts| over.contains(&facts.session));

        let workspaces: HashSet<_> =
            open.iter().map(|facts| (facts.workspace, facts.service_account.clone())).collect();
        let (mut suspended, mut replaced) = (HashSet::new(), HashSet::new());
        for (id, service_account) in workspaces {
            match self.workspaces.standing(id).await? {
                Some(now) if now.status() == WorkspaceStatus::Provisioned => {
                    if now.service_account_uid.as_deref() != Some(&*service_account) {
                        replaced.insert((id, service_account));
                    }
                }
                _ => {
                    suspended.insert(id);
                    self.tokens.forget(id);
                }
            }
        }
        let mut cut =
            self.streams.cut(Why::Suspended, |facts| suspended.contains(&facts.workspace));
        let is_replaced = |workspace, account| replaced.contains(&(workspace, account));
        cut += self
            .streams
            .cut(Why::Revoked, |facts| is_replaced(facts.workspace, facts.service_account.clone()));

        let credentials: HashSet<_> =
            open.into_iter().filter_map(|facts| facts.credential).collect();
        let mut revoked = HashSet::new();
        for credential in credentials {
            if self.credentials.is_revoked(&credential).await? {
                revoked.insert(credential);
            }
        }
        self.tokens.forget_those(|credential| revoked.contains(credential));
        cut += self.streams.cut(Why::Revoked, |facts| {
            facts.credential.as_ref().is_some_and(|credential| revoked.contains(credential))
        });
        Ok(cut)
    }
}
