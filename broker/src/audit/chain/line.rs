//! A line of an exported trail.

use serde::{Deserialize, Serialize};

use super::Hash;
use crate::audit::TrailRow;

/// Maximum bytes of a line; a row has a few hundred.
pub(super) const MAX_LINE_BYTES: usize = 1024 * 1024;

/// A row with its position in the chain.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow, Serialize, Deserialize)]
pub struct SealedRow {
    /// Sequence number: 1 for the first row that was ever sealed, without gaps.
    pub sequence: i64,
    /// Hash of the row.
    #[sqlx(try_from = "Vec<u8>")]
    pub hash: Hash,
    /// The row itself.
    #[sqlx(flatten)]
    #[serde(flatten)]
    pub row: TrailRow,
}

/// A line of an export. Whole exports can be concatenated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    /// An export starts after this row. A reader who trusts the checkpoints that follow can trust
    /// this hash, because theirs depend on it.
    Start {
        /// Number of the row; 0 before the first one.
        sequence: i64,
        /// Hash of the row.
        hash: Hash,
    },
    /// The broker itself pruned the rows up to this one.
    Anchor {
        /// Number of the last pruned row.
        sequence: i64,
        /// The signed claims: the hash of the row, and when it was pruned.
        signed: String,
    },
    /// A sealed row.
    Row(Box<SealedRow>),
    /// The preceding row was once the head, and the broker signed that.
    Checkpoint {
        /// Number of the row.
        sequence: i64,
        /// The signed claims: the hash of the row, and when it was sealed.
        signed: String,
    },
}

impl Line {
    /// The line as JSON, without a newline.
    ///
    /// # Errors
    /// Serialization fails; it does not in practice.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    /// Parses a line exactly as it was exported, byte for byte, because another encoding could
    /// contain values that no hash covers.
    ///
    /// # Errors
    /// The text is not a line; the error says why.
    pub fn parse(text: &str) -> Result<Self, String> {
        let line: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match line.to_json() {
            Ok(again) if again == text => Ok(line),
            _ => Err("the line is not written as it was exported".to_owned()),
        }
    }
}
