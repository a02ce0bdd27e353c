//! Faults of an audit trail: what verification can find.

use serde::Serialize;
use uuid::Uuid;

/// The first fault of a trail.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum VerificationFault {
    /// Rows are missing.
    #[error("rows {first} to {last} are missing")]
    Missing {
        /// Number of the first missing row.
        first: i64,
        /// Number of the last missing row.
        last: i64,
    },
    /// A row differs from what was sealed.
    #[error("row {sequence} ({id}) is not what was sealed at this place: changed, added or moved")]
    Changed {
        /// Number of the row.
        sequence: i64,
        /// Identifier of the row.
        id: Uuid,
    },
    /// A row has a number that an earlier row already has.
    #[error("row {sequence} ({id}) is at a place that another row has: added, moved or doubled")]
    Repeated {
        /// Number of the row.
        sequence: i64,
        /// Identifier of the row.
        id: Uuid,
    },
    /// Rows were rewritten up to a checkpoint, which still contains the old hash.
    #[error(
        "rows {first} to {last} were rewritten: their hashes fit each other, but not what was signed"
    )]
    Rewritten {
        /// The first row after the last valid checkpoint.
        first: i64,
        /// The row of this checkpoint.
        last: i64,
    },
    /// A checkpoint or an anchor is invalid.
    #[error("the {what} at row {sequence}: {why}")]
    Unproven {
        /// `checkpoint` or `anchor`.
        what: &'static str,
        /// Number of the row.
        sequence: i64,
        /// The cause as text.
        why: String,
    },
    /// A checkpoint or an anchor is signed with an unknown key.
    #[error(
        "the {what} at row {sequence} names the key {kid}, which is not among the known ones; if it \
         was yours once, give it with --keys or audit.known_keys_file"
    )]
    UnknownKey {
        /// `checkpoint` or `anchor`.
        what: &'static str,
        /// Number of the row.
        sequence: i64,
        /// Key id (`kid`) of the signature.
        kid: String,
    },
    /// Rows at the end are not covered by a checkpoint.
    #[error("rows {first} to {last} are under no signed checkpoint")]
    Unsigned {
        /// Number of the first such row.
        first: i64,
        /// Number of the last such row.
        last: i64,
    },
    /// The head, which the next sealed row would follow, is not the last row.
    #[error("the chain's head is row {head}, but the last row is {last}")]
    Head {
        /// Number that the head names.
        head: i64,
        /// Number of the last row.
        last: i64,
    },
    /// The head is missing.
    #[error("the chain's head is missing")]
    NoHead,
    /// The expected head is not in the trail.
    #[error("row {sequence} differs from the expected head: the trail was rewritten or replaced")]
    OtherHistory {
        /// Number of the row.
        sequence: i64,
    },
    /// The expected head is older than the trail.
    #[error("row {sequence} was kept, but the trail begins after row {begins}: keep a later head")]
    TooOld {
        /// Number of the row.
        sequence: i64,
        /// Number of the row before the first one.
        begins: i64,
    },
    /// A row or line cannot be decoded.
    #[error("after row {after}: cannot be read: {why}")]
    Unreadable {
        /// Number of the last row that could be decoded.
        after: i64,
        /// The cause as text.
        why: String,
    },
}
