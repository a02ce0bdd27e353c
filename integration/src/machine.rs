//! Programs, folders and accounts of the machine.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::probe::{self, Probe};
use crate::process::Account;
use crate::progress::print_message;
use crate::search_path::find_in;

/// Returns the program of this name on our `PATH`.
pub fn find(name: &str) -> Option<PathBuf> {
    find_in(&std::env::var_os("PATH")?, name)
}

/// Variable with the folder for caches of the user who started `cargo dev`. In a terminal of its
/// stack `XDG_CACHE_HOME` is a folder that is deleted with the stack.
pub const CACHE_HOME_ENV: &str = "TENANT_DEV_CACHE_HOME";

/// Returns the folder for caches of this user: [`CACHE_HOME_ENV`], else `XDG_CACHE_HOME`, else
/// `~/.cache`. Relative paths are ignored (XDG Base Directory Specification).
pub fn cache_home() -> Option<PathBuf> {
    cache_home_of(|name| std::env::var_os(name))
}

fn cache_home_of(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = |name| variable(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    folder(CACHE_HOME_ENV)
        .or_else(|| folder("XDG_CACHE_HOME"))
        .or_else(|| Some(folder("HOME")?.join(".cache")))
}

/// Returns the cache folder of this project, in [`cache_home`].
pub fn cache_folder() -> Option<PathBuf> {
    cache_home().map(|cache| cache.join("kubectl-tenant"))
}

/// Waits for the lock on this folder; it is released when the file is dropped, or when the process
/// ends. `does` completes the message "another process …".
///
/// # Errors
/// The folder cannot be written to, or `limit` passed.
pub(crate) async fn lock(folder: &Path, does: &str, limit: Duration) -> Result<File> {
    let path = folder.join(".lock");
    let file = File::create(&path).with_context(|| format!("open {}", path.display()))?;
    let mut reported = false;
    probe::until(&format!("another process that {does}"), limit, || {
        std::future::ready(match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Probe::Ready(())),
            Err(Errno::WOULDBLOCK) => {
                if !reported {
                    print_message(&format!("another process {does}; waiting for it"));
                    reported = true;
                }
                Ok(Probe::NotYet(format!("{} is locked", path.display())))
            }
            Err(error) => Err(error).with_context(|| format!("lock {}", path.display())),
        })
    })
    .await?;
    Ok(file)
}

/// Returns the account for programs that refuse to run as root: `nobody` if we are root, else
/// `None`.
///
/// # Errors
/// We are root and the machine has no account `nobody`.
pub fn unprivileged_account() -> Result<Option<Account>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let accounts = std::fs::read_to_string("/etc/passwd").context("read /etc/passwd")?;
    parse_account(&accounts, "nobody").map(Some).context(
        "PostgreSQL refuses root, and there is no account nobody to run it as; run as another user",
    )
}

/// Finds the account of this name in the text of passwd(5).
fn parse_account(accounts: &str, name: &str) -> Option<Account> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then_some(())?;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(Account { uid, gid })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_of_the_user_is_used_in_a_terminal_of_a_stack() {
        let caches = |set: &[(&str, &str)]| {
            let variable = |name: &str| Some(set.iter().find(|(key, _)| *key == name)?.1.into());
            cache_home_of(variable).unwrap()
        };
        let home = ("HOME", "/home/a");
        let stack = ("XDG_CACHE_HOME", "/tmp/stack/home/.cache");
        assert_eq!(caches(&[home]), Path::new("/home/a/.cache"));
        assert_eq!(caches(&[home, ("XDG_CACHE_HOME", "")]), Path::new("/home/a/.cache"));
        assert_eq!(caches(&[home, ("XDG_CACHE_HOME", "caches")]), Path::new("/home/a/.cache"));
        assert_eq!(caches(&[home, stack]), Path::new("/tmp/stack/home/.cache"));
        assert_eq!(caches(&[home, stack, (CACHE_HOME_ENV, "/caches")]), Path::new("/caches"));
    }

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let text = "root:x:0:0:root:/root:/bin/sh\nnobody2:x:7:8::/:\nnobody:x:65534:65533::/:/x\n";
        assert_eq!(parse_account(text, "nobody"), Some(Account { uid: 65534, gid: 65533 }));
        assert_eq!(parse_account(text, "somebody"), None);
    }
}
