//! The hash chain of the audit trail, which makes later changes to rows detectable.
//!
//! Rows are written unsealed, in the transaction of the change that they record, so that nothing
//! waits for the chain. About once a second the [`Sealer`] of one replica takes the rows that were
//! committed since then. It gives them the next sequence numbers, and each a hash over itself and
//! the previous hash ([`Hash::link`]). It signs the last row of a batch: a checkpoint. An attacker
//! who changes, removes, adds or moves a sealed row has to recompute all later hashes, and has no
//! key to sign them.
//!
//! The chain does not detect a row that is changed before it is sealed, or a trail that was
//! truncated after some checkpoint as if nothing had happened since. Against the latter an auditor
//! keeps the last head that they verified ([`Head`]).

mod checkpoint;
mod database;
mod file;
mod hash;
mod line;
mod seal;
#[cfg(test)]
mod tests;
mod verification_fault;
mod verify;

pub use database::{head, verify as verify_database};
pub use file::{verify as verify_file, verify_rows as verify_file_rows};
pub use hash::Hash;
pub use line::{Line, SealedRow};
pub use seal::{SealError, Sealer};
pub use verification_fault::VerificationFault;
pub use verify::{Head, Start, VerificationReport};

pub(super) use checkpoint::{ANCHOR, CHECKPOINT, CheckpointClaims};
pub(super) use database::{State, checkpoints, hash_at, sealed_rows};

/// Serialization of times in exported rows: RFC 3339 in UTC, with milliseconds.
pub(super) mod time {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serialize as _, Serializer, de::Error as _};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde gives it")]
    pub(in crate::audit) fn serialize<S: Serializer>(ms: &i64, to: S) -> Result<S::Ok, S::Error> {
        crate::base::clock::timestamp(*ms).serialize(to)
    }

    pub(in crate::audit) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<i64, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map(Timestamp::as_millisecond).map_err(D::Error::custom)
    }
}
