//! The trail as JSON Lines, in the order of the chain, so that a copy elsewhere can be verified.
//!
//! Only sealed rows are exported: a row that is committed late gets a later number, so a reader who
//! remembers the last number never misses one.

use super::chain::{Hash, Line, State, between, checkpoints, hash_at};
use crate::{db::Db, on_engine};

/// Rows that a page may have above what was asked for: a batch of the sealer is not torn.
const SLACK: u32 = 500;

const LAST_WITHIN: &str = "\
SELECT MAX(sequence) FROM audit_checkpoints WHERE sequence > $1 AND sequence <= $2";

const NEXT: &str = "SELECT MIN(sequence) FROM audit_checkpoints WHERE sequence > $1";

/// Lines that can be verified on their own: they begin with where they begin and end at a checkpoint.
#[derive(Debug)]
pub struct Page {
    /// The lines.
    pub lines: Vec<Line>,
    /// The last row's number: `after` of the next page.
    pub next: i64,
}

impl Page {
    /// As JSON Lines, each with its end.
    ///
    /// # Errors
    /// None in practice.
    pub fn to_json_lines(&self) -> serde_json::Result<String> {
        let mut text = String::new();
        for line in &self.lines {
            text += &line.to_json()?;
            text.push('\n');
        }
        Ok(text)
    }
}

/// The rows after this number, about as many as asked for; `None` if there is none yet. Rows that
/// were cut are not there: the page then begins with the anchor.
///
/// # Errors
/// The database's.
pub async fn page(db: &Db, after: i64, limit: u32) -> sqlx::Result<Option<Page>> {
    loop {
        let state = State::read(db).await?;
        let page = from(db, &state, after.max(0), limit).await?;
        // Rows that are cut between two statements leave a hole.
        if State::read(db).await?.anchor_sequence == state.anchor_sequence {
            return Ok(page);
        }
    }
}

async fn from(db: &Db, state: &State, after: i64, limit: u32) -> sqlx::Result<Option<Page>> {
    let first = match state.anchor() {
        Some(anchor) if after <= state.anchor_sequence => anchor,
        _ if after == 0 => Line::Start { sequence: 0, hash: Hash::GENESIS },
        _ => match hash_at(db, after).await? {
            Some(hash) => Line::Start { sequence: after, hash },
            None => return Ok(None),
        },
    };
    let after = after.max(state.anchor_sequence);
    let most = after.saturating_add(limit.into());
    let within: Option<i64> = on_engine!(db.reader(), pool => sqlx::query_scalar(LAST_WITHIN)
        .bind(after).bind(most).fetch_one(pool).await)?;
    let end = match within {
        Some(end) => Some(end),
        None => on_engine!(db.reader(), pool => sqlx::query_scalar(NEXT)
            .bind(after).fetch_one(pool).await)?,
    };
    let Some(next) = end else { return Ok(None) };
    let most = i64::from(limit) + i64::from(SLACK);
    let rows = between(db, after, next, most).await?;
    let marks = checkpoints(db, after, next, most).await?;
    let mut lines = vec![first];
    let mut marks = marks.into_iter().peekable();
    for row in rows {
        let sequence = row.sequence;
        lines.push(Line::Row(Box::new(row)));
        while let Some((sequence, signed)) = marks.next_if(|mark| mark.0 <= sequence) {
            lines.push(Line::Checkpoint { sequence, signed });
        }
    }
    Ok(Some(Page { lines, next }))
}
