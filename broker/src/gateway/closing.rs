//! Ends what may not go on: looks again and again which workspaces and sessions have come to an
//! end, on this replica or on another.
//!
//! The database is asked for what changed lately, not about each stream, so the cost does not grow
//! with the streams. Twice the same answer does no harm. What is missed here, because the clocks of
//! replicas differ, [`super::reconcile`] finds.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

use super::{Gateway, cut::Why};
use crate::{
    clock::ticks,
    credential::revoked_after,
    identity::ended_after,
    on_engine,
    problem::chain,
    workspace::{Heard, Rung, changed_after},
};

/// How often the database is asked.
const EVERY: Duration = Duration::from_millis(200);
/// How far back, in milliseconds: a change is stamped before its transaction ends, and the clocks
/// of replicas differ.
const OVERLAP_MS: i64 = 10_000;
/// How long streams go on without an answer of the database.
const UNKNOWN: Duration = Duration::from_mins(1);

/// Whether anything did that [`Gateway::close_changed`] looks at: mostly nothing, and a question to the
/// database is what looking costs.
const HAS_CHANGED: &str = concat!(
    "SELECT EXISTS (SELECT 1 ",
    changed_after!(),
    ") OR EXISTS (SELECT 1 ",
    ended_after!(),
    ") OR EXISTS (SELECT 1 ",
    revoked_after!(),
    ")"
);

impl Gateway {
    /// Looks until it is dropped.
    pub(super) async fn keep_closing(self, mut rung: Rung) {
        let mut ticks = ticks(EVERY);
        let mut asked_until = self.clock.now_ms();
        let mut last = Instant::now();
        loop {
            let heard = tokio::select! {
                _ = ticks.tick() => Heard::default(),
                heard = rung.heard() => heard,
            };
            let now = self.clock.now_ms();
            match self.close_changed(asked_until - OVERLAP_MS).await {
                Ok(()) => {
                    (asked_until, last) = (now, Instant::now());
                    heard.done();
                }
                Err(error) => {
                    if last.elapsed() > UNKNOWN && self.streams.cut(Why::Unknown, |_| true) > 0 {
                        tracing::error!(
                            error = chain(&error),
                            "streams are cut: the database does not say who may go on"
                        );
                    }
                }
            }
        }
    }

    async fn close_changed(&self, since: i64) -> sqlx::Result<()> {
        let has_changed: bool = on_engine!(self.db.reader(), pool =>
            sqlx::query_scalar(HAS_CHANGED).bind(since).fetch_one(pool).await)?;
        if !has_changed {
            return Ok(());
        }
        let workspaces: HashMap<Uuid, _> = self
            .workspaces
            .changed_since(since)
            .await?
            .into_iter()
            .map(|changed| (changed.id, changed))
            .collect();
        let sessions: HashSet<Uuid> = self.identity.ended_since(since).await?.into_iter().collect();
        let revoked: HashMap<String, Uuid> = self
            .credentials
            .revoked_since(since)
            .await?
            .into_iter()
            .map(|revoked| (revoked.credential_id, revoked.workspace_id))
            .collect();
        let touched: HashSet<Uuid> = revoked.values().copied().collect();
        self.visitors
            .forget_those(&sessions, |id| workspaces.contains_key(&id) || touched.contains(&id));
        self.tokens.forget_those(|credential| revoked.contains_key(credential));
        let mut cut = self.streams.cut(Why::SessionEnded, |of| sessions.contains(&of.session));
        cut += self.streams.cut(Why::Revoked, |of| {
            of.credential.as_deref().is_some_and(|credential| revoked.contains_key(credential))
        });
        for (id, changed) in &workspaces {
            if changed.status() != WorkspaceStatus::Provisioned {
                self.tokens.forget(*id);
            }
        }
        let of = |id: &Uuid| workspaces.get(id);
        cut += self.streams.cut(Why::Suspended, |facts| {
            of(&facts.workspace)
                .is_some_and(|changed| changed.status() != WorkspaceStatus::Provisioned)
        });
        cut += self.streams.cut(Why::Revoked, |facts| {
            of(&facts.workspace).is_some_and(|changed| {
                changed.service_account_uid.as_deref() != Some(&*facts.service_account)
            })
        });
        if cut > 0 {
            tracing::info!(streams = cut, "streams are cut");
        }
        Ok(())
    }
}
