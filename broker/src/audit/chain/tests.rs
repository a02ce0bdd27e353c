//! Attacks on a chain of real rows, as somebody can who writes to the database or to a copy.

use std::{collections::BTreeMap, io::Cursor, sync::Arc};

use proptest::{prelude::*, test_runner::TestCaseResult};

use super::*;
use crate::{
    audit::{Action, Event, Row, cut, export, record},
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

// ---- A chain of random rows, in a file.

fn some_text() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("\\PC{0,20}")
}

fn some_id() -> impl Strategy<Value = Option<uuid::Uuid>> {
    proptest::option::of(any::<u128>().prop_map(uuid::Uuid::from_u128))
}

fn row() -> impl Strategy<Value = Row> {
    let ids = (some_id(), some_id(), some_id(), some_id(), some_id());
    let texts = (some_text(), some_text(), some_text(), some_text(), "\\PC{0,9}", "\\PC{0,9}");
    (any::<u128>(), 0..4_000_000_000_000i64, ids, texts).prop_map(|(id, created_at, ids, texts)| {
        Row {
            id: uuid::Uuid::from_u128(id),
            created_at,
            user_id: ids.0,
            subject_user_id: ids.1,
            workspace_id: ids.2,
            session_id: ids.3,
            subject_session_id: ids.4,
            credential_id: texts.0,
            ip_address: texts.1,
            request_id: texts.2,
            reason: texts.3,
            action: texts.4,
            outcome: texts.5,
        }
    })
}

/// Rows of two batches at least, sealed with this key as the sealer does.
fn chain(key: &PrivateKey, batches: &[Vec<Row>]) -> Vec<Line> {
    let (mut lines, mut sequence, mut hash) = (Vec::new(), 0, Hash::GENESIS);
    lines.push(Line::Start { sequence, hash });
    for batch in batches {
        for row in batch {
            sequence += 1;
            hash = hash.link(sequence, row);
            lines.push(Line::Row(Box::new(Sealed { sequence, hash, row: row.clone() })));
        }
        let mark = Mark { sequence, hash, at: "2026-01-02T03:04:05Z".parse().unwrap() };
        let signed = key.sign(CHECKPOINT, &mark).unwrap();
        lines.push(Line::Checkpoint { sequence, signed });
    }
    lines
}

fn text(lines: &[Line]) -> String {
    lines.iter().map(|line| line.to_json().unwrap() + "\n").collect()
}

fn batches() -> impl Strategy<Value = Vec<Vec<Row>>> {
    proptest::collection::vec(proptest::collection::vec(row(), 1..5), 2..5)
}

struct Tried {
    key: PrivateKey,
    known: PublicKeys,
}

impl Tried {
    fn new() -> Self {
        let key = PrivateKey::generate();
        Self { known: PublicKeys::of(std::slice::from_ref(&key)), key }
    }

    fn outcome(&self, lines: &[Line], expected: Option<Expected>) -> Outcome {
        in_file(&text(lines), &self.known, Start::Whole, expected)
    }

    fn found(&self, lines: &[Line]) -> TestCaseResult {
        let outcome = self.outcome(lines, None);
        prop_assert!(outcome.fault.is_some(), "not found:\n{}", text(lines));
        Ok(())
    }
}

/// Places of the rows among the lines.
fn places(lines: &[Line]) -> Vec<usize> {
    (0..lines.len()).filter(|place| matches!(lines[*place], Line::Row(_))).collect()
}

fn sealed(line: &mut Line) -> &mut Sealed {
    match line {
        Line::Row(sealed) => sealed,
        other => panic!("{other:?} is no row"),
    }
}

/// Changes one column; which one, by number.
fn change(row: &mut Row, column: usize) {
    let text = |text: &mut Option<String>| *text = Some(text.take().unwrap_or_default() + "x");
    let id = |id: &mut Option<uuid::Uuid>| {
        *id = Some(uuid::Uuid::from_u128(id.map_or(1, |id| id.as_u128() ^ 1)));
    };
    match column {
        0 => row.id = uuid::Uuid::from_u128(row.id.as_u128() ^ 1),
        1 => row.created_at += 1,
        2 => row.action.push('x'),
        3 => row.outcome.push('x'),
        4 => id(&mut row.user_id),
        5 => id(&mut row.subject_user_id),
        6 => id(&mut row.workspace_id),
        7 => id(&mut row.session_id),
        8 => id(&mut row.subject_session_id),
        9 => text(&mut row.credential_id),
        10 => text(&mut row.ip_address),
        11 => text(&mut row.request_id),
        12 => text(&mut row.reason),
        // What is in one column, in the one beside it.
        _ => {
            (row.credential_id, row.ip_address) = (Some("a".into()), None);
            std::mem::swap(&mut row.request_id, &mut row.reason);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn an_untouched_chain_verifies(batches in batches()) {
        let tried = Tried::new();
        let lines = chain(&tried.key, &batches);
        let outcome = tried.outcome(&lines, None);
        prop_assert!(outcome.intact, "{outcome}");
        prop_assert_eq!(outcome.rows, batches.iter().map(Vec::len).sum::<usize>() as u64);
        prop_assert!(tried.outcome(&lines, Some(outcome.head)).intact);
        let strangers = PublicKeys::of(&[PrivateKey::generate()]);
        let outcome = in_file(&text(&lines), &strangers, Start::Whole, None);
        let unknown = matches!(outcome.fault, Some(Fault::UnknownKey { .. }));
        prop_assert!(unknown, "{outcome}");
    }

    #[test]
    fn a_changed_column_is_found_at_its_row(
        batches in batches(), which: prop::sample::Index, column in 0usize..14
    ) {
        let tried = Tried::new();
        let mut lines = chain(&tried.key, &batches);
        let place = *which.get(&places(&lines));
        let before = sealed(&mut lines[place]).row.clone();
        change(&mut sealed(&mut lines[place]).row, column);
        prop_assume!(sealed(&mut lines[place]).row != before);
        let wanted = sealed(&mut lines[place]).sequence;
        let fault = tried.outcome(&lines, None).fault;
        let found = matches!(fault, Some(Fault::Changed { sequence, .. }) if sequence == wanted);
        prop_assert!(found, "{fault:?}");
    }

    #[test]
    fn a_row_that_is_removed_added_doubled_or_moved_is_found(
        batches in batches(), which: prop::sample::Index, to: prop::sample::Index, foreign in row()
    ) {
        let tried = Tried::new();
        let lines = chain(&tried.key, &batches);
        let all = places(&lines);
        let (place, other) = (*which.get(&all), *to.get(&all));
        let mut removed = lines.clone();
        let line = removed.remove(place);
        tried.found(&removed)?;
        let mut doubled = lines.clone();
        doubled.insert(other, line.clone());
        tried.found(&doubled)?;
        let mut added = lines.clone();
        let sequence = sealed(&mut added[place]).sequence;
        let hash = sealed(&mut added[place]).hash.link(sequence, &foreign);
        added.insert(place, Line::Row(Box::new(Sealed { sequence, hash, row: foreign })));
        tried.found(&added)?;
        if place != other {
            let mut swapped = lines.clone();
            swapped.swap(place, other);
            tried.found(&swapped)?;
            // With the numbers put right.
            let (mut one, mut two) = (lines[place].clone(), lines[other].clone());
            let (first, second) = (sealed(&mut one), sealed(&mut two));
            if first.row != second.row {
                std::mem::swap(&mut first.row, &mut second.row);
                let mut exchanged = lines.clone();
                (exchanged[place], exchanged[other]) = (one, two);
                tried.found(&exchanged)?;
            }
        }
    }

    #[test]
    fn a_cut_at_either_end_is_found(batches in batches(), cut: prop::sample::Index) {
        let tried = Tried::new();
        let lines = chain(&tried.key, &batches);
        let head = tried.outcome(&lines, None).head;
        // The beginning: with and without a false start.
        let all = places(&lines);
        let place = all[1 + cut.index(all.len() - 1)];
        tried.found(&lines[place..])?;
        let mut before = lines[*all.iter().rev().find(|at| **at < place).unwrap()].clone();
        let start = sealed(&mut before);
        let start = Line::Start { sequence: start.sequence, hash: start.hash };
        tried.found(&[std::slice::from_ref(&start), &lines[place..]].concat())?;
        // The end: anywhere it is unsigned, at a checkpoint only the kept head shows it.
        let end = 1 + cut.index(lines.len() - 1);
        let outcome = tried.outcome(&lines[..end], Some(head));
        prop_assert!(!outcome.intact, "{outcome}");
        if matches!(lines[end - 1], Line::Row(_)) {
            tried.found(&lines[..end])?;
        }
    }

    #[test]
    fn whoever_has_no_key_rewrites_nothing(
        batches in batches(), which: prop::sample::Index, foreign in row()
    ) {
        let tried = Tried::new();
        let lines = chain(&tried.key, &batches);
        let head = tried.outcome(&lines, None).head;
        let from = which.index(batches.len());
        let mut rewritten = batches.clone();
        prop_assume!(rewritten[from][0] != foreign);
        rewritten[from][0] = foreign;
        // The rows are made anew; the checkpoints are the old ones, a thief's, or gone.
        let thief = PrivateKey::generate();
        let mut forged = chain(&thief, &rewritten);
        let old: BTreeMap<i64, Line> = lines
            .iter()
            .filter_map(|line| match line {
                Line::Checkpoint { sequence, .. } => Some((*sequence, line.clone())),
                _ => None,
            })
            .collect();
        tried.found(&forged)?;
        for line in &mut forged {
            if let Line::Checkpoint { sequence, .. } = line {
                *line = old[sequence].clone();
            }
        }
        let fault = tried.outcome(&forged, None).fault;
        let found = matches!(fault, Some(Fault::Rewritten { .. }));
        prop_assert!(found, "{fault:?}");
        let first = batches[..from].iter().map(Vec::len).sum::<usize>() + 1;
        let first = i64::try_from(first).unwrap();
        forged.retain(|line| !matches!(line, Line::Checkpoint { sequence, .. } if *sequence >= first));
        tried.found(&forged)?;
        // Another who has a key of ours, but not the head that was kept.
        let again = chain(&tried.key, &rewritten);
        prop_assert!(!tried.outcome(&again, Some(head)).intact);
    }

    #[test]
    fn whatever_a_file_holds_is_an_answer_and_no_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300), batches in batches(),
        at: prop::sample::Index, to: u8
    ) {
        let tried = Tried::new();
        let _ = verify_file(Cursor::new(bytes), &tried.known, Start::Whole, None, |_| {}).unwrap();
        // One byte of a whole file.
        let whole = text(&chain(&tried.key, &batches));
        let mut changed = whole.clone().into_bytes();
        let at = at.index(changed.len());
        prop_assume!(changed[at] != to);
        changed[at] = to;
        let outcome = verify_file(Cursor::new(changed), &tried.known, Start::Whole, None, |_| {});
        let outcome = outcome.unwrap();
        // What ends the last line decides nothing; times of checkpoints are not read from outside.
        prop_assert!(!outcome.intact || at == whole.len() - 1, "byte {at} became {to}");
    }
}
