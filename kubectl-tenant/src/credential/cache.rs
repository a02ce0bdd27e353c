//! The token cache of the full plugin, which prints warnings where a cache hit stays silent.

use std::path::{Path, PathBuf};

use secrecy::ExposeSecret;
use tenant_cached_token::{CacheEntry, CachedToken, EXPIRY_MARGIN_SECONDS, Unreadable, hash};
use tenant_shared::Credential;
use uuid::Uuid;

use super::request::GetTokenRequest;
use crate::{
    account_key::{AccountKey, ProfileName},
    cli::credentials::TokenMode,
    error::Error,
    output,
    paths::Paths,
    private_file::{self, PrivateFile},
    store::AccessToken,
    workload_identity,
    world::Messages,
};

/// Prefix of the ids of gateway access tokens. The ids of Kubernetes tokens are UUIDs.
const SESSION_ID_PREFIX: &str = "session-";

/// The cache file of one token.
pub(crate) struct Cache {
    path: PathBuf,
    messages: Messages,
}

impl Cache {
    pub(crate) fn new(paths: &Paths, key: &str, messages: &Messages) -> Self {
        let path = paths.tokens().join(format!("{key}.json"));
        Self { path, messages: messages.clone() }
    }

    /// Reads the token, if the file can be trusted. A damaged file is quarantined.
    pub(crate) fn read(&self) -> Result<Option<CachedToken>, Error> {
        let (file, bytes, warning) = match private_file::read(&self.path)? {
            PrivateFile::Missing => return Ok(None),
            PrivateFile::Untrusted(why) => {
                self.messages.print_message(format!("warning: not used: {why}"));
                return Ok(None);
            }
            PrivateFile::Contents { file, bytes, warning } => (file, bytes, warning),
        };
        if let Some(warning) = warning {
            self.messages.print_message(warning);
        }
        match CachedToken::parse(file, &bytes) {
            Ok(token) => Ok(Some(token)),
            Err(Unreadable::OtherVersion) => Ok(None),
            Err(Unreadable::Damaged) => {
                self.messages.print_message(private_file::quarantine(&self.path));
                Ok(None)
            }
        }
    }

    /// Stores a token that was requested at `before`, and reads it back. If the cache cannot be
    /// written, a warning is printed and the next call has to ask the broker.
    pub(crate) fn store(
        &self,
        request: &GetTokenRequest,
        credential: Credential,
        before: i64,
        clock_offset: i64,
    ) -> CachedToken {
        let expires_at = before.saturating_add(i64::from(credential.expires_in));
        let entry = request.with_cache_key(|key| {
            CacheEntry::new(
                key,
                credential.token.into(),
                (before, expires_at),
                output::time(expires_at - EXPIRY_MARGIN_SECONDS).to_string(),
                credential.credential_id,
                clock_offset,
            )
        });
        self.write_and_read_back(entry)
    }

    /// Stores an access token for the gateway. Its credential id is derived from a hash: it is not
    /// secret and only tells two tokens apart.
    pub(crate) fn store_access_token(
        &self,
        request: &GetTokenRequest,
        access: AccessToken,
    ) -> CachedToken {
        let id = hash(&[access.token.expose_secret()]);
        let entry = request.with_cache_key(|key| {
            CacheEntry::new(
                key,
                access.token,
                (access.received_at, access.expires_at),
                output::time(access.expires_at - EXPIRY_MARGIN_SECONDS).to_string(),
                format!("{SESSION_ID_PREFIX}{}", &id[..16]),
                0,
            )
        });
        self.write_and_read_back(entry)
    }

    fn write_and_read_back(&self, entry: CacheEntry) -> CachedToken {
        let stored = entry
            .to_bytes()
            .map_err(|error| Error::other(error.to_string()))
            .and_then(|bytes| private_file::write(&self.path, &bytes))
            .and_then(|()| self.read());
        match stored {
            Ok(Some(read)) if read.entry.token.expose_secret() == entry.token.expose_secret() => {
                read
            }
            // Another process stored another token meanwhile; this one is as good.
            Ok(_) => CachedToken::not_stored(entry),
            Err(error) => {
                self.messages.print_message(format!("warning: the token is not cached: {error}"));
                CachedToken::not_stored(entry)
            }
        }
    }

    /// Reads all tokens of a folder, for `status` and `logout`.
    pub(crate) fn all(folder: &Path) -> Vec<(PathBuf, CacheEntry)> {
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        let mut found: Vec<_> = entries
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter_map(|path| {
                let bytes = std::fs::read(&path).ok()?;
                let line = bytes.split(|byte| *byte == b'\n').next()?;
                Some((path, serde_json::from_slice::<CacheEntry>(line).ok()?))
            })
            .collect();
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        found
    }

    /// Deletes expired tokens of workloads, because the next job has other claims and would never
    /// find them. A file that cannot be deleted now is deleted next time.
    pub(crate) fn evict_expired_workloads(folder: &Path, now: i64) {
        for (path, entry) in Self::all(folder) {
            if workload_identity::is_cache_name(entry.profile.as_deref()) && entry.expires_at <= now
            {
                let _ = private_file::remove(&path);
            }
        }
    }

    /// Deletes the revoked tokens of a workspace, so that the next call gets a new one instead of a
    /// 401.
    pub(crate) fn remove_revoked(
        folder: &Path,
        account: &AccountKey,
        workspace: Uuid,
        is_revoked: impl Fn(&str) -> bool,
    ) -> Result<(), Error> {
        for (path, entry) in Self::all(folder) {
            let is_of =
                entry.broker == account.broker.as_str() && entry.workspace.parse() == Ok(workspace);
            if is_of && is_revoked(&entry.credential_id) {
                private_file::remove(&path)?;
            }
        }
        Ok(())
    }

    /// Deletes every token of an account, and all quarantined files.
    pub(crate) fn remove_account(folder: &Path, account: &AccountKey) -> Result<(), Error> {
        for (path, entry) in Self::all(folder) {
            if belongs_to(&entry, account) {
                private_file::remove(&path)?;
            }
        }
        // The account of a quarantined file can no longer be read.
        let aside = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        for path in aside.map(|entry| entry.path()) {
            if path.extension().is_some_and(|extension| extension == "corrupt") {
                private_file::remove(&path)?;
            }
        }
        Ok(())
    }
}

/// Place of use of a token.
pub(crate) fn mode(entry: &CacheEntry) -> TokenMode {
    if entry.credential_id.starts_with(SESSION_ID_PREFIX) {
        TokenMode::Gateway
    } else {
        TokenMode::Exec
    }
}

/// Whether a token belongs to this account.
pub(crate) fn belongs_to(entry: &CacheEntry, account: &AccountKey) -> bool {
    entry.broker == account.broker.as_str()
        && entry.profile.as_deref() == account.profile.as_ref().map(ProfileName::as_str)
}
