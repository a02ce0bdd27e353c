//! Attacks on a chain of real rows, as somebody can who writes to the database or to a copy.

mod random;

use std::{io::Cursor, sync::Arc};

use super::*;
use crate::{
    audit::{Action, Event, cut, export, record},
    clock::Clock,
    db::Db,
    on_engine,
    signing::{PrivateKey, PublicKeys},
    testing::{On, Storage, at_once, on_both_engines},
};

on_both_engines!(
    sealing_with_two_processes_at_once_gives_one_gapless_chain,
    a_crash_while_sealing_leaves_the_chain_as_it_was,
    a_row_that_is_committed_late_is_sealed_later_and_exported_once,
    what_is_done_to_the_database_is_found,
    an_end_that_was_cut_off_is_found_by_whoever_kept_the_head,
    after_retention_the_rest_verifies_and_a_foreign_cut_does_not,
    nobody_without_the_key_has_rows_cut,
);

/// A trail in a database, and the keys that seal it.
struct Trail {
    storage: Storage,
    sealer: Sealer,
    key: Arc<PrivateKey>,
    known: PublicKeys,
}

impl Trail {
    async fn new(on: On) -> Self {
        let storage = Storage::new(on).await;
        let key = Arc::new(PrivateKey::generate());
        let known = PublicKeys::of(std::slice::from_ref(&*key));
        let sealer = Sealer::new(storage.db.clone(), storage.clock.clone(), Arc::clone(&key));
        Self { storage, sealer, key, known }
    }

    async fn write(&self, rows: usize) {
        write(&self.storage.db, &self.storage.clock, rows).await;
    }

    async fn verify(&self, expected: Option<Expected>) -> Outcome {
        verify_database(&self.storage.db, &self.known, expected, |_| {}).await.unwrap()
    }

    async fn fault(&self) -> Fault {
        self.verify(None).await.fault.expect("a fault")
    }

    async fn intact(&self, rows: u64) -> Outcome {
        let outcome = self.verify(None).await;
        assert_eq!((&outcome.fault, outcome.rows), (&None, rows));
        outcome
    }

    async fn execute(&self, statement: &'static str) -> u64 {
        let mut tx = self.storage.db.begin().await.unwrap();
        let done = on_engine!(tx.connection(), c =>
            sqlx::query(statement).execute(c).await.map(|done| done.rows_affected()));
        let changed = done.unwrap_or_else(|error| panic!("{statement}: {error}"));
        tx.commit().await.unwrap();
        changed
    }

    async fn cut(&self, days: u32) -> Result<Option<i64>, SealError> {
        let (db, clock) = (&self.storage.db, &self.storage.clock);
        cut(db, clock, &self.key, &self.known, days).await
    }

    /// Every page of an export, of so many rows about.
    async fn exported(&self, limit: u32) -> String {
        let (mut text, mut after) = (String::new(), 0);
        while let Some(page) = export::page(&self.storage.db, after, limit).await.unwrap() {
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

fn in_file(text: &str, keys: &PublicKeys, start: Start, expected: Option<Expected>) -> Outcome {
    verify_file(Cursor::new(text), keys, start, expected, |_| {}).unwrap()
}

async fn sealing_with_two_processes_at_once_gives_one_gapless_chain(on: On) {
    let trail = Trail::new(on).await;
    trail.intact(0).await;
    let other = trail.storage.place.connect().await;
    let replicas = [trail.storage.db.clone(), other].map(|db| {
        (db.clone(), Sealer::new(db, trail.storage.clock.clone(), Arc::clone(&trail.key)))
    });
    let sealed = at_once((0..24).map(|n| {
        let ((db, sealer), clock) = (replicas[n % 2].clone(), trail.storage.clock.clone());
        async move {
            write(&db, &clock, 40).await;
            sealer.run().await.unwrap()
        }
    }))
    .await;
    let rest = trail.sealer.run().await.unwrap();
    assert_eq!(sealed.iter().sum::<u64>() + rest, 24 * 40);
    let outcome = trail.intact(24 * 40).await;
    assert_eq!((outcome.head.sequence, outcome.unsealed), (24 * 40, Some(0)));
    assert_eq!(trail.sealer.run().await.unwrap(), 0, "nothing is sealed twice");
}

async fn a_crash_while_sealing_leaves_the_chain_as_it_was(on: On) {
    let trail = Trail::new(on).await;
    trail.write(3).await;
    trail.sealer.run().await.unwrap();
    trail.write(4).await;
    let (tx, rows) = trail.sealer.prepare().await.unwrap().unwrap();
    assert_eq!(rows, 4);
    // The process ends before the commit.
    drop(tx);
    let outcome = trail.intact(3).await;
    assert_eq!((outcome.head.sequence, outcome.unsealed), (3, Some(4)));
    assert_eq!(trail.sealer.run().await.unwrap(), 4);
    trail.intact(7).await;
}

async fn a_row_that_is_committed_late_is_sealed_later_and_exported_once(on: On) {
    let trail = Trail::new(on).await;
    let (db, clock) = (&trail.storage.db, &trail.storage.clock);
    trail.write(2).await;
    // Stamped before the others, committed after they are sealed.
    let late = Event { reason: Some("late".into()), ..Event::success(Action::SignIn) };
    let late = late.stamped(clock);
    clock.advance(5000);
    trail.write(2).await;
    assert_eq!(trail.sealer.run().await.unwrap(), 4);
    let first = export::page(db, 0, 100).await.unwrap().unwrap();
    assert_eq!(first.next, 4);
    let mut tx = db.begin().await.unwrap();
    crate::audit::record_stamped(&mut tx, &late).await.unwrap();
    assert!(export::page(db, first.next, 100).await.unwrap().is_none(), "not committed");
    tx.commit().await.unwrap();
    assert!(export::page(db, first.next, 100).await.unwrap().is_none(), "not sealed");
    assert_eq!(trail.sealer.run().await.unwrap(), 1);
    let second = export::page(db, first.next, 100).await.unwrap().unwrap();
    assert_eq!(second.next, 5);
    trail.intact(5).await;
    let whole = first.to_json_lines().unwrap() + &second.to_json_lines().unwrap();
    assert_eq!(whole.matches("\"late\"").count(), 1);
    let outcome = in_file(&whole, &trail.known, Start::Whole, None);
    assert_eq!((outcome.intact, outcome.rows), (true, 5), "{outcome}");
}

/// Attacks on ten rows in two batches: statements, and what the fault says.
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
        "the checkpoint at row 10: what is signed is about row 5",
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

async fn what_is_done_to_the_database_is_found(on: On) {
    for (statements, said) in ATTACKS {
        let trail = Trail::new(on).await;
        for _ in 0..2 {
            trail.write(5).await;
            trail.sealer.run().await.unwrap();
        }
        trail.intact(10).await;
        for statement in statements {
            trail.execute(statement).await;
        }
        let fault = trail.fault().await.to_string();
        assert!(fault.starts_with(said), "{statements:?}: {fault}");
    }
}

async fn an_end_that_was_cut_off_is_found_by_whoever_kept_the_head(on: On) {
    let trail = Trail::new(on).await;
    trail.write(5).await;
    trail.sealer.run().await.unwrap();
    let before = trail.intact(5).await.head;
    trail.write(5).await;
    trail.sealer.run().await.unwrap();
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
    assert_eq!(fault, Some(Fault::Missing { first: 6, last: 10 }));
    // The broker goes on from there, and still the kept head is not in it.
    trail.write(7).await;
    trail.sealer.run().await.unwrap();
    let fault = trail.verify(Some(kept)).await.fault;
    assert_eq!(fault, Some(Fault::OtherHistory { sequence: 10 }));
}

const DAY: i64 = 24 * 3600 * 1000;

async fn after_retention_the_rest_verifies_and_a_foreign_cut_does_not(on: On) {
    let trail = Trail::new(on).await;
    for _ in 0..6 {
        trail.write(3).await;
        trail.sealer.run().await.unwrap();
        trail.storage.clock.advance(DAY);
    }
    let kept = trail.intact(18).await.head;
    assert_eq!(trail.cut(10).await.unwrap(), None, "nothing is that old");
    // Sealed 6, 5, 4 days ago: more than three days, and a day's worth.
    assert_eq!(trail.cut(4).await.unwrap(), Some(9));
    assert_eq!(trail.cut(4).await.unwrap(), None, "the next day's is not over");
    let outcome = trail.verify(Some(kept)).await;
    assert_eq!((outcome.intact, outcome.after, outcome.rows), (true, 9, 9), "{outcome}");
    assert_eq!(outcome.unsealed, Some(1), "the cut itself is in the trail");
    trail.sealer.run().await.unwrap();
    let outcome = trail.verify(None).await;
    assert_eq!((outcome.intact, outcome.rows), (true, 10), "{outcome}");
    let old = Expected { sequence: 5, hash: kept.hash };
    let fault = trail.verify(Some(old)).await.fault;
    assert_eq!(fault, Some(Fault::TooOld { sequence: 5, begins: 9 }));
    // An export begins with the anchor, whatever it is asked for.
    let text = trail.exported(4).await;
    assert!(text.starts_with(r#"{"type":"anchor","sequence":9,"#), "{text}");
    assert!(text.contains(r#""action":"CutAuditTrail""#));
    let outcome = in_file(&text, &trail.known, Start::Whole, Some(kept));
    assert_eq!((outcome.intact, outcome.rows), (true, 10), "{outcome}");
    // Somebody cuts further.
    trail.execute("DELETE FROM audit_logs WHERE sequence <= 12").await;
    trail.execute("DELETE FROM audit_checkpoints WHERE sequence <= 12").await;
    assert_eq!(trail.fault().await, Fault::Missing { first: 10, last: 12 });
    trail.execute("UPDATE audit_chain SET anchor_sequence = 12").await;
    assert!(matches!(trail.fault().await, Fault::Unproven { what: "anchor", sequence: 12, .. }));
}

async fn nobody_without_the_key_has_rows_cut(on: On) {
    let trail = Trail::new(on).await;
    for _ in 0..2 {
        trail.write(3).await;
        trail.sealer.run().await.unwrap();
    }
    trail.execute("UPDATE audit_checkpoints SET created_at = 0").await;
    let error = trail.cut(1).await.unwrap_err();
    assert!(matches!(error, SealError::Tampered(_)), "{error}");
    trail.execute("UPDATE audit_checkpoints SET signed = 'a.b.c'").await;
    trail.cut(1).await.unwrap_err();
    assert_eq!(trail.storage.number("SELECT COUNT(*) FROM audit_logs").await, 6);
}

#[tokio::test]
async fn a_long_trail_is_verified_and_exported_in_pages() {
    let trail = Trail::new(On::Sqlite).await;
    trail.write(1700).await;
    assert_eq!(trail.sealer.run().await.unwrap(), 1700);
    trail.write(3).await;
    trail.sealer.run().await.unwrap();
    assert_eq!(trail.intact(1703).await.checkpoints, 5);
    for limit in [1, 500, 1000, 5000] {
        let text = trail.exported(limit).await;
        let outcome = in_file(&text, &trail.known, Start::Whole, None);
        assert_eq!((outcome.intact, outcome.rows), (true, 1703), "{limit}: {outcome}");
    }
    let part = export::page(&trail.storage.db, 500, 500).await.unwrap().unwrap();
    let part = part.to_json_lines().unwrap();
    let outcome = in_file(&part, &trail.known, Start::Whole, None);
    assert_eq!(outcome.fault, Some(Fault::Missing { first: 1, last: 500 }));
    let outcome = in_file(&part, &trail.known, Start::After(500), None);
    assert_eq!((outcome.intact, outcome.after, outcome.rows), (true, 500, 500), "{outcome}");
}
