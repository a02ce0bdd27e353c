//! Verification of the chain in the database.

use sqlx::FromRow as _;
use uuid::Uuid;

use super::{
    Hash, Head, Line, SealedRow, Start, VerificationFault, VerificationReport, verify::Verifier,
};
use crate::{
    base::{
        db::{Db, Tx},
        signing::PublicKeys,
    },
    on_engine,
};

/// Rows that are in memory at once.
const PAGE_ROWS: i64 = 500;
/// Attempts to verify; a new attempt starts if rows were pruned meanwhile.
const MAX_ATTEMPTS: usize = 3;

/// One statement, so that all values belong to the same snapshot.
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

/// The head and the anchor of the chain.
#[derive(Debug, sqlx::FromRow)]
pub(in crate::audit) struct State {
    /// Number of the last row that the sealer sealed.
    pub(in crate::audit) sequence: i64,
    /// Hash of that row.
    #[sqlx(try_from = "Vec<u8>")]
    pub(in crate::audit) hash: Hash,
    /// When it was sealed, in milliseconds since 1970.
    pub(in crate::audit) sealed_at: i64,
    /// Number of the last pruned row; 0 if none was pruned.
    pub(in crate::audit) anchor_sequence: i64,
    /// The signed anchor for that row.
    pub(in crate::audit) anchor: Option<String>,
    /// Number of the last row that the table has.
    last_row: i64,
    /// Number of the last checkpoint that the table has.
    last_checkpoint: i64,
}

impl State {
    /// Reads the current state; `RowNotFound` if somebody removed it.
    pub(in crate::audit) async fn read(db: &Db) -> sqlx::Result<Self> {
        on_engine!(db.reader(), pool => sqlx::query_as(STATE).fetch_one(pool).await)
    }

    /// The anchor, if rows were pruned.
    pub(in crate::audit) fn anchor(&self) -> Option<Line> {
        let signed = self.anchor.clone()?;
        Some(Line::Anchor { sequence: self.anchor_sequence, signed })
    }
}

const HEAD: &str = "SELECT sequence, hash FROM audit_chain WHERE id = 1";

/// The last sealed row, as the transaction sees it.
///
/// # Errors
/// The database failed, or somebody removed the head.
pub async fn head(tx: &mut Tx) -> sqlx::Result<Head> {
    let (sequence, hash): (i64, Vec<u8>) =
        on_engine!(tx.connection(), c => sqlx::query_as(HEAD).fetch_one(c).await)?;
    let hash = Hash::try_from(hash).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
    Ok(Head { sequence, hash })
}

type RowResult = Result<SealedRow, String>;

/// Sealed rows after this one, in order, up to `until`: each row, or why it cannot be decoded.
async fn read_rows(
    db: &Db,
    after: (i64, Uuid),
    until: i64,
    limit: i64,
) -> sqlx::Result<Vec<RowResult>> {
    on_engine!(db.reader(), pool => {
        let query = sqlx::query(ROWS).bind(after.0).bind(after.1).bind(until).bind(limit);
        let rows = query.fetch_all(pool).await?;
        Ok(rows.iter().map(|row| SealedRow::from_row(row).map_err(|error| error.to_string())).collect())
    })
}

/// Sealed rows after this number, in order.
pub(in crate::audit) async fn sealed_rows(
    db: &Db,
    after: i64,
    until: i64,
    limit: i64,
) -> sqlx::Result<Vec<SealedRow>> {
    // All bits are set: no identifier is greater.
    let rows = read_rows(db, (after, Uuid::max()), until, limit).await?;
    rows.into_iter().map(|row| row.map_err(|why| sqlx::Error::Decode(why.into()))).collect()
}

/// Checkpoints after this row, in order, up to `until`.
pub(in crate::audit) async fn checkpoints(
    db: &Db,
    after: i64,
    until: i64,
    limit: i64,
) -> sqlx::Result<Vec<(i64, String)>> {
    on_engine!(db.reader(), pool => sqlx::query_as(CHECKPOINTS)
        .bind(after).bind(until).bind(limit).fetch_all(pool).await)
}

/// The hash of this row, if the row exists.
pub(in crate::audit) async fn hash_at(db: &Db, sequence: i64) -> sqlx::Result<Option<Hash>> {
    let bytes: Option<Vec<u8>> = on_engine!(db.reader(), pool => sqlx::query_scalar(HASH_AT)
        .bind(sequence).fetch_optional(pool).await)?;
    Ok(bytes.and_then(|bytes| bytes.try_into().ok()))
}

/// Verifies the trail in the database, while the broker may write to it. `progress` is called after
/// every page with the number of verified rows.
///
/// # Errors
/// The database failed.
pub async fn verify(
    db: &Db,
    keys: &PublicKeys,
    expected: Option<Head>,
    mut progress: impl FnMut(u64),
) -> sqlx::Result<VerificationReport> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let state = match State::read(db).await {
            Err(sqlx::Error::RowNotFound) => {
                let verifier = Verifier::new(keys, Start::Whole, expected);
                return Ok(verifier.into_report(Some(VerificationFault::NoHead), None));
            }
            state => state?,
        };
        let mut verifier = Verifier::new(keys, Start::Whole, expected);
        let fault = verify_rows(db, &state, &mut verifier, &mut progress).await?.err();
        // Rows that were pruned during the verification are no fault.
        let retry = fault.is_some()
            && attempts < MAX_ATTEMPTS
            && State::read(db).await?.anchor_sequence != state.anchor_sequence;
        if !retry {
            let unsealed = on_engine!(db.reader(), pool =>
                sqlx::query_scalar(COUNT_UNSEALED).fetch_one(pool).await)?;
            return Ok(verifier.into_report(fault, Some(unsealed)));
        }
    }
}

/// Verifies the rows and checkpoints that existed when the state was read, in the order of the
/// chain.
async fn verify_rows(
    db: &Db,
    state: &State,
    verifier: &mut Verifier<'_>,
    progress: &mut impl FnMut(u64),
) -> sqlx::Result<Result<(), VerificationFault>> {
    if let Some(anchor) = state.anchor()
        && let Err(fault) = verifier.check(&anchor)
    {
        return Ok(Err(fault));
    }
    let last = state.last_row.max(state.last_checkpoint);
    let (mut after, mut last_checkpoint) = ((i64::MIN, Uuid::nil()), i64::MIN);
    loop {
        let page = read_rows(db, after, last, PAGE_ROWS).await?;
        let is_full = page.len() as u64 == PAGE_ROWS.unsigned_abs();
        let until = match page.last() {
            Some(Ok(row)) if is_full => row.sequence,
            _ => last,
        };
        // There are no more checkpoints than rows, unless somebody added some: then one of them is
        // a fault.
        let checkpoints = checkpoints(db, last_checkpoint, until, 2 * PAGE_ROWS).await?;
        last_checkpoint = until;
        if let Some(Ok(row)) = page.last() {
            after = (row.sequence, row.row.id);
        }
        if let Err(fault) = verify_page(verifier, page, checkpoints) {
            return Ok(Err(fault));
        }
        progress(verifier.rows());
        if !is_full {
            break;
        }
    }
    Ok(verify_head(state, verifier))
}

/// Verifies a page of rows and checkpoints, each checkpoint after its row.
fn verify_page(
    verifier: &mut Verifier<'_>,
    page: Vec<RowResult>,
    checkpoints: Vec<(i64, String)>,
) -> Result<(), VerificationFault> {
    let mut checkpoints = checkpoints.into_iter().peekable();
    for row in page {
        let after = verifier.last().sequence;
        let row = row.map_err(|why| VerificationFault::Unreadable { after, why })?;
        while let Some((sequence, signed)) =
            checkpoints.next_if(|checkpoint| checkpoint.0 < row.sequence)
        {
            verifier.check(&Line::Checkpoint { sequence, signed })?;
        }
        verifier.check(&Line::Row(Box::new(row)))?;
    }
    checkpoints
        .try_for_each(|(sequence, signed)| verifier.check(&Line::Checkpoint { sequence, signed }))
}

/// Whether the last row is the head, which the next sealed row would follow.
fn verify_head(state: &State, verifier: &Verifier<'_>) -> Result<(), VerificationFault> {
    verifier.finish()?;
    let last = verifier.last();
    if (last.sequence, last.hash) == (state.sequence, state.hash) {
        return Ok(());
    }
    Err(if state.sequence > last.sequence {
        VerificationFault::Missing { first: last.sequence + 1, last: state.sequence }
    } else {
        VerificationFault::Head { head: state.sequence, last: last.sequence }
    })
}
