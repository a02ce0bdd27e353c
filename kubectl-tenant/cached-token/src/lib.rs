//! The way of a cache hit: from kubectl's question to the cached token.
//!
//! kubectl runs the plugin before its first request, so this is what a person waits for every time.
//! It is a package of its own for one reason: code that lies together in the file lies together in
//! memory. A process of a millisecond consists of page faults, and each of them maps 64 KiB; spread
//! over a program with an HTTP stack the same code touches three times as many pages.
//!
//! For that, too, nothing here formats numbers, parses URLs or reads what is not needed. Whatever is
//! out of the ordinary is not a hit: [`hit`] says so without a word, and the rest of the plugin,
//! which can speak, looks again.

mod parent;
mod request;
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

pub use parent::Parent;
pub use request::{Request, hash};
pub use token::{BACKWARD_TOLERANCE, CachedToken, Facts, MARGIN, Unreadable, secret};

/// With less than this many seconds left a token is renewed ahead of time.
const RENEW_AHEAD: i64 = 10 * 60;
/// A token that the API server seems to refuse is replaced at most once in this many seconds.
const REFUSED_PAUSE: i64 = 10;
/// Far above any token with its facts; a larger file is not ours.
pub const LARGEST_FILE: u64 = 256 * 1024;
/// The mode bits of the group and of everybody.
pub const OTHERS: u32 = 0o077;
/// Where kubectl tells a plugin about itself.
pub const EXEC_INFO_ENV: &str = "KUBERNETES_EXEC_INFO";

/// File with the OIDC token of a machine that takes the place of a person.
pub const ID_TOKEN_FILE_ENV: &str = "TENANT_ID_TOKEN_FILE";
/// That token itself.
pub const ID_TOKEN_ENV: &str = "TENANT_ID_TOKEN";

/// What the cached token is good for.
#[derive(Debug)]
pub enum Verdict {
    /// Print it.
    Serve(CachedToken),
    /// Get a new one, but this one will do if the broker cannot be reached.
    RenewAhead(CachedToken),
    /// Get a new one: this one, though not expired, seems to be refused by the API server.
    Refused(CachedToken),
    /// Get a new one.
    Missing,
}

/// Judges a cached token at a time (Unix seconds of this machine) for the process that asks.
///
/// client-go runs the plugin again inside the same process after a 401, so the same parent asking
/// twice for one unexpired token means that it was of no use. Some clients ask more often than
/// that, hence the pause.
pub fn judge(token: Option<CachedToken>, now: i64, parent: Option<Parent>) -> Verdict {
    let Some(token) = token.filter(|token| token.is_usable(now)) else { return Verdict::Missing };
    let asked_before = parent.is_some_and(|parent| token.was_served_to(parent));
    if asked_before && now - token.facts.received_at >= REFUSED_PAUSE {
        return Verdict::Refused(token);
    }
    let Facts { received_at, expires_at, .. } = token.facts;
    // A token that never lived long is not renewed at every call.
    if expires_at - now < RENEW_AHEAD.min((expires_at - received_at) / 4) {
        return Verdict::RenewAhead(token);
    }
    Verdict::Serve(token)
}

/// The one document on stdout, a [`tenant_shared::ExecCredential`] on a line of its own.
///
/// # Errors
/// It cannot be serialized.
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
            expiration_timestamp: &token.facts.stamp,
            token: token.facts.token.expose_secret(),
        },
    })?;
    text.push('\n');
    Ok(text)
}

/// A folder of ours in an XDG base directory: that of the variable if it is absolute, else the
/// default below `HOME`. [`None`] without either.
pub fn folder(
    env: &dyn Fn(&str) -> Option<OsString>,
    variable: &str,
    default: &str,
) -> Option<PathBuf> {
    let named = env(variable).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let base = named.or_else(|| Some(PathBuf::from(env("HOME")?).join(default)))?;
    Some(base.join("kubectl-tenant"))
}

/// The folder of the cached tokens.
pub fn tokens_folder(env: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    Some(folder(env, "XDG_CACHE_HOME", ".cache")?.join("tokens"))
}

/// How [`hit`] ended.
#[derive(Debug)]
pub enum Outcome {
    /// Something else is to be done, or something has to be said.
    NotAHit,
    /// The document is on stdout, whole unless this says otherwise.
    Printed(io::Result<()>),
}

/// [`hit`] in the surroundings of this process.
pub fn hit_of_this_process(args: &[OsString]) -> Outcome {
    let env = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    hit(args, &env, &now, Parent::of_this_process, &mut Stdout)
}

/// This machine's time in Unix seconds.
#[expect(clippy::disallowed_methods, reason = "where the plugin's time comes from")]
pub fn now() -> i64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// Standard output without a buffer: everything is printed in one piece, and setting up a buffer
/// costs more than a hit does otherwise.
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

/// Answers kubectl's question if that takes no more than reading one file. `env` gives no empty
/// values.
pub fn hit(
    args: &[OsString],
    env: &dyn Fn(&str) -> Option<OsString>,
    now: &dyn Fn() -> i64,
    parent: fn() -> Option<Parent>,
    stdout: &mut dyn Write,
) -> Outcome {
    match found(args, env, now, parent) {
        Some(text) => {
            Outcome::Printed(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
        }
        None => Outcome::NotAHit,
    }
}

fn found(
    args: &[OsString],
    env: &dyn Fn(&str) -> Option<OsString>,
    now: &dyn Fn() -> i64,
    parent: fn() -> Option<Parent>,
) -> Option<String> {
    let request = Request::of_args(args)?;
    // Who a machine is says its token, and reading that is more than a hit does.
    if request.profile.is_none()
        && [ID_TOKEN_FILE_ENV, ID_TOKEN_ENV].into_iter().any(|name| env(name).is_some())
    {
        return None;
    }
    let info = match env(EXEC_INFO_ENV) {
        Some(text) => Some(ExecInfo::parse(text.to_str()?).ok()?),
        None => None,
    };
    let path = request.file(&tokens_folder(env)?);
    // Without kubectl's own words a shell is the parent, and asks as often as it likes.
    let parent = info.and_then(|_| parent());
    let token = read(&path)?;
    let Verdict::Serve(mut token) = judge(Some(token), now(), parent) else { return None };
    let text = document(info, &token).ok()?;
    token.mark_served_to(parent);
    Some(text)
}

/// Reads a token out of a file that is in perfect order.
fn read(path: &Path) -> Option<CachedToken> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let facts = rustix::fs::fstat(&file).ok()?;
    let length = u64::try_from(facts.st_size).ok().filter(|length| *length <= LARGEST_FILE)?;
    let is_file = FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile;
    let mine = facts.st_uid == rustix::process::geteuid().as_raw();
    if !is_file || !mine || facts.st_mode & OTHERS != 0 {
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
