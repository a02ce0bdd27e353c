//! What failed last, for each token: so that one kubectl, which runs a failing plugin five times,
//! waits once and reads the hint once, and so that `status` can say what went wrong in a program
//! that hides a plugin's stderr.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tenant_cached_token::Parent;

use super::Request;
use crate::{
    broker_url::BrokerUrl,
    error::{Error, Kind},
    identity::{Identity, ProfileName},
    paths::Paths,
    private_file::{self, Found},
};

/// Version of the file's schema.
const VERSION: u32 = 1;
/// So many seconds the same parent gets the same answer without another try.
const SAME_PARENT: i64 = 10;
/// So many seconds nobody waits for a broker that was not there, as long as the old token works.
const OUTAGE: i64 = 30;

/// A failure as it is stored. Holds no secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    version: u32,
    broker: BrokerUrl,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    profile: Option<ProfileName>,
    pub(crate) cluster: String,
    pub(crate) workspace: String,
    /// When, in Unix seconds of this machine.
    pub(crate) at: i64,
    pub(crate) kind: Kind,
    pub(crate) message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// The process that was told, as a number that stands for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<u64>,
}

impl Failure {
    /// Whose token it was.
    pub(crate) fn identity(&self) -> Identity {
        Identity { broker: self.broker.clone(), profile: self.profile.clone() }
    }

    pub(crate) fn error(&self) -> Error {
        Error { kind: self.kind, message: self.message.clone(), hint: self.hint.clone() }
    }

    /// Whether this process was told just now.
    pub(crate) fn was_told_to(&self, parent: Option<Parent>, now: i64) -> bool {
        parent.is_some()
            && self.parent == parent.map(Parent::mark)
            && (0..SAME_PARENT).contains(&(now - self.at))
    }

    /// Whether the broker could not be reached just now.
    pub(crate) fn is_outage(&self, now: i64) -> bool {
        self.kind == Kind::Unreachable && (0..OUTAGE).contains(&(now - self.at))
    }
}

/// The folder of failures. Losing one costs nothing, so nothing here is an error.
pub(crate) struct Failures {
    folder: PathBuf,
}

impl Failures {
    pub(crate) fn new(paths: &Paths) -> Self {
        Self { folder: paths.failures() }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.json"))
    }

    /// The last failure of a token, if it has not worked since.
    pub(crate) fn read(&self, key: &str) -> Option<Failure> {
        match private_file::read(&self.path(key)) {
            Ok(Found::Bytes { bytes, .. }) => serde_json::from_slice::<Failure>(&bytes)
                .ok()
                .filter(|failure| failure.version == VERSION),
            _ => None,
        }
    }

    /// Remembers a failure.
    pub(crate) fn write(&self, request: &Request, error: &Error, at: i64, parent: Option<Parent>) {
        let failure = Failure {
            version: VERSION,
            broker: request.identity.broker.clone(),
            profile: request.identity.profile.clone(),
            cluster: request.cluster.clone(),
            workspace: request.workspace.hyphenated().to_string(),
            at,
            kind: error.kind,
            message: error.message.clone(),
            hint: error.hint.clone(),
            parent: parent.map(Parent::mark),
        };
        if let Ok(bytes) = serde_json::to_vec(&failure) {
            let _ = private_file::write_note(&self.path(&request.place()), &bytes);
        }
    }

    /// It works again.
    pub(crate) fn clear(&self, key: &str) {
        let _ = private_file::remove(&self.path(key));
    }

    /// All that is remembered.
    pub(crate) fn all(&self) -> Vec<Failure> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return Vec::new() };
        let mut found: Vec<Failure> = entries
            .filter_map(|entry| std::fs::read(entry.ok()?.path()).ok())
            .filter_map(|bytes| serde_json::from_slice(&bytes).ok())
            .collect();
        found.sort_by_key(|failure| std::cmp::Reverse(failure.at));
        found
    }

    /// Forgets what happened to an account: a sign-in changes everything.
    pub(crate) fn forget(&self, identity: &Identity) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
            let failure = std::fs::read(&path)
                .ok()
                .and_then(|bytes| serde_json::from_slice::<Failure>(&bytes).ok());
            if failure.is_none_or(|failure| failure.identity() == *identity) {
                let _ = private_file::remove(&path);
            }
        }
    }
}
