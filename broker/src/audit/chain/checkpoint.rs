//! What is signed: a row and its hash, and when.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Hash;

/// The kind of a checkpoint's signature. An ID token is of another kind, so the two never pass for
/// each other though one key may sign both.
pub(in crate::audit) const CHECKPOINT: &str = "tenant-audit-checkpoint+jws";
/// The kind of an anchor's signature.
pub(in crate::audit) const ANCHOR: &str = "tenant-audit-anchor+jws";

/// The signed statement of a checkpoint or an anchor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::audit) struct Mark {
    /// Number of the row.
    pub(in crate::audit) sequence: i64,
    /// Its hash.
    pub(in crate::audit) hash: Hash,
    /// When it was signed.
    pub(in crate::audit) at: Timestamp,
}
