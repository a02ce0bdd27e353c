//! The hash of a row, over everything in it and the hash before.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::audit::Row;

/// Sets these hashes apart from all others, and later encodings from this one.
const DOMAIN: &[u8] = b"tenant-broker audit row 1";

/// A SHA-256 hash; 64 hexadecimal digits as text.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Hash([u8; 32]);

impl Hash {
    /// What stands before the first row.
    pub const GENESIS: Self = Self([0; 32]);

    /// The hash of a row at its place: SHA-256 over a tag, the hash before, and each field. A field
    /// is one byte 1, its length in bytes as 32 bits with the greatest first, and its bytes; or one
    /// byte 0 where the row has none. Numbers are 64 bits, greatest byte first; identifiers are their
    /// 16 bytes. The fields stand in the order of this function.
    #[must_use]
    pub fn link(self, sequence: i64, row: &Row) -> Self {
        // Taken apart, so that a new column does not compile until it is hashed.
        let Row {
            id,
            created_at,
            action,
            outcome,
            user_id,
            subject_user_id,
            workspace_id,
            session_id,
            subject_session_id,
            credential_id,
            ip_address,
            request_id,
            reason,
        } = row;
        let mut fields = Fields(Sha256::new());
        fields.0.update(DOMAIN);
        fields.0.update(self.0);
        fields.bytes(&sequence.to_be_bytes());
        fields.bytes(id.as_bytes());
        fields.bytes(&created_at.to_be_bytes());
        fields.bytes(action.as_bytes());
        fields.bytes(outcome.as_bytes());
        for id in [user_id, subject_user_id, workspace_id, session_id, subject_session_id] {
            fields.perhaps(id.as_ref().map(Uuid::as_bytes).map(<[u8; 16]>::as_slice));
        }
        for text in [credential_id, ip_address, request_id, reason] {
            fields.perhaps(text.as_ref().map(String::as_bytes));
        }
        Self(fields.0.finalize().into())
    }

    /// Its bytes, as the database keeps them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

struct Fields(Sha256);

impl Fields {
    fn bytes(&mut self, field: &[u8]) {
        self.0.update([1]);
        // A text of four gigabytes does not reach the database.
        self.0.update(u32::try_from(field.len()).unwrap_or(u32::MAX).to_be_bytes());
        self.0.update(field);
    }

    fn perhaps(&mut self, field: Option<&[u8]>) {
        match field {
            Some(field) => self.bytes(field),
            None => self.0.update([0]),
        }
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text or a value that is no hash.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a hash is 64 hexadecimal digits in lower case")]
pub struct NoHash;

impl FromStr for Hash {
    type Err = NoHash;

    fn from_str(text: &str) -> Result<Self, NoHash> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(NoHash);
        }
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(NoHash),
        };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(Self(bytes))
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> Self {
        hash.to_string()
    }
}

impl TryFrom<String> for Hash {
    type Error = NoHash;

    fn try_from(text: String) -> Result<Self, NoHash> {
        text.parse()
    }
}

impl TryFrom<Vec<u8>> for Hash {
    type Error = NoHash;

    fn try_from(bytes: Vec<u8>) -> Result<Self, NoHash> {
        bytes.try_into().map(Self).map_err(|_| NoHash)
    }
}
