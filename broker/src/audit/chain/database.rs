//! The chain as it is in the database.

use sqlx::FromRow as _;
use uuid::Uuid;

use super::{Expected, Fault, Hash, Line, Outcome, Sealed, Start, verify::Verifier};
use crate::{db::Db, on_engine, signing::PublicKeys};

/// Rows that are in memory at once.
const PAGE: i64 = 500;
/// How often verifying begins again because rows were cut meanwhile.
const TRIES: usize = 3;

/// One statement, so that all of it was true at once.
const STATE: &str = "\
SELECT sequence, hash, sealed_at, anchor_sequence, anchor, \
  COALESCE((SELECT MAX(sequence) FROM audit_logs WHERE sequence IS NOT NULL), anchor_sequence) \
    AS last_row, \
  COALESCE((SELECT MAX(sequence) FROM audit_checkpoints), anchor_sequence) AS last_checkpoint \
FROM audit_chain WHERE id = 1";

const COUNT_UNSEALED: &str = "SELECT COUNT(*) FROM audit_logs WHERE sequence IS NULL";

const ROWS: &str = concat!(
    "SELECT sequence, hash, ",
    columns!(),
    " FROM audit_logs WHERE sequence >= $1 AND (sequence > $1 OR id > $2) AND sequence <= $3 \
     ORDER BY sequence, id LIMIT $4"
);

const CHECKPOINTS: &str = "\
SELECT sequence, signed FROM audit_checkpoints WHERE sequence > $1 AND sequence <= $2 \
ORDER BY sequence LIMIT $3";

const HASH_AT: &str = "SELECT hash FROM audit_logs WHERE sequence = $1";

/// Where the chain ends and begins.
#[derive(Debug, sqlx::FromRow)]
pub(in crate::audit) struct State {
    /// The last row, as the sealer knows it.
    pub(in crate::audit) sequence: i64,
    /// Its hash.
    #[sqlx(try_from = "Vec<u8>")]
    pub(in crate::audit) hash: Hash,
    /// When it was sealed.
    pub(in crate::audit) sealed_at: i64,
    /// The last row that was cut; 0 if none was.
    pub(in crate::audit) anchor_sequence: i64,
    /// The signed statement that says so.
    pub(in crate::audit) anchor: Option<String>,
    /// The last row that is there.
    last_row: i64,
    /// The last checkpoint that is there.
    last_checkpoint: i64,
}

impl State {
    /// The state now; `RowNotFound` if somebody removed it.
    pub(in crate::audit) async fn read(db: &Db) -> sqlx::Result<Self> {
        on_engine!(db.reader(), pool => sqlx::query_as(STATE).fetch_one(pool).await)
    }

    /// The anchor, if rows were cut.
    pub(in crate::audit) fn anchor(&self) -> Option<Line> {
        let signed = self.anchor.clone()?;
        Some(Line::Anchor { sequence: self.anchor_sequence, signed })
    }
}

type Readable = Result<Sealed, String>;

/// Sealed rows after this one, in order, up to `until`: each, or why it cannot be read.
async fn rows(db: &Db, after: (i64, Uuid), until: i64, most: i64) -> sqlx::Result<Vec<Readable>> {
    on_engine!(db.reader(), pool => {
        let query = sqlx::query(ROWS).bind(after.0).bind(after.1).bind(until).bind(most);
        let rows = query.fetch_all(pool).await?;
        Ok(rows.iter().map(|row| Sealed::from_row(row).map_err(|error| error.to_string())).collect())
    })
}

/// Sealed rows after this number, in order.
pub(in crate::audit) async fn between(
    db: &Db,
    after: i64,
    until: i64,
    most: i64,
) -> sqlx::Result<Vec<Sealed>> {
    // All bits set: no identifier is greater.
    let rows = rows(db, (after, Uuid::max()), until, most).await?;
    rows.into_iter().map(|row| row.map_err(|why| sqlx::Error::Decode(why.into()))).collect()
}

/// Checkpoints after this row, in order, up to `until`.
pub(in crate::audit) async fn checkpoints(
    db: &Db,
    after: i64,
    until: i64,
    most: i64,
) -> sqlx::Result<Vec<(i64, String)>> {
    on_engine!(db.reader(), pool => sqlx::query_as(CHECKPOINTS)
        .bind(after).bind(until).bind(most).fetch_all(pool).await)
}

/// The hash of this row, if it is there.
pub(in crate::audit) async fn hash_at(db: &Db, sequence: i64) -> sqlx::Result<Option<Hash>> {
    let bytes: Option<Vec<u8>> = on_engine!(db.reader(), pool => sqlx::query_scalar(HASH_AT)
        .bind(sequence).fetch_optional(pool).await)?;
    Ok(bytes.and_then(|bytes| bytes.try_into().ok()))
}

/// Verifies the trail in the database, while the broker may write to it. `progress` hears of every
/// page how many rows were looked at.
///
/// # Errors
/// The database's.
pub async fn verify(
    db: &Db,
    keys: &PublicKeys,
    expected: Option<Expected>,
    mut progress: impl FnMut(u64),
) -> sqlx::Result<Outcome> {
    let mut tries = 0;
    loop {
        tries += 1;
        let state = match State::read(db).await {
            Err(sqlx::Error::RowNotFound) => {
                let verifier = Verifier::new(keys, Start::Whole, expected);
                return Ok(verifier.outcome(Some(Fault::NoHead), None));
            }
            state => state?,
        };
        let mut verifier = Verifier::new(keys, Start::Whole, expected);
        let fault = walk(db, &state, &mut verifier, &mut progress).await?.err();
        // Rows that were cut while we looked are no fault.
        let again = fault.is_some()
            && tries < TRIES
            && State::read(db).await?.anchor_sequence != state.anchor_sequence;
        if !again {
            let unsealed = on_engine!(db.reader(), pool =>
                sqlx::query_scalar(COUNT_UNSEALED).fetch_one(pool).await)?;
            return Ok(verifier.outcome(fault, Some(unsealed)));
        }
    }
}

/// All that was there when the state was read, in the order of the chain.
async fn walk(
    db: &Db,
    state: &State,
    verifier: &mut Verifier<'_>,
    progress: &mut impl FnMut(u64),
) -> sqlx::Result<Result<(), Fault>> {
    if let Some(anchor) = state.anchor()
        && let Err(fault) = verifier.take(&anchor)
    {
        return Ok(Err(fault));
    }
    let last = state.last_row.max(state.last_checkpoint);
    let (mut after, mut marked) = ((i64::MIN, Uuid::nil()), i64::MIN);
    loop {
        let page = rows(db, after, last, PAGE).await?;
        let whole = page.len() as u64 == PAGE.unsigned_abs();
        let until = match page.last() {
            Some(Ok(row)) if whole => row.sequence,
            _ => last,
        };
        // No more than rows, unless somebody added some: then one of them is a fault.
        let marks = checkpoints(db, marked, until, 2 * PAGE).await?;
        marked = until;
        if let Some(Ok(row)) = page.last() {
            after = (row.sequence, row.row.id);
        }
        if let Err(fault) = merge(verifier, page, marks) {
            return Ok(Err(fault));
        }
        progress(verifier.rows());
        if !whole {
            break;
        }
    }
    Ok(ends(state, verifier))
}

/// Each checkpoint behind its row.
fn merge(
    verifier: &mut Verifier<'_>,
    page: Vec<Readable>,
    marks: Vec<(i64, String)>,
) -> Result<(), Fault> {
    let mut marks = marks.into_iter().peekable();
    for row in page {
        let after = verifier.last().sequence;
        let row = row.map_err(|why| Fault::Unreadable { after, why })?;
        while let Some((sequence, signed)) = marks.next_if(|mark| mark.0 < row.sequence) {
            verifier.take(&Line::Checkpoint { sequence, signed })?;
        }
        verifier.take(&Line::Row(Box::new(row)))?;
    }
    marks.try_for_each(|(sequence, signed)| verifier.take(&Line::Checkpoint { sequence, signed }))
}

/// Whether the end is the head, which the next row would follow.
fn ends(state: &State, verifier: &Verifier<'_>) -> Result<(), Fault> {
    verifier.finish()?;
    let last = verifier.last();
    if (last.sequence, last.hash) == (state.sequence, state.hash) {
        return Ok(());
    }
    Err(if state.sequence > last.sequence {
        Fault::Missing { first: last.sequence + 1, last: state.sequence }
    } else {
        Fault::Head { head: state.sequence, last: last.sequence }
    })
}
