//! The cached Kubernetes token: one private file for each broker, cluster and workspace.
//!
//! The file has two lines. The first is a JSON document ([`CacheEntry`]), replaced as a whole by
//! rename. The second is a table of marks, one for each process that was given this token, written
//! in place: a process that finds its own mark has asked before. A mark is 16 bytes at a fixed
//! offset in the file that is open anyway, so a hit costs one small `pwrite` and no further `open`.
//! A new token comes in a new file, whose table is empty as intended. A torn or lost mark costs at
//! most one unneeded renewal or one more 401.

use std::{fs::File, os::unix::fs::FileExt};

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::{Parent, cache_key::hex};

/// kubectl is told that a token expires this many seconds early, so that the token does not expire
/// on its way to the API server. A served token has at least this many seconds left.
pub const EXPIRY_MARGIN_SECONDS: i64 = 60;
/// Seconds by which the clock may have been set back before a stored time is no longer trusted.
pub const CLOCK_SETBACK_TOLERANCE_SECONDS: i64 = 60;

/// Schema version of the first line.
const SCHEMA_VERSION: u32 = 1;
/// Number of slots in the table of marks: this many processes can use one token before a mark may
/// be overwritten.
const SERVED_SLOTS: usize = 32;
/// Hexadecimal digits of a mark.
const MARK_DIGITS: usize = 16;

/// First line of the cache file. Times are Unix seconds of this machine's clock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CacheEntry {
    /// Schema version of the document.
    version: u32,
    /// URL of the broker that issued the token.
    pub broker: String,
    /// Name of the cluster that the token is for.
    pub cluster: String,
    /// UUID of the workspace that the token is for.
    pub workspace: String,
    /// Profile name of the account that got the token, if the account has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Bearer token.
    #[serde(with = "secret")]
    pub token: SecretString,
    /// When the token was requested.
    pub received_at: i64,
    /// When the token expires: the time of the request plus the lifetime that the broker returned.
    pub expires_at: i64,
    /// Until when kubectl may use the token without asking again: [`EXPIRY_MARGIN_SECONDS`] before
    /// its expiry, as RFC 3339. Stored as text, because formatting a time would slow down a hit.
    pub stamp: String,
    /// `jti` of the token, as recorded in the audit trail.
    pub credential_id: String,
    /// Seconds by which the broker's clock was ahead of this machine's.
    #[serde(default)]
    pub clock_offset: i64,
}

impl CacheEntry {
    /// Creates an entry of the current schema version.
    pub fn new(
        key: crate::CacheKey<'_>,
        token: SecretString,
        (received_at, expires_at): (i64, i64),
        stamp: String,
        credential_id: String,
        clock_offset: i64,
    ) -> Self {
        Self {
            version: SCHEMA_VERSION,
            broker: key.broker.to_owned(),
            cluster: key.cluster.to_owned(),
            workspace: key.workspace.to_owned(),
            profile: key.profile.map(str::to_owned),
            token,
            received_at,
            expires_at,
            stamp,
            credential_id,
            clock_offset,
        }
    }

    /// Serializes the whole file, with an empty table of marks.
    ///
    /// # Errors
    /// The entry cannot be serialized.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        bytes.resize(bytes.len() + SERVED_SLOTS * MARK_DIGITS, b'0');
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// A token that was read from the cache or is about to be stored in it.
#[derive(Debug)]
pub struct CachedToken {
    /// The token and its metadata.
    pub entry: CacheEntry,
    marks: Option<ServedProcesses>,
}

/// The second line, and its offset in the file.
#[derive(Debug)]
struct ServedProcesses {
    file: File,
    offset: u64,
    table: Vec<u8>,
}

/// Reason for not using the token in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Another version of this program wrote the file; it is not damaged.
    OtherVersion,
    /// The file is damaged.
    Damaged,
}

impl CachedToken {
    /// A token that could not be stored, so that it has no marks.
    pub fn not_stored(entry: CacheEntry) -> Self {
        Self { entry, marks: None }
    }

    /// Parses the bytes of a file; the file stays open for the marks.
    ///
    /// # Errors
    /// The first line is not a document of the current version. A missing table is no error.
    pub fn parse(file: File, bytes: &[u8]) -> Result<Self, Unreadable> {
        let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
        let (document, rest) = bytes.split_at(end);
        let entry = match serde_json::from_slice::<CacheEntry>(document) {
            Ok(entry) if entry.version == SCHEMA_VERSION => entry,
            Ok(_) => return Err(Unreadable::OtherVersion),
            Err(_) => return Err(classify_unreadable(document)),
        };
        let table = rest.get(1..=SERVED_SLOTS * MARK_DIGITS).map(<[u8]>::to_vec);
        let marks = table.map(|table| ServedProcesses { file, offset: end as u64 + 1, table });
        Ok(Self { entry, marks })
    }

    /// Whether the token may be served: it lives longer than the margin, and the clock has not been
    /// set back behind the time of the request, because then the remaining lifetime is unknown.
    pub fn is_usable(&self, now: i64) -> bool {
        now >= self.entry.received_at - CLOCK_SETBACK_TOLERANCE_SECONDS
            && self.entry.expires_at - now > EXPIRY_MARGIN_SECONDS
    }

    /// Whether this process was given the token before.
    pub fn was_served_to(&self, parent: Parent) -> bool {
        let (slot, mark) = slot_of_process(parent);
        self.marks.as_ref().is_some_and(|marks| {
            marks.table.get(slot..slot + MARK_DIGITS).is_some_and(|found| found == mark.as_bytes())
        })
    }

    /// Records that this process was given the token. If the file cannot be written, only the
    /// detection of a rejected token is lost.
    pub fn mark_served_to(&mut self, parent: Option<Parent>) {
        if let (Some(marks), Some(parent)) = (&mut self.marks, parent) {
            let (slot, mark) = slot_of_process(parent);
            let _ = marks.file.write_all_at(mark.as_bytes(), marks.offset + slot as u64);
        }
    }
}

/// Offset of a process's mark in the table, and its digits.
fn slot_of_process(parent: Parent) -> (usize, String) {
    let mark = parent.fingerprint();
    #[expect(clippy::cast_possible_truncation, reason = "the remainder is below MARK_SLOTS")]
    let index = (mark % SERVED_SLOTS as u64) as usize;
    (index * MARK_DIGITS, hex(&mark.to_be_bytes()))
}

#[cold]
fn classify_unreadable(document: &[u8]) -> Unreadable {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    match serde_json::from_slice::<Version>(document) {
        Ok(found) if found.version != SCHEMA_VERSION => Unreadable::OtherVersion,
        _ => Unreadable::Damaged,
    }
}

/// Serde for a secret that has to be stored in a file: the only way in which a secret leaves its
/// type.
pub mod secret {
    use secrecy::{ExposeSecret, SecretString};
    use serde::{Deserialize, Deserializer, Serializer};

    /// Serializes the secret as plain text.
    ///
    /// # Errors
    /// The serializer failed.
    pub fn serialize<S: Serializer>(
        secret: &SecretString,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(secret.expose_secret())
    }

    /// Deserializes a secret.
    ///
    /// # Errors
    /// The deserializer failed.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<SecretString, D::Error> {
        String::deserialize(deserializer).map(SecretString::from)
    }
}
