//! Negative cache: the last failure of each token. One kubectl, which runs a failing plugin five
//! times, waits once and prints the hint once; and `status` can show what went wrong in a program
//! that hides a plugin's stderr.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tenant_cached_token::Parent;

use super::request::GetTokenRequest;
use crate::{
    account_key::{AccountKey, ProfileName},
    broker_url::BrokerUrl,
    error::{Error, Kind},
    paths::Paths,
    private_file::{self, PrivateFile},
};

/// Schema version of the file.
const SCHEMA_VERSION: u32 = 1;
/// Seconds for which the same parent gets the cached failure without another try.
const SAME_PARENT_TTL_SECONDS: i64 = 10;
/// Seconds for which an unreachable broker is not called again, as long as the old token works.
const OUTAGE_TTL_SECONDS: i64 = 30;

/// Why there is no session, if no failure says more.
const NO_SESSION: &str = "there is no session on this machine";

/// A failure as it is stored. Contains no secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CachedFailure {
    version: u32,
    broker: BrokerUrl,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    profile: Option<ProfileName>,
    pub(crate) cluster: String,
    pub(crate) workspace: String,
    /// Time of the failure, in Unix seconds of this machine.
    pub(crate) at: i64,
    pub(crate) kind: Kind,
    pub(crate) message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// Fingerprint of the process that got the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<u64>,
}

impl CachedFailure {
    /// Account of the token.
    pub(crate) fn account(&self) -> AccountKey {
        AccountKey { broker: self.broker.clone(), profile: self.profile.clone() }
    }

    pub(crate) fn error(&self) -> Error {
        Error {
            kind: self.kind,
            message: self.message.clone(),
            hint: self.hint.clone(),
            retry_after: None,
            code: None,
        }
    }

    /// Whether this failure still answers a call of this parent.
    pub(crate) fn is_cached_for(&self, parent: Option<Parent>, now: i64) -> bool {
        parent.is_some()
            && self.parent == parent.map(Parent::fingerprint)
            && (0..SAME_PARENT_TTL_SECONDS).contains(&(now - self.at))
    }

    /// Whether the broker was unreachable a moment ago.
    pub(crate) fn is_outage(&self, now: i64) -> bool {
        self.kind == Kind::Unreachable && (0..OUTAGE_TTL_SECONDS).contains(&(now - self.at))
    }
}

/// The folder of cached failures. Losing one costs nothing, so no operation here returns an error.
pub(crate) struct NegativeCache {
    folder: PathBuf,
}

impl NegativeCache {
    pub(crate) fn new(paths: &Paths) -> Self {
        Self { folder: paths.failures() }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.json"))
    }

    /// Reads the last failure of a token, if the token has not worked since.
    pub(crate) fn read(&self, key: &str) -> Option<CachedFailure> {
        match private_file::read(&self.path(key)) {
            Ok(PrivateFile::Contents { bytes, .. }) => {
                serde_json::from_slice::<CachedFailure>(&bytes)
                    .ok()
                    .filter(|failure| failure.version == SCHEMA_VERSION)
            }
            _ => None,
        }
    }

    /// Stores a failure.
    pub(crate) fn write(
        &self,
        request: &GetTokenRequest,
        error: &Error,
        at: i64,
        parent: Option<Parent>,
    ) {
        let failure = CachedFailure {
            version: SCHEMA_VERSION,
            broker: request.account.broker.clone(),
            profile: request.account.profile.clone(),
            cluster: request.cluster.clone(),
            workspace: request.workspace.hyphenated().to_string(),
            at,
            kind: error.kind,
            message: error.message.clone(),
            hint: error.hint.clone(),
            parent: parent.map(Parent::fingerprint),
        };
        if let Ok(bytes) = serde_json::to_vec(&failure) {
            let _ = private_file::write_unsynced(&self.path(&request.lock_name()), &bytes);
        }
    }

    /// Deletes the failure of a token that works again.
    pub(crate) fn clear(&self, key: &str) {
        let _ = private_file::remove(&self.path(key));
    }

    /// Reads all failures, the newest first.
    pub(crate) fn all(&self) -> Vec<CachedFailure> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return Vec::new() };
        let mut found: Vec<CachedFailure> = entries
            .filter_map(|entry| std::fs::read(entry.ok()?.path()).ok())
            .filter_map(|bytes| serde_json::from_slice(&bytes).ok())
            .collect();
        found.sort_by_key(|failure| std::cmp::Reverse(failure.at));
        found
    }

    /// The error for an account without a session on this machine. If a call saw how the session
    /// ended, the error says that.
    pub(crate) fn no_session_error(&self, account: &AccountKey) -> Error {
        let mut failures = self.all().into_iter();
        let ended = failures.find_map(|failure| {
            let is_of = failure.kind == Kind::SignIn && failure.account() == *account;
            failure.hint.filter(|hint| is_of && !hint.starts_with(NO_SESSION))
        });
        account.sign_in_error(ended.unwrap_or_else(|| NO_SESSION.to_owned()))
    }

    /// Deletes the failures of an account, because a sign-in may have fixed them.
    pub(crate) fn remove_account(&self, account: &AccountKey) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
            let failure = std::fs::read(&path)
                .ok()
                .and_then(|bytes| serde_json::from_slice::<CachedFailure>(&bytes).ok());
            if failure.is_none_or(|failure| failure.account() == *account) {
                let _ = private_file::remove(&path);
            }
        }
    }
}
