//! The hash of a row: over all of its fields and the hash of the previous row.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::audit::TrailRow;

/// Domain separation tag: sets these hashes apart from all others, and later encodings from this
/// one.
const DOMAIN_TAG: &[u8] = b"tenant-broker audit row 1";

/// A SHA-256 hash; 64 hexadecimal digits as text.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Hash([u8; 32]);

impl Hash {
    /// The hash before the first row.
    pub const GENESIS: Self = Self([0; 32]);

    /// The hash of a row at its position: SHA-256 over a tag, the previous hash, and each field. A
    /// field is encoded as one byte 1, its length in bytes as a 32-bit big-endian number, and its
    /// bytes; or as one byte 0 if the row does not have it. Numbers are 64 bits, big-endian;
    /// identifiers are their 16 bytes. The order of the fields is that of this function.
    #[must_use]
    pub fn link(self, sequence: i64, row: &TrailRow) -> Self {
        // Destructured, so that a new column does not compile until it is hashed.
        let TrailRow {
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
        let mut fields = FieldHasher(Sha256::new());
        fields.0.update(DOMAIN_TAG);
        fields.0.update(self.0);
        fields.bytes(&sequence.to_be_bytes());
        fields.bytes(id.as_bytes());
        fields.bytes(&created_at.to_be_bytes());
        fields.bytes(action.as_bytes());
        fields.bytes(outcome.as_bytes());
        for id in [user_id, subject_user_id, workspace_id, session_id, subject_session_id] {
            fields.optional(id.as_ref().map(Uuid::as_bytes).map(<[u8; 16]>::as_slice));
        }
        for text in [credential_id, ip_address, request_id, reason] {
            fields.optional(text.as_ref().map(String::as_bytes));
        }
        Self(fields.0.finalize().into())
    }

    /// The 32 bytes that the database stores.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

struct FieldHasher(Sha256);

impl FieldHasher {
    fn bytes(&mut self, field: &[u8]) {
        self.0.update([1]);
        // A text of four gigabytes does not reach the database.
        self.0.update(u32::try_from(field.len()).unwrap_or(u32::MAX).to_be_bytes());
        self.0.update(field);
    }

    fn optional(&mut self, field: Option<&[u8]>) {
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

/// A text or a value that is not a hash.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a hash is 64 hexadecimal digits in lower case")]
pub struct InvalidHash;

impl FromStr for Hash {
    type Err = InvalidHash;

    fn from_str(text: &str) -> Result<Self, InvalidHash> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(InvalidHash);
        }
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(InvalidHash),
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
    type Error = InvalidHash;

    fn try_from(text: String) -> Result<Self, InvalidHash> {
        text.parse()
    }
}

impl TryFrom<Vec<u8>> for Hash {
    type Error = InvalidHash;

    fn try_from(bytes: Vec<u8>) -> Result<Self, InvalidHash> {
        bytes.try_into().map(Self).map_err(|_| InvalidHash)
    }
}
