//! The cached Kubernetes token: one private file for each broker, cluster and workspace.
//!
//! Two lines. The first is a JSON document (`Stored`), replaced as a whole by rename. The second is
//! a table of marks, one for each process that was given this token, written in place: whoever
//! finds its own mark has asked before. A mark is 16 bytes at a fixed offset in the file that is
//! open anyway, so a hit costs one small `pwrite` and no further `open`; a new token comes in a new
//! file, whose table is empty, which is just what is meant. A torn or lost mark costs at worst one
//! renewal too many or one 401 more.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use tenant_shared::Credential;

use super::{MARGIN, Request, hex};
use crate::{
    broker_url::BrokerUrl,
    error::Error,
    output,
    private_file::{self, Found},
    store::{BACKWARD_TOLERANCE, secret},
    world::{Messages, Parent},
};

/// Version of the first line's schema. A file of another version counts as absent.
const VERSION: u32 = 1;
/// Places in the table: so many processes can use one token before the oldest is forgotten.
const PLACES: usize = 32;
/// Hexadecimal digits of a mark.
const DIGITS: usize = 16;

/// The first line. Times are Unix seconds of this machine's clock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Stored {
    version: u32,
    /// Who issued it.
    pub(crate) broker: BrokerUrl,
    /// Cluster it is for.
    pub(crate) cluster: String,
    /// Workspace it is for.
    pub(crate) workspace: String,
    /// The bearer token.
    #[serde(with = "secret")]
    token: SecretString,
    /// When it was asked for.
    pub(crate) received_at: i64,
    /// When it ends: when it was asked for, and the seconds that the broker gave it.
    pub(crate) expires_at: i64,
    /// Until when kubectl may use it without asking again: [`MARGIN`] before its end, as RFC 3339.
    /// Kept as text, because a hit has better things to do than to format a time.
    stamp: String,
    /// The `jti` under which the audit trail knows it.
    pub(crate) credential_id: String,
    /// Seconds by which the broker's clock was ahead of ours.
    #[serde(default)]
    pub(crate) clock_offset: i64,
}

/// A token out of the cache, or on its way into it.
#[derive(Debug)]
pub(crate) struct CachedToken {
    /// The bearer token.
    pub(crate) token: SecretString,
    /// When it was asked for, in Unix seconds of this machine.
    pub(crate) received_at: i64,
    /// When it ends, likewise.
    pub(crate) expires_at: i64,
    /// Until when kubectl may use it without asking again, as RFC 3339, by this machine's clock.
    pub(crate) stamp: String,
    /// The `jti` under which the audit trail knows it.
    pub(crate) credential_id: String,
    marks: Option<Marks>,
}

/// The second line, and where it is.
#[derive(Debug)]
struct Marks {
    file: File,
    offset: u64,
    table: Vec<u8>,
}

impl CachedToken {
    /// Whether it may be given out: it lives longer than the margin, and the clock has not been
    /// set back behind its beginning, in which case nobody knows how long it lives.
    pub(crate) fn is_usable(&self, now: i64) -> bool {
        now >= self.received_at - BACKWARD_TOLERANCE && self.expires_at - now > MARGIN
    }

    /// Whether this process was given the token before.
    pub(crate) fn was_served_to(&self, parent: Parent) -> bool {
        let (place, mark) = place(parent);
        self.marks.as_ref().is_some_and(|marks| {
            marks.table.get(place..place + DIGITS).is_some_and(|found| found == mark.as_bytes())
        })
    }

    /// Notes that this process was given the token. A file system that does not let it only costs
    /// the detection of a refusal.
    pub(crate) fn mark_served_to(&mut self, parent: Option<Parent>) {
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

/// The place of one token.
pub(crate) struct Cache {
    path: PathBuf,
    messages: Messages,
}

impl Cache {
    pub(crate) fn new(folder: &Path, key: &str, messages: &Messages) -> Self {
        Self { path: folder.join(format!("{key}.json")), messages: messages.clone() }
    }

    /// The token, if there is a file that can be believed. What cannot be read is set aside.
    pub(crate) fn read(&self) -> Result<Option<CachedToken>, Error> {
        let (file, bytes, remark) = match private_file::read(&self.path)? {
            Found::Absent => return Ok(None),
            Found::Foreign(why) => {
                self.messages.say(format!("warning: not used: {why}"));
                return Ok(None);
            }
            Found::Bytes { file, bytes, remark } => (file, bytes, remark),
        };
        if let Some(remark) = remark {
            self.messages.say(remark);
        }
        let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
        let (document, rest) = bytes.split_at(end);
        let Ok(stored) = serde_json::from_slice::<Stored>(document) else {
            // A later schema is not damaged, only not for us.
            if !is_of_another_version(document) {
                self.messages.say(private_file::quarantine(&self.path));
            }
            return Ok(None);
        };
        if stored.version != VERSION {
            return Ok(None);
        }
        let table = rest.get(1..=PLACES * DIGITS).map(<[u8]>::to_vec);
        let marks = table.map(|table| Marks { file, offset: end as u64 + 1, table });
        Ok(Some(CachedToken {
            token: stored.token,
            received_at: stored.received_at,
            expires_at: stored.expires_at,
            stamp: stored.stamp,
            credential_id: stored.credential_id,
            marks,
        }))
    }

    /// Stores a token that was asked for at `before`, and reads it back. A cache that cannot be
    /// written costs the next call a request, and this one a warning.
    pub(crate) fn store(
        &self,
        request: &Request,
        credential: Credential,
        before: i64,
        clock_offset: i64,
    ) -> CachedToken {
        let expires_at = before.saturating_add(i64::from(credential.expires_in));
        let stored = Stored {
            version: VERSION,
            broker: request.broker.clone(),
            cluster: request.cluster.clone(),
            workspace: request.workspace.hyphenated().to_string(),
            token: credential.token.into(),
            received_at: before,
            expires_at,
            stamp: output::time(expires_at - MARGIN).to_string(),
            credential_id: credential.credential_id,
            clock_offset,
        };
        let kept = serde_json::to_vec(&stored)
            .map_err(|error| Error::other(error.to_string()))
            .and_then(|mut bytes| {
                bytes.push(b'\n');
                bytes.resize(bytes.len() + PLACES * DIGITS, b'0');
                bytes.push(b'\n');
                private_file::write(&self.path, &bytes)
            })
            .and_then(|()| self.read());
        let marks = match kept {
            Ok(read) => read
                .filter(|read| read.token.expose_secret() == stored.token.expose_secret())
                .and_then(|read| read.marks),
            Err(error) => {
                self.messages.say(format!("warning: the token is not cached: {error}"));
                None
            }
        };
        CachedToken {
            token: stored.token,
            received_at: stored.received_at,
            expires_at: stored.expires_at,
            stamp: stored.stamp,
            credential_id: stored.credential_id,
            marks,
        }
    }

    /// All tokens of a folder, without the secret: for `status` and `logout`.
    pub(crate) fn all(folder: &Path) -> Vec<(PathBuf, Stored)> {
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        let mut found: Vec<_> = entries
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter_map(|path| {
                let bytes = std::fs::read(&path).ok()?;
                let line = bytes.split(|byte| *byte == b'\n').next()?;
                Some((path, serde_json::from_slice::<Stored>(line).ok()?))
            })
            .collect();
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        found
    }

    /// Deletes every token of a broker, and what was set aside.
    pub(crate) fn forget(folder: &Path, broker: &BrokerUrl) -> Result<(), Error> {
        for (path, stored) in Self::all(folder) {
            if stored.broker == *broker {
                private_file::remove(&path)?;
            }
        }
        // Whose they were can no longer be read.
        let aside = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        for path in aside.map(|entry| entry.path()) {
            if path.extension().is_some_and(|extension| extension == "corrupt") {
                private_file::remove(&path)?;
            }
        }
        Ok(())
    }
}

fn is_of_another_version(document: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    serde_json::from_slice::<Version>(document).is_ok_and(|found| found.version != VERSION)
}
