//! The cached Kubernetes token: one private file for each broker, cluster and workspace.
//!
//! Two lines. The first is a JSON document ([`Facts`]), replaced as a whole by rename. The second is
//! a table of marks, one for each process that was given this token, written in place: whoever
//! finds its own mark has asked before. A mark is 16 bytes at a fixed offset in the file that is
//! open anyway, so a hit costs one small `pwrite` and no further `open`; a new token comes in a new
//! file, whose table is empty, which is just what is meant. A torn or lost mark costs at worst one
//! renewal too many or one 401 more.

use std::{fs::File, os::unix::fs::FileExt};

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::{Parent, request::hex};

/// Kubectl is told that a token ends this many seconds before it does: on its way to the API
/// server it must not die. The same number of seconds is the least that a served token has left.
pub const MARGIN: i64 = 60;
/// The clock may have been set back by this many seconds before a stored time is not believed.
pub const BACKWARD_TOLERANCE: i64 = 60;

/// Version of the first line's schema.
const VERSION: u32 = 1;
/// Places in the table: so many processes can use one token before the oldest is forgotten.
const PLACES: usize = 32;
/// Hexadecimal digits of a mark.
const DIGITS: usize = 16;

/// The first line. Times are Unix seconds of this machine's clock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Facts {
    /// Version of the schema.
    version: u32,
    /// Who issued it.
    pub broker: String,
    /// Cluster it is for.
    pub cluster: String,
    /// Workspace it is for.
    pub workspace: String,
    /// Account that got it, if it has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The bearer token.
    #[serde(with = "secret")]
    pub token: SecretString,
    /// When it was asked for.
    pub received_at: i64,
    /// When it ends: when it was asked for, and the seconds that the broker gave it.
    pub expires_at: i64,
    /// Until when kubectl may use it without asking again: [`MARGIN`] before its end, as RFC 3339.
    /// Kept as text, because a hit has better things to do than to format a time.
    pub stamp: String,
    /// The `jti` under which the audit trail knows it.
    pub credential_id: String,
    /// Seconds by which the broker's clock was ahead of ours.
    #[serde(default)]
    pub clock_offset: i64,
}

impl Facts {
    /// Facts of the version that is written today.
    pub fn new(
        request: crate::Request<'_>,
        token: SecretString,
        (received_at, expires_at): (i64, i64),
        stamp: String,
        credential_id: String,
        clock_offset: i64,
    ) -> Self {
        Self {
            version: VERSION,
            broker: request.broker.to_owned(),
            cluster: request.cluster.to_owned(),
            workspace: request.workspace.to_owned(),
            profile: request.profile.map(str::to_owned),
            token,
            received_at,
            expires_at,
            stamp,
            credential_id,
            clock_offset,
        }
    }

    /// The whole file, with an empty table.
    ///
    /// # Errors
    /// It cannot be serialized.
    pub fn file(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        bytes.resize(bytes.len() + PLACES * DIGITS, b'0');
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// A token out of the cache, or on its way into it.
#[derive(Debug)]
pub struct CachedToken {
    /// The token and what is known of it.
    pub facts: Facts,
    marks: Option<Marks>,
}

/// The second line, and where it is.
#[derive(Debug)]
struct Marks {
    file: File,
    offset: u64,
    table: Vec<u8>,
}

/// Why a file is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Written by another version of this program; not damaged.
    OtherVersion,
    /// Damaged.
    Damaged,
}

impl CachedToken {
    /// A token that could not be stored.
    pub fn unstored(facts: Facts) -> Self {
        Self { facts, marks: None }
    }

    /// Reads a file's bytes; the file is kept for the marks.
    ///
    /// # Errors
    /// The first line is not what is written today. A missing table is no error.
    pub fn parse(file: File, bytes: &[u8]) -> Result<Self, Unreadable> {
        let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
        let (document, rest) = bytes.split_at(end);
        let facts = match serde_json::from_slice::<Facts>(document) {
            Ok(facts) if facts.version == VERSION => facts,
            Ok(_) => return Err(Unreadable::OtherVersion),
            Err(_) => return Err(why(document)),
        };
        let table = rest.get(1..=PLACES * DIGITS).map(<[u8]>::to_vec);
        let marks = table.map(|table| Marks { file, offset: end as u64 + 1, table });
        Ok(Self { facts, marks })
    }

    /// Whether it may be given out: it lives longer than the margin, and the clock has not been
    /// set back behind its beginning, in which case nobody knows how long it lives.
    pub fn is_usable(&self, now: i64) -> bool {
        now >= self.facts.received_at - BACKWARD_TOLERANCE && self.facts.expires_at - now > MARGIN
    }

    /// Whether this process was given the token before.
    pub fn was_served_to(&self, parent: Parent) -> bool {
        let (place, mark) = place(parent);
        self.marks.as_ref().is_some_and(|marks| {
            marks.table.get(place..place + DIGITS).is_some_and(|found| found == mark.as_bytes())
        })
    }

    /// Notes that this process was given the token. A file system that does not let it only costs
    /// the detection of a refusal.
    pub fn mark_served_to(&mut self, parent: Option<Parent>) {
        if let (Some(marks), Some(parent)) = (&mut self.marks, parent) {
            let (place, mark) = place(parent);
            let _ = marks.file.write_all_at(mark.as_bytes(), marks.offset + place as u64);
        }
    }
}

/// Where a process's mark is in the table, and what it is.
fn place(parent: Parent) -> (usize, String) {
    let mark = parent.mark();
    #[expect(clippy::cast_possible_truncation, reason = "the remainder is below PLACES")]
    let index = (mark % PLACES as u64) as usize;
    (index * DIGITS, hex(&mark.to_be_bytes()))
}

#[cold]
fn why(document: &[u8]) -> Unreadable {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    match serde_json::from_slice::<Version>(document) {
        Ok(found) if found.version != VERSION => Unreadable::OtherVersion,
        _ => Unreadable::Damaged,
    }
}

/// Serde for a secret that has to go into a file. The only way by which one leaves its type.
pub mod secret {
    use secrecy::{ExposeSecret, SecretString};
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes it in clear.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(
        secret: &SecretString,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(secret.expose_secret())
    }

    /// Reads it.
    ///
    /// # Errors
    /// Those of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<SecretString, D::Error> {
        String::deserialize(deserializer).map(SecretString::from)
    }
}
