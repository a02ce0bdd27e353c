//! Chains of random rows in a file, and every way of changing them.

use std::{collections::BTreeMap, io::Cursor};

use proptest::{prelude::*, test_runner::TestCaseResult};

use super::{super::*, in_file};
use crate::{
    audit::Row,
    signing::{PrivateKey, PublicKeys},
};

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
