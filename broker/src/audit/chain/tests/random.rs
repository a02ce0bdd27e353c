//! Property tests: chains of random rows in a file, and every way to change them.

use std::{collections::BTreeMap, io::Cursor};

use proptest::{prelude::*, test_runner::TestCaseResult};

use super::{super::*, verify_text};
use crate::{
    audit::TrailRow,
    base::signing::{PrivateKey, PublicKeys},
};

fn some_text() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("\\PC{0,20}")
}

fn some_id() -> impl Strategy<Value = Option<uuid::Uuid>> {
    proptest::option::of(any::<u128>().prop_map(uuid::Uuid::from_u128))
}

fn row() -> impl Strategy<Value = TrailRow> {
    let ids = (some_id(), some_id(), some_id(), some_id(), some_id());
    let texts = (some_text(), some_text(), some_text(), some_text(), "\\PC{0,9}", "\\PC{0,9}");
    (any::<u128>(), 0..4_000_000_000_000i64, ids, texts).prop_map(|(id, created_at, ids, texts)| {
        TrailRow {
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

/// A chain of at least two batches, sealed with this key as the sealer does.
fn chain(key: &PrivateKey, batches: &[Vec<TrailRow>]) -> Vec<Line> {
    let (mut lines, mut sequence, mut hash) = (Vec::new(), 0, Hash::GENESIS);
    lines.push(Line::Start { sequence, hash });
    for batch in batches {
        for row in batch {
            sequence += 1;
            hash = hash.link(sequence, row);
            lines.push(Line::Row(Box::new(SealedRow { sequence, hash, row: row.clone() })));
        }
        let claims =
            CheckpointClaims { sequence, hash, at: "2026-01-02T03:04:05Z".parse().unwrap() };
        let signed = key.sign(CHECKPOINT, &claims).unwrap();
        lines.push(Line::Checkpoint { sequence, signed });
    }
    lines
}

fn text(lines: &[Line]) -> String {
    lines.iter().map(|line| line.to_json().unwrap() + "\n").collect()
}

fn batches() -> impl Strategy<Value = Vec<Vec<TrailRow>>> {
    proptest::collection::vec(proptest::collection::vec(row(), 1..5), 2..5)
}

struct Keys {
    key: PrivateKey,
    known: PublicKeys,
}

impl Keys {
    fn new() -> Self {
        let key = PrivateKey::generate();
        Self { known: PublicKeys::from_private(std::slice::from_ref(&key)), key }
    }

    fn report(&self, lines: &[Line], expected: Option<Head>) -> VerificationReport {
        verify_text(&text(lines), &self.known, Start::Whole, expected)
    }

    fn assert_detected(&self, lines: &[Line]) -> TestCaseResult {
        let report = self.report(lines, None);
        prop_assert!(report.fault.is_some(), "not detected:\n{}", text(lines));
        Ok(())
    }
}

/// Indexes of the rows among the lines.
fn row_indexes(lines: &[Line]) -> Vec<usize> {
    (0..lines.len()).filter(|index| matches!(lines[*index], Line::Row(_))).collect()
}

fn sealed(line: &mut Line) -> &mut SealedRow {
    match line {
        Line::Row(sealed) => sealed,
        other => panic!("{other:?} is no row"),
    }
}

/// Changes the column with this number.
fn change(row: &mut TrailRow, column: usize) {
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
        // Moves a value to the neighbouring column.
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
        let keys = Keys::new();
        let lines = chain(&keys.key, &batches);
        let report = keys.report(&lines, None);
        prop_assert!(report.intact, "{report}");
        prop_assert_eq!(report.rows, batches.iter().map(Vec::len).sum::<usize>() as u64);
        prop_assert!(keys.report(&lines, Some(report.head)).intact);
        let unknown_keys = PublicKeys::from_private(&[PrivateKey::generate()]);
        let report = verify_text(&text(&lines), &unknown_keys, Start::Whole, None);
        let unknown = matches!(report.fault, Some(VerificationFault::UnknownKey { .. }));
        prop_assert!(unknown, "{report}");
    }

    #[test]
    fn a_changed_column_is_detected_at_its_row(
        batches in batches(), which: prop::sample::Index, column in 0usize..14
    ) {
        let keys = Keys::new();
        let mut lines = chain(&keys.key, &batches);
        let index = *which.get(&row_indexes(&lines));
        let before = sealed(&mut lines[index]).row.clone();
        change(&mut sealed(&mut lines[index]).row, column);
        prop_assume!(sealed(&mut lines[index]).row != before);
        let wanted = sealed(&mut lines[index]).sequence;
        let fault = keys.report(&lines, None).fault;
        let found = matches!(fault, Some(VerificationFault::Changed { sequence, .. }) if sequence == wanted);
        prop_assert!(found, "{fault:?}");
    }

    #[test]
    fn a_removed_added_duplicated_or_moved_row_is_detected(
        batches in batches(), which: prop::sample::Index, to: prop::sample::Index, foreign in row()
    ) {
        let keys = Keys::new();
        let lines = chain(&keys.key, &batches);
        let all = row_indexes(&lines);
        let (index, other) = (*which.get(&all), *to.get(&all));
        let mut removed = lines.clone();
        let line = removed.remove(index);
        keys.assert_detected(&removed)?;
        let mut doubled = lines.clone();
        doubled.insert(other, line.clone());
        keys.assert_detected(&doubled)?;
        let mut added = lines.clone();
        let sequence = sealed(&mut added[index]).sequence;
        let hash = sealed(&mut added[index]).hash.link(sequence, &foreign);
        added.insert(index, Line::Row(Box::new(SealedRow { sequence, hash, row: foreign })));
        keys.assert_detected(&added)?;
        if index != other {
            let mut swapped = lines.clone();
            swapped.swap(index, other);
            keys.assert_detected(&swapped)?;
            // The same swap, with the sequence numbers corrected.
            let (mut one, mut two) = (lines[index].clone(), lines[other].clone());
            let (first, second) = (sealed(&mut one), sealed(&mut two));
            if first.row != second.row {
                std::mem::swap(&mut first.row, &mut second.row);
                let mut swapped_rows = lines.clone();
                (swapped_rows[index], swapped_rows[other]) = (one, two);
                keys.assert_detected(&swapped_rows)?;
            }
        }
    }

    #[test]
    fn truncation_at_either_end_is_detected(batches in batches(), cut: prop::sample::Index) {
        let keys = Keys::new();
        let lines = chain(&keys.key, &batches);
        let head = keys.report(&lines, None).head;
        // The start is removed: with and without a forged start line.
        let all = row_indexes(&lines);
        let index = all[1 + cut.index(all.len() - 1)];
        keys.assert_detected(&lines[index..])?;
        let mut before = lines[*all.iter().rev().find(|at| **at < index).unwrap()].clone();
        let start = sealed(&mut before);
        let start = Line::Start { sequence: start.sequence, hash: start.hash };
        keys.assert_detected(&[std::slice::from_ref(&start), &lines[index..]].concat())?;
        // The end is removed. Between checkpoints the rest is unsigned; at a checkpoint only the
        // kept head reveals it.
        let end = 1 + cut.index(lines.len() - 1);
        let report = keys.report(&lines[..end], Some(head));
        prop_assert!(!report.intact, "{report}");
        if matches!(lines[end - 1], Line::Row(_)) {
            keys.assert_detected(&lines[..end])?;
        }
    }

    #[test]
    fn a_chain_rewritten_without_the_key_is_detected(
        batches in batches(), which: prop::sample::Index, foreign in row()
    ) {
        let keys = Keys::new();
        let lines = chain(&keys.key, &batches);
        let head = keys.report(&lines, None).head;
        let from = which.index(batches.len());
        let mut rewritten = batches.clone();
        prop_assume!(rewritten[from][0] != foreign);
        rewritten[from][0] = foreign;
        // The hashes are recomputed; the checkpoints are the old ones, signed with an attacker's
        // key, or removed.
        let attacker = PrivateKey::generate();
        let mut forged = chain(&attacker, &rewritten);
        let old: BTreeMap<i64, Line> = lines
            .iter()
            .filter_map(|line| match line {
                Line::Checkpoint { sequence, .. } => Some((*sequence, line.clone())),
                _ => None,
            })
            .collect();
        keys.assert_detected(&forged)?;
        for line in &mut forged {
            if let Line::Checkpoint { sequence, .. } = line {
                *line = old[sequence].clone();
            }
        }
        let fault = keys.report(&forged, None).fault;
        let found = matches!(fault, Some(VerificationFault::Rewritten { .. }));
        prop_assert!(found, "{fault:?}");
        let first = batches[..from].iter().map(Vec::len).sum::<usize>() + 1;
        let first = i64::try_from(first).unwrap();
        forged.retain(|line| !matches!(line, Line::Checkpoint { sequence, .. } if *sequence >= first));
        keys.assert_detected(&forged)?;
        // Somebody with our key, but without the expected head.
        let again = chain(&keys.key, &rewritten);
        prop_assert!(!keys.report(&again, Some(head)).intact);
    }

    #[test]
    fn no_file_content_causes_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300), batches in batches(),
        at: prop::sample::Index, to: u8
    ) {
        let keys = Keys::new();
        let _ = verify_file(Cursor::new(bytes), &keys.known, Start::Whole, None, |_| {}).unwrap();
        // One byte of a valid file.
        let whole = text(&chain(&keys.key, &batches));
        let mut changed = whole.clone().into_bytes();
        let at = at.index(changed.len());
        prop_assume!(changed[at] != to);
        changed[at] = to;
        let report = verify_file(Cursor::new(changed), &keys.known, Start::Whole, None, |_| {});
        let report = report.unwrap();
        // The newline at the end of the last line does not matter.
        prop_assert!(!report.intact || at == whole.len() - 1, "byte {at} became {to}");
    }
}
