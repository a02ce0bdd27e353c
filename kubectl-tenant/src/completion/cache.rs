//! The candidates of the last seconds, so that one completion after another asks the broker once,
//! and waits for a broker that does not answer once.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tenant_cached_token::hash;

use super::candidate::Candidate;
use crate::{
    account_key::AccountKey,
    paths::Paths,
    private_file::{self, PrivateFile},
};

/// Schema version of the file.
const SCHEMA_VERSION: u32 = 1;
/// Seconds for which candidates are used again.
const CANDIDATES_TTL_SECONDS: i64 = 10;

/// The file of one source of candidates of one account. Losing it costs a request, so no operation
/// here returns an error.
pub(super) struct CandidateCache {
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct File {
    version: u32,
    /// When the broker was asked, in Unix seconds of this machine.
    at: i64,
    candidates: Vec<Candidate>,
}

impl CandidateCache {
    pub(super) fn new(paths: &Paths, account: &AccountKey, [source, of]: [&str; 2]) -> Self {
        let key = hash(&[account.digest().as_str(), source, of]);
        Self { path: paths.completions().join(format!("{key}.json")) }
    }

    /// Reads the candidates, if they are not older than [`CANDIDATES_TTL_SECONDS`].
    pub(super) fn read(&self, now: i64) -> Option<Vec<Candidate>> {
        let Ok(PrivateFile::Contents { bytes, .. }) = private_file::read(&self.path) else {
            return None;
        };
        let file: File = serde_json::from_slice(&bytes).ok()?;
        let is_fresh = (0..CANDIDATES_TTL_SECONDS).contains(&(now.saturating_sub(file.at)));
        (file.version == SCHEMA_VERSION && is_fresh).then_some(file.candidates)
    }

    /// Stores the candidates.
    pub(super) fn write(&self, candidates: &[Candidate], now: i64) {
        let file = File { version: SCHEMA_VERSION, at: now, candidates: candidates.to_vec() };
        if let Ok(bytes) = serde_json::to_vec(&file) {
            let _ = private_file::write_unsynced(&self.path, &bytes);
        }
    }
}

/// Deletes the candidates of all accounts: they may contain addresses of other users, and another
/// person may have signed in.
pub(crate) fn clear(paths: &Paths) {
    // A missing folder is the usual case.
    let _ = std::fs::remove_dir_all(paths.completions());
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, fs};

    use super::*;
    use crate::{broker_url::BrokerUrl, environment::Env};

    #[test]
    fn candidates_are_used_again_for_some_seconds() {
        let home = tempfile::tempdir().unwrap();
        let env = Env::Fixed(HashMap::from([("HOME".into(), home.path().into())]));
        let paths = Paths::from_env(&env).unwrap();
        let account = AccountKey::unnamed(BrokerUrl::parse("https://b.example").unwrap());
        let cache = CandidateCache::new(&paths, &account, ["users", ""]);
        assert_eq!(cache.read(1000), None);
        let candidates = vec![Candidate::plain("ada@example.com")];
        cache.write(&candidates, 1000);
        for (now, found) in
            [(1000, true), (1009, true), (1010, false), (999, false), (i64::MIN, false)]
        {
            assert_eq!(cache.read(now).is_some(), found, "{now}");
        }
        assert_eq!(cache.read(1000), Some(candidates));
        assert_eq!(CandidateCache::new(&paths, &account, ["sessions", ""]).read(1000), None);
        for damaged in ["", "{}", r#"{"version":2,"at":1000,"candidates":[]}"#] {
            fs::write(&cache.path, damaged).unwrap();
            assert_eq!(cache.read(1000), None, "{damaged}");
        }
        clear(&paths);
        assert!(!cache.path.exists());
        clear(&paths);
    }
}
