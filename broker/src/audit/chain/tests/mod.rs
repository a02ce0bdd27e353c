//! Attacks on a chain of real rows, by somebody who can write to the database or to an exported
//! copy.

mod random;

use std::{io::Cursor, sync::Arc};

use super::*;
use crate::{
    audit::{Action, AuditKeys, Event, export, prune, record},
    base::{
        clock::Clock,
        db::Db,
        reload::Reloaded,
        signing::{PrivateKey, PublicKeys},
        telemetry::Metrics,
    },
    on_engine,
    testing::{On, Storage, on_both_engines, run_concurrently},
};

on_both_engines!(
    sealing_with_two_processes_at_once_gives_one_gapless_chain,
    a_crash_while_sealing_leaves_the_chain_as_it_was,
    a_row_committed_late_is_sealed_later_and_exported_once,
    tampering_with_the_database_is_detected,
    truncation_is_detected_with_a_kept_head,
    the_trail_verifies_after_pruning_but_not_after_a_forged_prune,
    rows_are_not_pruned_without_a_valid_checkpoint_signature,
);

/// A trail in a database, with the keys that seal it.
struct Trail {
    storage: Storage,
    sealer: Sealer,
    keys: Reloaded<AuditKeys>,
    key: Arc<PrivateKey>,
    known: PublicKeys,
}

impl Trail {
    async fn new(on: On) -> Self {
        let storage = Storage::new(on).await;
        let key = Arc::new(PrivateKey::generate());
        let known = PublicKeys::from_private(std::slice::from_ref(&*key));
        let keys = AuditKeys { signing: Arc::clone(&key), known: known.clone() };
        let keys = Reloaded::fixed(keys);
        let (db, clock) = (storage.db.clone(), storage.clock.clone());
        let sealer = Sealer::new(db, clock, keys.clone(), Metrics::default());
        Self { storage, sealer, keys, key, known }
    }

    async fn write(&self, rows: usize) {
        write(&self.storage.db, &self.storage.clock, rows).await;
    }

    async fn verify(&self, expected: Option<Head>) -> VerificationReport {
        verify_database(&self.storage.db, &self.known, expected, |_| {}).await.unwrap()
    }

    async fn fault(&self) -> VerificationFault {
        self.verify(None).await.fault.expect("a fault")
    }

    async fn intact(&self, rows: u64) -> VerificationReport {
        let report = self.verify(None).await;
        assert_eq!((&report.fault, report.rows), (&None, rows));
        report
    }

    async fn execute(&self, statement: &'static str) -> u64 {
        let mut tx = self.storage.db.begin().await.unwrap();
        let done = on_engine!(tx.connection(), c =>
            sqlx::query(statement).execute(c).await.map(|done| done.rows_affected()));
        let changed = done.unwrap_or_else(|error| panic!("{statement}: {error}"));
        tx.commit().await.unwrap();
        changed
    }

    async fn prune(&self, days: u32) -> Result<Option<i64>, SealError> {
        let (db, clock) = (&self.storage.db, &self.storage.clock);
        prune(db, clock, &self.key, &self.known, days).await
    }

    /// All pages of an export with this `limit`.
    async fn exported(&self, limit: u32) -> String {
        let (mut text, mut after) = (String::new(), 0);
        while let Some(page) = export::export_page(&self.storage.db, after, limit).await.unwrap() {
            assert!(page.next > after);
            text += &page.to_json_lines().unwrap();
            after = page.next;
        }
        text
    }
}

async fn write(db: &Db, clock: &Clock, rows: usize) {
    let mut tx = db.begin().await.unwrap();
    for n in 0..rows {
        let event = Event {
            user_id: (n % 2 == 0).then(|| clock.random_id()),
            reason: (n % 3 == 0).then(|| format!("reason {n}")),
            ..Event::success(Action::SignIn)
        };
        record(&mut tx, clock, event).await.unwrap();
    }
    tx.commit().await.unwrap();
}

fn verify_text(
    text: &str,
    keys: &PublicKeys,
    start: Start,
    expected: Option<Head>,
) -> VerificationReport {
    verify_file(Cursor::new(text), keys, start, expected, |_| {}).unwrap()
}

async fn sealing_with_two_processes_at_once_gives_one_gapless_chain(on: On) {
    let trail = Trail::new(on).await;
    trail.intact(0).await;
    let other = trail.storage.database.connect().await;
    let replicas = [trail.storage.db.clone(), other].map(|db| {
        let (clock, keys) = (trail.storage.clock.clone(), trail.keys.clone());
        (db.clone(), Sealer::new(db, clock, keys, Metrics::default()))
    });
    let sealed = run_concurrently((0..24).map(|n| {
        let ((db, sealer), clock) = (replicas[n % 2].clone(), trail.storage.clock.clone());
        async move {
            write(&db, &clock, 40).await;
            sealer.seal_all().await.unwrap()
        }
    }))
    .await;
    let rest = trail.sealer.seal_all().await.unwrap();
    assert_eq!(sealed.iter().sum::<u64>() + rest, 24 * 40);
    let report = trail.intact(24 * 40).await;
    assert_eq!((report.head.sequence, report.unsealed), (24 * 40, Some(0)));
    assert_eq!(trail.sealer.seal_all().await.unwrap(), 0, "nothing is sealed twice");
}

async fn a_crash_while_sealing_leaves_the_chain_as_it_was(on: On) {
    let trail = Trail::new(on).await;
    trail.write(3).await;
    trail.sealer.seal_all().await.unwrap();
    trail.write(4).await;
    let (tx, rows) = trail.sealer.prepare_batch().await.unwrap().unwrap();
    assert_eq!(rows, 4);
    // The process crashes before the commit.
    drop(tx);
    let report = trail.intact(3).await;
    assert_eq!((report.head.sequence, report.unsealed), (3, Some(4)));
    assert_eq!(trail.sealer.seal_all().await.unwrap(), 4);
    trail.intact(7).await;
}

async fn a_row_committed_late_is_sealed_later_and_exported_once(on: On) {
    let trail = Trail::new(on).await;
    let (db, clock) = (&trail.storage.db, &trail.storage.clock);
    trail.write(2).await;
    // Created before the others, committed after they are sealed.
    let late = Event { reason: Some("late".into()), ..Event::success(Action::SignIn) };
    let late = late.with_request_context(clock);
    clock.advance(5000);
    trail.write(2).await;
    assert_eq!(trail.sealer.seal_all().await.unwrap(), 4);
    let first = export::export_page(db, 0, 100).await.unwrap().unwrap();
    assert_eq!(first.next, 4);
    let mut tx = db.begin().await.unwrap();
    crate::audit::record_stamped(&mut tx, &late).await.unwrap();
    assert!(export::export_page(db, first.next, 100).await.unwrap().is_none(), "not committed");
    tx.commit().await.unwrap();
    assert!(export::export_page(db, first.next, 100).await.unwrap().is_none(), "not sealed");
    assert_eq!(trail.sealer.seal_all().await.unwrap(), 1);
    let second = export::export_page(db, first.next, 100).await.unwrap().unwrap();
    assert_eq!(second.next, 5);
    trail.intact(5).await;
    let whole = first.to_json_lines().unwrap() + &second.to_json_lines().unwrap();
    assert_eq!(whole.matches("\"late\"").count(), 1);
    let report = verify_text(&whole, &trail.known, Start::Whole, None);
    assert_eq!((report.intact, report.rows), (true, 5), "{report}");
}

/// Attacks on ten rows in two batches: the statements, and the start of the fault.
const ATTACKS: [(&[&str], &str); 18] = [
    (&["UPDATE audit_logs SET reason = 'other' WHERE sequence = 3"], "row 3 ("),
    (&["UPDATE audit_logs SET created_at = created_at + 1 WHERE sequence = 9"], "row 9 ("),
    (&["UPDATE audit_logs SET sequence = 0 WHERE sequence = 10"], "row 0 ("),
    (&["UPDATE audit_logs SET sequence = 20 WHERE sequence = 10"], "rows 10 to 10 are missing"),
    (&["DELETE FROM audit_logs WHERE sequence = 4"], "rows 4 to 4 are missing"),
    (&["DELETE FROM audit_logs WHERE sequence <= 2"], "rows 1 to 2 are missing"),
    (&["DELETE FROM audit_logs WHERE sequence >= 8"], "rows 8 to 10 are missing"),
    (
        &[
            "DELETE FROM audit_logs WHERE sequence > 5",
            "DELETE FROM audit_checkpoints WHERE sequence > 5",
        ],
        "rows 6 to 10 are missing",
    ),
    (
        &["UPDATE audit_logs SET sequence = NULL, hash = NULL WHERE sequence = 5"],
        "rows 5 to 5 are missing",
    ),
    (
        &[
            "UPDATE audit_logs SET sequence = 99 WHERE sequence = 5",
            "UPDATE audit_logs SET sequence = 5 WHERE sequence = 6",
            "UPDATE audit_logs SET sequence = 6 WHERE sequence = 99",
        ],
        "row 5 (",
    ),
    (
        &[
            "DROP INDEX audit_logs_sequence",
            "UPDATE audit_logs SET sequence = 6 WHERE sequence = 7",
        ],
        "row 6 (",
    ),
    (
        &["UPDATE audit_logs SET hash = (SELECT hash FROM audit_logs WHERE sequence = 1) \
           WHERE sequence = 2"],
        "row 2 (",
    ),
    (
        &["UPDATE audit_checkpoints SET signed = signed || 'A' WHERE sequence = 10"],
        "the checkpoint at row 10: ",
    ),
    (
        &["UPDATE audit_checkpoints SET signed = \
             (SELECT signed FROM audit_checkpoints WHERE sequence = 5) WHERE sequence = 10"],
        "the checkpoint at row 10: the signature is for row 5",
    ),
    (
        &["DELETE FROM audit_checkpoints WHERE sequence = 10"],
        "rows 6 to 10 are under no signed checkpoint",
    ),
    (&["UPDATE audit_chain SET sequence = 5"], "the chain's head is row 5, but the last row is 10"),
    (&["DELETE FROM audit_chain"], "the chain's head is missing"),
    (
        &[
            "UPDATE audit_chain SET anchor_sequence = 2, anchor = 'x.y.z'",
            "DELETE FROM audit_logs WHERE sequence <= 2",
        ],
        "the anchor at row 2: ",
    ),
];

async fn tampering_with_the_database_is_detected(on: On) {
    for (statements, said) in ATTACKS {
        let trail = Trail::new(on).await;
        for _ in 0..2 {
            trail.write(5).await;
            trail.sealer.seal_all().await.unwrap();
        }
        trail.intact(10).await;
        for statement in statements {
            trail.execute(statement).await;
        }
        let fault = trail.fault().await.to_string();
        assert!(fault.starts_with(said), "{statements:?}: {fault}");
    }
}

async fn truncation_is_detected_with_a_kept_head(on: On) {
    let trail = Trail::new(on).await;
    trail.write(5).await;
    trail.sealer.seal_all().await.unwrap();
    let before = trail.intact(5).await.head;
    trail.write(5).await;
    trail.sealer.seal_all().await.unwrap();
    let kept = trail.intact(10).await.head;
    assert!(trail.verify(Some(before)).await.intact);
    trail.execute("DELETE FROM audit_logs WHERE sequence > 5").await;
    trail.execute("DELETE FROM audit_checkpoints WHERE sequence > 5").await;
    trail
        .execute(
            "UPDATE audit_chain SET sequence = 5, hash = \
        (SELECT hash FROM audit_logs WHERE sequence = 5)",
        )
        .await;
    trail.intact(5).await;
    let fault = trail.verify(Some(kept)).await.fault;
    assert_eq!(fault, Some(VerificationFault::Missing { first: 6, last: 10 }));
    // The broker continues from there; the kept head is still not in the trail.
    trail.write(7).await;
    trail.sealer.seal_all().await.unwrap();
    let fault = trail.verify(Some(kept)).await.fault;
    assert_eq!(fault, Some(VerificationFault::OtherHistory { sequence: 10 }));
}

const DAY: i64 = 24 * 3600 * 1000;

async fn the_trail_verifies_after_pruning_but_not_after_a_forged_prune(on: On) {
    let trail = Trail::new(on).await;
    for _ in 0..6 {
        trail.write(3).await;
        trail.sealer.seal_all().await.unwrap();
        trail.storage.clock.advance(DAY);
    }
    let kept = trail.intact(18).await.head;
    assert_eq!(trail.prune(10).await.unwrap(), None, "nothing is that old");
    // Sealed 6, 5 and 4 days ago: more than three days, and more than a day's worth.
    assert_eq!(trail.prune(4).await.unwrap(), Some(9));
    assert_eq!(trail.prune(4).await.unwrap(), None, "less than a day's worth has expired since");
    let report = trail.verify(Some(kept)).await;
    assert_eq!((report.intact, report.after, report.rows), (true, 9, 9), "{report}");
    assert_eq!(report.unsealed, Some(1), "the pruning itself is in the trail");
    trail.sealer.seal_all().await.unwrap();
    let report = trail.verify(None).await;
    assert_eq!((report.intact, report.rows), (true, 10), "{report}");
    let old = Head { sequence: 5, hash: kept.hash };
    let fault = trail.verify(Some(old)).await.fault;
    assert_eq!(fault, Some(VerificationFault::TooOld { sequence: 5, begins: 9 }));
    // An export starts with the anchor, whatever `after` is.
    let text = trail.exported(4).await;
    assert!(text.starts_with(r#"{"type":"anchor","sequence":9,"#), "{text}");
    assert!(text.contains(r#""action":"CutAuditTrail""#));
    let report = verify_text(&text, &trail.known, Start::Whole, Some(kept));
    assert_eq!((report.intact, report.rows), (true, 10), "{report}");
    // An attacker deletes more rows.
    trail.execute("DELETE FROM audit_logs WHERE sequence <= 12").await;
    trail.execute("DELETE FROM audit_checkpoints WHERE sequence <= 12").await;
    assert_eq!(trail.fault().await, VerificationFault::Missing { first: 10, last: 12 });
    trail.execute("UPDATE audit_chain SET anchor_sequence = 12").await;
    assert!(matches!(
        trail.fault().await,
        VerificationFault::Unproven { what: "anchor", sequence: 12, .. }
    ));
}

async fn rows_are_not_pruned_without_a_valid_checkpoint_signature(on: On) {
    let trail = Trail::new(on).await;
    for _ in 0..2 {
        trail.write(3).await;
        trail.sealer.seal_all().await.unwrap();
    }
    trail.execute("UPDATE audit_checkpoints SET created_at = 0").await;
    let error = trail.prune(1).await.unwrap_err();
    assert!(matches!(error, SealError::Tampered(_)), "{error}");
    trail.execute("UPDATE audit_checkpoints SET signed = 'a.b.c'").await;
    trail.prune(1).await.unwrap_err();
    assert_eq!(trail.storage.number("SELECT COUNT(*) FROM audit_logs").await, 6);
}

#[tokio::test]
async fn a_long_trail_is_verified_and_exported_in_pages() {
    let trail = Trail::new(On::Sqlite).await;
    trail.write(1700).await;
    assert_eq!(trail.sealer.seal_all().await.unwrap(), 1700);
    trail.write(3).await;
    trail.sealer.seal_all().await.unwrap();
    assert_eq!(trail.intact(1703).await.checkpoints, 5);
    for limit in [1, 500, 1000, 5000] {
        let text = trail.exported(limit).await;
        let report = verify_text(&text, &trail.known, Start::Whole, None);
        assert_eq!((report.intact, report.rows), (true, 1703), "{limit}: {report}");
    }
    let part = export::export_page(&trail.storage.db, 500, 500).await.unwrap().unwrap();
    let part = part.to_json_lines().unwrap();
    let report = verify_text(&part, &trail.known, Start::Whole, None);
    assert_eq!(report.fault, Some(VerificationFault::Missing { first: 1, last: 500 }));
    let report = verify_text(&part, &trail.known, Start::After(500), None);
    assert_eq!((report.intact, report.after, report.rows), (true, 500, 500), "{report}");
}
