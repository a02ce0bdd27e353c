//! Export of the audit trail as JSON Lines, in the order of the chain, so that a copy can be
//! verified elsewhere.
//!
//! Only sealed rows are exported. A row that is committed late gets a later number, so a reader who
//! remembers the last number never misses a row.

use super::chain::{Hash, Line, State, checkpoints, hash_at, sealed_rows};
use crate::{base::db::Db, on_engine};

/// Rows that a page may have above the requested limit, because a page never splits a batch of the
/// sealer.
const MAX_EXTRA_ROWS: u32 = 500;

const LAST_CHECKPOINT: &str = "\
SELECT MAX(sequence) FROM audit_checkpoints WHERE sequence > $1 AND sequence <= $2";

const NEXT_CHECKPOINT: &str = "SELECT MIN(sequence) FROM audit_checkpoints WHERE sequence > $1";

/// Lines that can be verified on their own: the first line says where they start, and the last one
/// is a checkpoint.
#[derive(Debug)]
pub struct ExportPage {
    /// The lines in the order of the chain.
    pub lines: Vec<Line>,
    /// Number of the last row: `after` of the next page.
    pub next: i64,
}

impl ExportPage {
    /// The page as JSON Lines; each line ends with a newline.
    ///
    /// # Errors
    /// Serialization fails; it does not in practice.
    pub fn to_json_lines(&self) -> serde_json::Result<String> {
        let mut text = String::new();
        for line in &self.lines {
            text += &line.to_json()?;
            text.push('\n');
        }
        Ok(text)
    }
}

/// Reads the rows after number `after`, about `limit` of them; `None` if there are none yet. If
/// these rows were pruned, the page starts with the anchor.
///
/// # Errors
/// The database failed.
pub(super) async fn export_page(
    db: &Db,
    after: i64,
    limit: u32,
) -> sqlx::Result<Option<ExportPage>> {
    loop {
        let state = State::read(db).await?;
        let page = read_page(db, &state, after.max(0), limit).await?;
        // Rows that are pruned between two statements would leave a gap.
        if State::read(db).await?.anchor_sequence == state.anchor_sequence {
            return Ok(page);
        }
    }
}

async fn read_page(
    db: &Db,
    state: &State,
    after: i64,
    limit: u32,
) -> sqlx::Result<Option<ExportPage>> {
    let first = match state.anchor() {
        Some(anchor) if after <= state.anchor_sequence => anchor,
        _ if after == 0 => Line::Start { sequence: 0, hash: Hash::GENESIS },
        _ => match hash_at(db, after).await? {
            Some(hash) => Line::Start { sequence: after, hash },
            None => return Ok(None),
        },
    };
    let after = after.max(state.anchor_sequence);
    let max = after.saturating_add(limit.into());
    let within: Option<i64> = on_engine!(db.reader(), pool => sqlx::query_scalar(LAST_CHECKPOINT)
        .bind(after).bind(max).fetch_one(pool).await)?;
    let end = match within {
        Some(end) => Some(end),
        None => on_engine!(db.reader(), pool => sqlx::query_scalar(NEXT_CHECKPOINT)
            .bind(after).fetch_one(pool).await)?,
    };
    let Some(next) = end else { return Ok(None) };
    let max = i64::from(limit) + i64::from(MAX_EXTRA_ROWS);
    let rows = sealed_rows(db, after, next, max).await?;
    let checkpoints = checkpoints(db, after, next, max).await?;
    let mut lines = vec![first];
    let mut checkpoints = checkpoints.into_iter().peekable();
    for row in rows {
        let sequence = row.sequence;
        lines.push(Line::Row(Box::new(row)));
        while let Some((sequence, signed)) =
            checkpoints.next_if(|checkpoint| checkpoint.0 <= sequence)
        {
            lines.push(Line::Checkpoint { sequence, signed });
        }
    }
    Ok(Some(ExportPage { lines, next }))
}
