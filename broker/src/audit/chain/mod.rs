//! The chain that shows whether somebody changed the trail.
//!
//! Rows are written unsealed, in the transaction of what they are about, so that nothing waits for
//! the chain. About once a second the [`Sealer`] of one replica gives the rows that were committed
//! since then the next numbers, and each a hash over itself and the hash before ([`Hash::link`]). The
//! last one of a batch it signs: a checkpoint. Whoever changes, removes, adds or moves a sealed row
//! has to make all hashes after it anew, and has no key to sign them with.
//!
//! What that does not show: a row that is changed before it is sealed, and a trail that was cut off
//! after some checkpoint as if nothing had happened since. Against the latter whoever verifies keeps
//! the head that they saw last ([`Expected`]).

mod checkpoint;
mod database;
mod fault;
mod file;
mod hash;
mod line;
mod seal;
#[cfg(test)]
mod tests;
mod verify;

pub use database::verify as verify_database;
pub use fault::Fault;
pub use file::verify as verify_file;
pub use hash::Hash;
pub use line::{Line, Sealed};
pub use seal::{SealError, Sealer};
pub use verify::{Expected, Outcome, Start};

pub(super) use checkpoint::{ANCHOR, CHECKPOINT, Mark};
pub(super) use database::{State, between, checkpoints, hash_at};

/// Times as they stand in exported rows: RFC 3339 in UTC, to the millisecond that the row has.
pub(super) mod time {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serialize as _, Serializer, de::Error as _};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde gives it")]
    pub(in crate::audit) fn serialize<S: Serializer>(ms: &i64, to: S) -> Result<S::Ok, S::Error> {
        crate::clock::timestamp(*ms).serialize(to)
    }

    pub(in crate::audit) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<i64, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map(Timestamp::as_millisecond).map_err(D::Error::custom)
    }
}
