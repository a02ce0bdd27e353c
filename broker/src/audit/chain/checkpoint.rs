//! Checkpoints of the audit trail: the signed claims about a row, its hash and the time.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Hash;

/// JWS `typ` of a checkpoint. An ID token has another `typ`, so that neither is accepted as the
/// other although one key may sign both.
pub(in crate::audit) const CHECKPOINT: &str = "tenant-audit-checkpoint+jws";
/// JWS `typ` of an anchor.
pub(in crate::audit) const ANCHOR: &str = "tenant-audit-anchor+jws";

/// The signed claims of a checkpoint or an anchor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::audit) struct CheckpointClaims {
    /// Sequence number of the row.
    pub(in crate::audit) sequence: i64,
    /// Hash of the row.
    pub(in crate::audit) hash: Hash,
    /// When the claims were signed.
    pub(in crate::audit) at: Timestamp,
}
