//! The fast path of `get-token`: a cache hit, from kubectl's call to the printed token.
//!
//! kubectl runs the plugin before its first request, so a person waits for this code every time. It
//! is a package of its own because code that is adjacent in the file is adjacent in memory. The run
//! time of a process of one millisecond is dominated by page faults, each of which maps 64 KiB;
//! spread over a program with an HTTP stack, the same code touches three times as many pages.
//!
//! For the same reason nothing here formats numbers, parses URLs or reads what is not needed.
//! Everything unusual is a cache miss: [`try_hit`] reports it without a message, and the rest of
//! the plugin, which can print messages, tries again.

// This package is compiled before the plugin, so its error is the first one.
#[cfg(not(unix))]
compile_error!(
    "kubectl-tenant runs on Linux and macOS. It does not run on Windows, because sessions and tokens \
     are protected by the modes, owners and locks of Unix files. Use it in WSL 2."
);

mod cache_key;
mod parent;
mod token;

use std::{
    ffi::OsString,
    io::{self, Write},
    path::{Path, PathBuf},
    time::SystemTime,
};

use rustix::fs::{FileType, Mode, OFlags};
use secrecy::ExposeSecret;
use serde::Serialize;
use tenant_shared::ExecInfo;

pub use cache_key::{CacheKey, hash};
pub use parent::Parent;
pub use token::{
    CLOCK_SETBACK_TOLERANCE_SECONDS, CacheEntry, CachedToken, EXPIRY_MARGIN_SECONDS, Unreadable,
    secret,
};

/// A token with less than this many seconds left is renewed ahead of time.
const RENEW_AHEAD_SECONDS: i64 = 10 * 60;
/// Minimum seconds between two replacements of a token that the API server seems to reject.
const MIN_REPLACEMENT_INTERVAL_SECONDS: i64 = 10;
/// Maximum size of a cache file in bytes, far above any token; a larger file was not written by
/// this program.
pub const MAX_FILE_BYTES: u64 = 256 * 1024;
/// Mode bits of the group and of others.
pub const NON_OWNER_MODE_BITS: u32 = 0o077;
/// Environment variable in which kubectl describes itself to a plugin (KEP-541).
pub const EXEC_INFO_ENV: &str = "KUBERNETES_EXEC_INFO";

/// Environment variable: file with the OIDC token of a workload, which replaces a person's sign-in.
pub const ID_TOKEN_FILE_ENV: &str = "TENANT_ID_TOKEN_FILE";
/// Environment variable: the OIDC token of a workload itself.
pub const ID_TOKEN_ENV: &str = "TENANT_ID_TOKEN";

/// Decision about a cached token.
#[derive(Debug)]
pub enum CacheDecision {
    /// Print it.
    Serve(CachedToken),
    /// Get a new token, but fall back to this one if the broker cannot be reached.
    RenewAhead(CachedToken),
    /// Get a new token: the API server seems to reject this one although it has not expired.
    Rejected(CachedToken),
    /// Get a new token: there is none that can be used.
    Miss,
}

/// Decides what to do with a cached token at a time (Unix seconds of this machine) for the calling
/// process.
///
/// client-go runs the plugin again inside the same process after a 401. A second call of the same
/// parent for an unexpired token therefore means that the API server rejected it. Some clients call
/// more often than that, hence the minimum interval.
pub fn decide(token: Option<CachedToken>, now: i64, parent: Option<Parent>) -> CacheDecision {
    let Some(token) = token.filter(|token| token.is_usable(now)) else {
        return CacheDecision::Miss;
    };
    let asked_before = parent.is_some_and(|parent| token.was_served_to(parent));
    if asked_before && now - token.entry.received_at >= MIN_REPLACEMENT_INTERVAL_SECONDS {
        return CacheDecision::Rejected(token);
    }
    let CacheEntry { received_at, expires_at, .. } = token.entry;
    // A token with a short lifetime is not renewed on every call.
    if expires_at - now < RENEW_AHEAD_SECONDS.min((expires_at - received_at) / 4) {
        return CacheDecision::RenewAhead(token);
    }
    CacheDecision::Serve(token)
}

/// Renders the one document on stdout, a [`tenant_shared::ExecCredential`] on a line of its own.
///
/// # Errors
/// The document cannot be serialized.
pub fn document(info: Option<ExecInfo>, token: &CachedToken) -> Result<String, serde_json::Error> {
    #[derive(Serialize)]
    struct Document<'a> {
        #[serde(rename = "apiVersion")]
        api_version: &'static str,
        kind: &'static str,
        status: Status<'a>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Status<'a> {
        expiration_timestamp: &'a str,
        token: &'a str,
    }
    let mut text = serde_json::to_string(&Document {
        api_version: info.unwrap_or_default().api_version.as_str(),
        kind: "ExecCredential",
        status: Status {
            expiration_timestamp: &token.entry.stamp,
            token: token.entry.token.expose_secret(),
        },
    })?;
    text.push('\n');
    Ok(text)
}

/// This program's folder in an XDG base directory: in that of the variable if it is absolute, else
/// in the default below `HOME`. [`None`] if neither is set.
pub fn xdg_folder(
    env: &dyn Fn(&str) -> Option<OsString>,
    variable: &str,
    default: &str,
) -> Option<PathBuf> {
    let named = env(variable).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let base = named.or_else(|| Some(PathBuf::from(env("HOME")?).join(default)))?;
    Some(base.join("kubectl-tenant"))
}

/// Folder of the cached tokens.
pub fn tokens_folder(env: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    Some(xdg_folder(env, "XDG_CACHE_HOME", ".cache")?.join("tokens"))
}

/// Outcome of [`try_hit`].
#[derive(Debug)]
pub enum HitOutcome {
    /// Nothing was printed: the full plugin has to handle the call.
    Miss,
    /// The document was printed to stdout, completely unless the write failed.
    Printed(io::Result<()>),
}

/// Runs [`try_hit`] with the environment, clock and stdout of this process.
pub fn try_hit_in_process(args: &[OsString]) -> HitOutcome {
    let env = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    try_hit(args, &env, &now, Parent::of_this_process, &mut Stdout)
}

/// Current time of this machine in Unix seconds.
#[expect(clippy::disallowed_methods, reason = "where the plugin's time comes from")]
pub fn now() -> i64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// Standard output without a buffer, because everything is printed in one piece and setting up a
/// buffer costs more than the rest of a hit.
#[derive(Clone, Copy, Debug)]
pub struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(rustix::stdio::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Serves kubectl's call from the cache if that takes no more than reading one file. `env` returns
/// no empty values.
pub fn try_hit(
    args: &[OsString],
    env: &dyn Fn(&str) -> Option<OsString>,
    now: &dyn Fn() -> i64,
    parent: fn() -> Option<Parent>,
    stdout: &mut dyn Write,
) -> HitOutcome {
    match lookup(args, env, now, parent) {
        Some(text) => {
            HitOutcome::Printed(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
        }
        None => HitOutcome::Miss,
    }
}

fn lookup(
    args: &[OsString],
    env: &dyn Fn(&str) -> Option<OsString>,
    now: &dyn Fn() -> i64,
    parent: fn() -> Option<Parent>,
) -> Option<String> {
    let key = CacheKey::from_args(args)?;
    // The identity of a workload is in its token, and reading that takes longer than a hit may.
    if key.profile.is_none()
        && [ID_TOKEN_FILE_ENV, ID_TOKEN_ENV].into_iter().any(|name| env(name).is_some())
    {
        return None;
    }
    let info = match env(EXEC_INFO_ENV) {
        Some(text) => Some(ExecInfo::parse(text.to_str()?).ok()?),
        None => None,
    };
    let path = key.file(&tokens_folder(env)?);
    // Without KUBERNETES_EXEC_INFO the parent is a shell, which may ask as often as it likes.
    let parent = info.and_then(|_| parent());
    let token = read(&path)?;
    let CacheDecision::Serve(mut token) = decide(Some(token), now(), parent) else { return None };
    let text = document(info, &token).ok()?;
    token.mark_served_to(parent);
    Some(text)
}

/// Reads a token from a file whose owner, mode, size and content are exactly as expected.
fn read(path: &Path) -> Option<CachedToken> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    let length = u64::try_from(stat.st_size).ok().filter(|length| *length <= MAX_FILE_BYTES)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let mine = stat.st_uid == rustix::process::geteuid().as_raw();
    if !is_file || !mine || stat.st_mode & NON_OWNER_MODE_BITS != 0 {
        return None;
    }
    // Files are replaced and never grow, so one read brings all of it.
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    if rustix::io::read(&file, bytes.as_mut_slice()).ok()? != bytes.len() {
        return None;
    }
    CachedToken::parse(file.into(), &bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_follow_the_xdg_rules() {
        let folder = |home: Option<&'static str>, cache: Option<&'static str>| {
            tokens_folder(&move |name| match name {
                "HOME" => home.map(OsString::from),
                _ => cache.map(OsString::from),
            })
        };
        assert_eq!(folder(Some("/h"), None).unwrap(), Path::new("/h/.cache/kubectl-tenant/tokens"));
        assert_eq!(folder(None, Some("/c")).unwrap(), Path::new("/c/kubectl-tenant/tokens"));
        assert_eq!(folder(Some("/h"), Some("c")), folder(Some("/h"), None));
        assert_eq!(folder(None, None), None);
    }
}
