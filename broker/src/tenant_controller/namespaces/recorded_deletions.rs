//! Audit rows of RoleBindings that are deleted for a move. Without a row from before the deletion, a
//! broker that stops in between leaves no trace of them. A program may make RoleBindings repeatedly
//! under other names, so the rows of a namespace are limited.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::{
    audit::{self, Action},
    base::error_chain,
    cluster::BindingsDescription,
    tenant::NamespaceMove,
    tenant_controller::TenantController,
};

/// Moves whose rows are counted.
const MAX_MOVES: usize = 1_000;
/// Rows about attempts of one move per [`BUDGET_INTERVAL`]. One more says that further attempts are
/// not recorded. The row about a move that is complete does not count.
const MAX_RECORDED: usize = 20;
/// How long a row counts.
const BUDGET_INTERVAL: Duration = Duration::from_hours(1);

/// The part of an attempt that a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::tenant_controller) enum DeletionStage {
    /// RoleBindings that are about to be deleted.
    Planned,
    /// Those that an attempt deleted, after which the move is not complete.
    Incomplete,
}

/// An announced move: name and uid of the namespace, and when the announcement expires.
type MoveKey = (String, String, i64);

/// The rows that this process recorded about moves.
#[derive(Debug, Default)]
pub(in crate::tenant_controller) struct RecordedDeletions(Mutex<BTreeMap<MoveKey, Recorded>>);

/// The rows about one move since a time.
#[derive(Debug)]
struct Recorded {
    since: Instant,
    rows: usize,
    /// Hash of the last text of each stage, so that attempts that find the same RoleBindings have one
    /// row.
    last: BTreeMap<DeletionStage, [u8; 32]>,
}

/// The row that an attempt gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DueRow {
    /// One with its text.
    Text,
    /// One that says that the namespace has no more rows for now.
    Last,
    None,
}

fn key_of(of: &NamespaceMove) -> MoveKey {
    (of.namespace.clone(), of.namespace_uid.clone(), of.expires_at)
}

impl RecordedDeletions {
    fn due_row(
        &self,
        of: &NamespaceMove,
        stage: DeletionStage,
        text: &str,
        now: Instant,
    ) -> DueRow {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(recorded) = all.get(&key_of(of)) else { return DueRow::Text };
        if now.saturating_duration_since(recorded.since) >= BUDGET_INTERVAL {
            return DueRow::Text;
        }
        if recorded.last.get(&stage) == Some(&Sha256::digest(text).into()) {
            return DueRow::None;
        }
        match recorded.rows {
            ..MAX_RECORDED => DueRow::Text,
            MAX_RECORDED => DueRow::Last,
            _ => DueRow::None,
        }
    }

    /// Counts a row. If too many moves have rows, the one with the oldest rows is evicted.
    fn insert(&self, of: &NamespaceMove, stage: DeletionStage, text: &str, now: Instant) {
        let (mut all, key) = (self.0.lock().unwrap_or_else(PoisonError::into_inner), key_of(of));
        if !all.contains_key(&key) && all.len() >= MAX_MOVES {
            let oldest = all.iter().min_by_key(|(_, recorded)| recorded.since);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                all.remove(&oldest);
            }
        }
        let new = || Recorded { since: now, rows: 0, last: BTreeMap::new() };
        let recorded = all.entry(key).or_insert_with(new);
        if now.saturating_duration_since(recorded.since) >= BUDGET_INTERVAL {
            (recorded.since, recorded.rows) = (now, 0);
        }
        recorded.rows += 1;
        recorded.last.insert(stage, Sha256::digest(text).into());
    }
}

impl TenantController {
    /// Records RoleBindings of one stage of an attempt, if there are any, an earlier attempt did not
    /// record the same, and the namespace has not had too many rows.
    ///
    /// # Errors
    /// The database failed; nothing may be deleted then.
    pub(in crate::tenant_controller) async fn record_deletion(
        &self,
        of: &NamespaceMove,
        stage: DeletionStage,
        bindings: &BindingsDescription,
        text: String,
    ) -> sqlx::Result<()> {
        let (namespace, now) = (&of.namespace, Instant::now());
        if bindings.is_empty() {
            return Ok(());
        }
        let reason = match self.recorded_deletions.due_row(of, stage, &text, now) {
            DueRow::Text => text.clone(),
            DueRow::Last => format!(
                "namespace {namespace}: RoleBindings keep appearing; further attempts to \
                 delete them for its move are not recorded for up to an hour"
            ),
            DueRow::None => {
                tracing::info!(
                    namespace,
                    bindings = %bindings,
                    "RoleBindings of a move are deleted without a row of their own"
                );
                return Ok(());
            }
        };
        let event = audit::Event {
            user_id: Some(of.requested_by),
            reason: Some(reason),
            ..audit::Event::success(Action::NamespaceMoved)
        };
        audit::record_in_own_tx(&self.db, &self.clock, event).await?;
        self.recorded_deletions.insert(of, stage, &text, now);
        Ok(())
    }

    /// Records RoleBindings that were deleted for a move that is not complete, if there are any. The
    /// next attempt does not find them.
    pub(in crate::tenant_controller) async fn record_deleted(
        &self,
        of: &NamespaceMove,
        deleted: &BindingsDescription,
        text: String,
    ) {
        let recorded = self.record_deletion(of, DeletionStage::Incomplete, deleted, text).await;
        if let Err(error) = recorded {
            tracing::error!(
                namespace = of.namespace,
                bindings = %deleted,
                error = error_chain(&error),
                "RoleBindings were deleted for a move, and that was not recorded"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::rbac::v1::RoleBinding;

    use super::{DeletionStage::Planned, *};
    use crate::{
        tenant_controller::testing::{Fixture, announced_move},
        testing::{On, on_both_engines},
    };

    on_both_engines!(
        repeated_attempts_record_the_same_deletion_once,
        attempts_that_differ_have_a_limited_number_of_rows,
    );

    async fn repeated_attempts_record_the_same_deletion_once(on: On) {
        let fixture = Fixture::new(on).await;
        let of = announced_move();
        let some = BindingsDescription::of([&RoleBinding::default()]);
        let none = BindingsDescription::default();
        for (bindings, text, rows) in
            [(&none, "a", 0), (&some, "a", 1), (&some, "a", 1), (&some, "b", 2), (&some, "a", 3)]
        {
            let text = text.to_owned();
            let recorded =
                fixture.controller.record_deletion(&of, Planned, bindings, text.clone()).await;
            recorded.unwrap();
            let number = fixture.storage.number("SELECT COUNT(*) FROM audit_logs").await;
            assert_eq!(number, rows, "{text}");
        }
    }

    async fn attempts_that_differ_have_a_limited_number_of_rows(on: On) {
        const LAST: &str = "SELECT COUNT(*) FROM audit_logs WHERE reason LIKE '%are not recorded%'";
        let fixture = Fixture::new(on).await;
        let of = announced_move();
        let some = BindingsDescription::of([&RoleBinding::default()]);
        for number in 0..MAX_RECORDED {
            let text = format!("planned {number}");
            fixture.controller.record_deletion(&of, Planned, &some, text).await.unwrap();
            fixture.controller.record_deleted(&of, &some, format!("incomplete {number}")).await;
        }
        let number = fixture.storage.number("SELECT COUNT(*) FROM audit_logs").await;
        assert_eq!(number, i64::try_from(MAX_RECORDED + 1).unwrap());
        assert_eq!(fixture.storage.number(LAST).await, 1);
    }

    fn move_of(namespace: &str) -> NamespaceMove {
        NamespaceMove { namespace: namespace.to_owned(), ..announced_move() }
    }

    #[test]
    fn a_move_has_rows_again_after_an_hour() {
        let (log, start) = (RecordedDeletions::default(), Instant::now());
        let solar = move_of("solar-a");
        let due = |text: &str, minutes| {
            let now = start + Duration::from_mins(minutes);
            let due = log.due_row(&solar, Planned, text, now);
            if due != DueRow::None {
                log.insert(&solar, Planned, text, now);
            }
            due
        };
        for number in 0..MAX_RECORDED {
            assert_eq!(due(&number.to_string(), 0), DueRow::Text);
        }
        assert_eq!(due("a", 59), DueRow::Last);
        assert_eq!(due("b", 59), DueRow::None);
        assert_eq!(due("b", 60), DueRow::Text);
        assert_eq!(due("b", 60), DueRow::None, "it is the same");
        assert_eq!(due("c", 119), DueRow::Text);
        let again = NamespaceMove { namespace_uid: "n-2".to_owned(), ..solar.clone() };
        let later = NamespaceMove { expires_at: 1, ..solar.clone() };
        for other in [move_of("solar-b"), again, later] {
            assert_eq!(log.due_row(&other, Planned, "c", start), DueRow::Text, "{other:?}");
        }
    }

    #[test]
    fn the_move_with_the_oldest_rows_is_forgotten_first() {
        let (log, start) = (RecordedDeletions::default(), Instant::now());
        for number in 0..=MAX_MOVES {
            let now = start + Duration::from_secs(u64::try_from(number).unwrap());
            log.insert(&move_of(&format!("solar-{number}")), Planned, "a", now);
        }
        let is_known =
            |namespace| log.due_row(&move_of(namespace), Planned, "a", start) == DueRow::None;
        assert!(!is_known("solar-0") && is_known("solar-1") && is_known("solar-1000"));
    }
}
