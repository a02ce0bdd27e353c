//! The cache as the rest of the plugin uses it: with words where a hit has none.

use std::path::{Path, PathBuf};

use secrecy::ExposeSecret;
use tenant_cached_token::{CachedToken, Facts, MARGIN, Unreadable, hash};
use tenant_shared::Credential;
use uuid::Uuid;

use super::Request;
use crate::{
    cli::TokenMode,
    error::Error,
    identity::{Identity, ProfileName},
    machine, output,
    paths::Paths,
    private_file::{self, Found},
    store::AccessToken,
    world::Messages,
};

/// What the ids of access tokens begin with. Those of the cluster's tokens are UUIDs.
const SESSION: &str = "session-";

/// The place of one token.
pub(crate) struct Cache {
    path: PathBuf,
    messages: Messages,
}

impl Cache {
    pub(crate) fn new(paths: &Paths, key: &str, messages: &Messages) -> Self {
        let path = paths.tokens().join(format!("{key}.json"));
        Self { path, messages: messages.clone() }
    }

    /// The token, if there is a file that can be believed. What is damaged is set aside.
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
        match CachedToken::parse(file, &bytes) {
            Ok(token) => Ok(Some(token)),
            Err(Unreadable::OtherVersion) => Ok(None),
            Err(Unreadable::Damaged) => {
                self.messages.say(private_file::quarantine(&self.path));
                Ok(None)
            }
        }
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
        let facts = request.in_canonical_form(|request| {
            Facts::new(
                request,
                credential.token.into(),
                (before, expires_at),
                output::time(expires_at - MARGIN).to_string(),
                credential.credential_id,
                clock_offset,
            )
        });
        self.put(facts)
    }

    /// Stores an access token for the gateway. Its id is no secret and not the token: it tells one
    /// from the next.
    pub(super) fn store_access(&self, request: &Request, access: AccessToken) -> CachedToken {
        let id = hash(&[access.token.expose_secret()]);
        let facts = request.in_canonical_form(|request| {
            Facts::new(
                request,
                access.token,
                (access.received_at, access.expires_at),
                output::time(access.expires_at - MARGIN).to_string(),
                format!("{SESSION}{}", &id[..16]),
                0,
            )
        });
        self.put(facts)
    }

    fn put(&self, facts: Facts) -> CachedToken {
        let stored = facts
            .file()
            .map_err(|error| Error::other(error.to_string()))
            .and_then(|bytes| private_file::write(&self.path, &bytes))
            .and_then(|()| self.read());
        match stored {
            Ok(Some(read)) if read.facts.token.expose_secret() == facts.token.expose_secret() => {
                read
            }
            // Another process was faster with another one; this one is as good.
            Ok(_) => CachedToken::unstored(facts),
            Err(error) => {
                self.messages.say(format!("warning: the token is not cached: {error}"));
                CachedToken::unstored(facts)
            }
        }
    }

    /// All tokens of a folder, for `status` and `logout`.
    pub(crate) fn all(folder: &Path) -> Vec<(PathBuf, Facts)> {
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        let mut found: Vec<_> = entries
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter_map(|path| {
                let bytes = std::fs::read(&path).ok()?;
                let line = bytes.split(|byte| *byte == b'\n').next()?;
                Some((path, serde_json::from_slice::<Facts>(line).ok()?))
            })
            .collect();
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        found
    }

    /// Deletes tokens of machines that have ended: the next job has other claims and would never
    /// find them. What cannot be deleted now is deleted next time.
    pub(super) fn clear_away(folder: &Path, now: i64) {
        for (path, facts) in Self::all(folder) {
            if machine::is_cache_name(facts.profile.as_deref()) && facts.expires_at <= now {
                let _ = private_file::remove(&path);
            }
        }
    }

    /// Deletes the tokens of a workspace that were revoked: the next call gets a new one instead of a
    /// refusal.
    pub(crate) fn forget_revoked(
        folder: &Path,
        identity: &Identity,
        workspace: Uuid,
        is_revoked: impl Fn(&str) -> bool,
    ) -> Result<(), Error> {
        for (path, facts) in Self::all(folder) {
            let is_of = facts.broker == identity.broker.as_str()
                && facts.workspace.parse() == Ok(workspace);
            if is_of && is_revoked(&facts.credential_id) {
                private_file::remove(&path)?;
            }
        }
        Ok(())
    }

    /// Deletes every token of an account, and what was set aside.
    pub(crate) fn forget(folder: &Path, identity: &Identity) -> Result<(), Error> {
        for (path, facts) in Self::all(folder) {
            if belongs_to(&facts, identity) {
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

/// For whom a token is.
pub(crate) fn mode(facts: &Facts) -> TokenMode {
    if facts.credential_id.starts_with(SESSION) { TokenMode::Gateway } else { TokenMode::Exec }
}

/// Whether a token was got by this account.
pub(crate) fn belongs_to(facts: &Facts, identity: &Identity) -> bool {
    facts.broker == identity.broker.as_str()
        && facts.profile.as_deref() == identity.profile.as_ref().map(ProfileName::as_str)
}
