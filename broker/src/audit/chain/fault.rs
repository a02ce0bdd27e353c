//! What can be wrong with a trail.

use serde::Serialize;
use uuid::Uuid;

/// The first thing that is wrong with a trail.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Fault {
    /// Rows are not there.
    #[error("rows {first} to {last} are missing")]
    Missing {
        /// The first of them.
        first: i64,
        /// The last of them.
        last: i64,
    },
    /// A row is not what was sealed.
    #[error("row {sequence} ({id}) is not what was sealed at this place: changed, added or moved")]
    Changed {
        /// Its number.
        sequence: i64,
        /// Its identifier.
        id: Uuid,
    },
    /// A row has a number that was there already.
    #[error("row {sequence} ({id}) is at a place that another row has: added, moved or doubled")]
    Repeated {
        /// Its number.
        sequence: i64,
        /// Its identifier.
        id: Uuid,
    },
    /// Rows were made anew up to a checkpoint, which still knows the old ones.
    #[error(
        "rows {first} to {last} were rewritten: their hashes fit each other, but not what was signed"
    )]
    Rewritten {
        /// The first row after the last good checkpoint.
        first: i64,
        /// The row of this checkpoint.
        last: i64,
    },
    /// A signed statement is not what it should be.
    #[error("the {what} at row {sequence}: {why}")]
    Unproven {
        /// Checkpoint or anchor.
        what: &'static str,
        /// The row.
        sequence: i64,
        /// What is wrong.
        why: String,
    },
    /// A key that nobody gave.
    #[error(
        "the {what} at row {sequence} names the key {kid}, which is not among the known ones; if it \
         was yours once, give it with --keys or audit.known_keys_file"
    )]
    UnknownKey {
        /// Checkpoint or anchor.
        what: &'static str,
        /// The row.
        sequence: i64,
        /// Name of the key.
        kid: String,
    },
    /// Rows at the end that nobody signed.
    #[error("rows {first} to {last} are under no signed checkpoint")]
    Unsigned {
        /// The first.
        first: i64,
        /// The last.
        last: i64,
    },
    /// The head that the next row would follow is not the last row.
    #[error("the chain's head is row {head}, but the last row is {last}")]
    Head {
        /// What the head says.
        head: i64,
        /// What is there.
        last: i64,
    },
    /// The head is not there any more.
    #[error("the chain's head is missing")]
    NoHead,
    /// The head that was kept is not in the trail.
    #[error("row {sequence} is not the one that was kept: another history stands in its place")]
    OtherHistory {
        /// Its number.
        sequence: i64,
    },
    /// The head that was kept is before the trail.
    #[error("row {sequence} was kept, but the trail begins after row {begins}: keep a later head")]
    TooOld {
        /// Its number.
        sequence: i64,
        /// The row before the first one.
        begins: i64,
    },
    /// Something that cannot be read.
    #[error("after row {after}: cannot be read: {why}")]
    Unreadable {
        /// The last row that could.
        after: i64,
        /// Why.
        why: String,
    },
}
