//! A line of the trail, as it is exported and verified.

use serde::{Deserialize, Serialize};

use super::Hash;
use crate::audit::Row;

/// Bytes of a line at most; a row has a few hundred.
pub(super) const MOST_LINE_BYTES: usize = 1024 * 1024;

/// A row with its place in the chain.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow, Serialize, Deserialize)]
pub struct Sealed {
    /// Its number: 1 for the first row that was ever sealed, and no number is left out.
    pub sequence: i64,
    /// Its hash.
    #[sqlx(try_from = "Vec<u8>")]
    pub hash: Hash,
    /// The row.
    #[sqlx(flatten)]
    #[serde(flatten)]
    pub row: Row,
}

/// A line. Whole exports can be put one behind the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    /// An export begins after this row. Whoever believes the checkpoints that follow can believe the
    /// hash, for theirs come of it.
    Start {
        /// The row's number; 0 before the first one.
        sequence: i64,
        /// Its hash.
        hash: Hash,
    },
    /// What was up to this row is gone, by the broker's own hand.
    Anchor {
        /// The last row that is gone.
        sequence: i64,
        /// The signed statement: its hash, and when it was cut.
        signed: String,
    },
    /// A row.
    Row(Box<Sealed>),
    /// The row before was the head once, and the broker signed that.
    Checkpoint {
        /// The row's number.
        sequence: i64,
        /// The signed statement: its hash, and when it was sealed.
        signed: String,
    },
}

impl Line {
    /// As JSON on one line, without its end.
    ///
    /// # Errors
    /// None in practice.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    /// A line as it was exported, byte for byte: what is written in another way may say things that
    /// no hash covers.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let line: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match line.to_json() {
            Ok(again) if again == text => Ok(line),
            _ => Err("the line is not written as it was exported".to_owned()),
        }
    }
}
