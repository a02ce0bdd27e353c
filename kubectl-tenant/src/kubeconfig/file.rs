//! The kubeconfig as a file: found, locked, replaced at once.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

use crate::{
    error::Error,
    world::{Env, Messages},
};

/// A lock that is older than this was left behind by a process that died. kubectl holds it for
/// milliseconds.
const STALE: Duration = Duration::from_mins(1);
/// How long to wait for a fresh one.
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// How often to look.
const PROBE: Duration = Duration::from_millis(50);
/// Longest chain of symbolic links, as the kernel has it.
const LONGEST_CHAIN: usize = 40;

/// The file that is changed: the first existing one of `KUBECONFIG`, else the first one, else
/// `~/.kube/config`. It is the first one that kubectl reads, so what it says goes.
pub(crate) fn target(env: &Env) -> Result<PathBuf, Error> {
    let listed: Vec<PathBuf> = env
        .get("KUBECONFIG")
        .map(|list| {
            std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect()
        })
        .unwrap_or_default();
    if let Some(path) = listed.iter().find(|path| path.exists()).or(listed.first()) {
        return Ok(path.clone());
    }
    let home = env.get("HOME").ok_or_else(|| {
        Error::other("there is no kubeconfig: neither KUBECONFIG nor HOME is set")
    })?;
    Ok(Path::new(&home).join(".kube/config"))
}

/// client-go's lock on a kubeconfig: the file `<kubeconfig>.lock`, which must not exist. Removed on
/// drop.
#[derive(Debug)]
pub(crate) struct FileLock {
    path: PathBuf,
}

impl Drop for FileLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl FileLock {
    /// Waits for the lock. client-go neither waits nor notices a lock whose owner died; this does
    /// both.
    pub(crate) async fn take(kubeconfig: &Path, messages: &Messages) -> Result<Self, Error> {
        let mut name = kubeconfig.as_os_str().to_owned();
        name.push(".lock");
        let path = PathBuf::from(name);
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)
                .map_err(|error| Error::file("make the folder", folder, &error))?;
        }
        let deadline = Instant::now() + LONGEST_WAIT;
        loop {
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(_) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::file("lock", kubeconfig, &error)),
            }
            if remove_stale(&path) {
                messages.say(format!(
                    "warning: {} was older than {} s and was removed: its owner died",
                    path.display(),
                    STALE.as_secs()
                ));
                continue;
            }
            if Instant::now() >= deadline {
                return Err(Error::other(format!(
                    "{} is locked: {} exists",
                    kubeconfig.display(),
                    path.display()
                ))
                .hint(format!(
                    "if no kubectl is running, delete it: rm {} (left alone it counts as dead after {} s)",
                    path.display(),
                    STALE.as_secs()
                )));
            }
            tokio::time::sleep(PROBE).await;
        }
    }
}

/// Removes a lock that was left behind. Renamed first and looked at again, because in between
/// somebody may have done the same and taken a lock of their own.
fn remove_stale(path: &Path) -> bool {
    let Ok(facts) = fs::symlink_metadata(path) else { return false };
    // The file system's clock against itself: both times come from the same one.
    let age = facts
        .modified()
        .ok()
        .zip(file_system_now(path))
        .and_then(|(then, now)| now.duration_since(then).ok());
    if age.is_none_or(|age| age < STALE) {
        return false;
    }
    let aside = path.with_extension(format!("stale-{}", std::process::id()));
    if fs::rename(path, &aside).is_err() {
        return false;
    }
    let same = fs::symlink_metadata(&aside).is_ok_and(|now| now.ino() == facts.ino());
    if !same {
        // It was a fresh one: put it back, unless there is one again.
        let _ = fs::hard_link(&aside, path);
    }
    let _ = fs::remove_file(&aside);
    same
}

/// The time of the file system that holds a path.
fn file_system_now(path: &Path) -> Option<SystemTime> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let probe = tempfile::Builder::new()
        .prefix(".now-")
        .tempfile_in(folder.unwrap_or(Path::new(".")))
        .ok()?;
    probe.as_file().metadata().ok()?.modified().ok()
}

/// The file behind a chain of symbolic links; it need not exist.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf, Error> {
    let mut path = path.to_owned();
    for _ in 0..LONGEST_CHAIN {
        match fs::read_link(&path) {
            Ok(next) => path = path.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => return Ok(path),
        }
    }
    Err(Error::other(format!("{} is a symbolic link without an end", path.display())))
}

/// The text of a kubeconfig, empty if there is none.
pub(crate) fn read(path: &Path) -> Result<String, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(Error::file("read", path, &error)),
    }
}

/// Replaces a file (not a link) at once, with the mode and, as far as the system lets us, the owner
/// that it had; a new one is private.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), Error> {
    let failed = |error: &io::Error| Error::file("write", path, error);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(|error| Error::file("make the folder", folder, &error))?;
    let mut temporary = tempfile::Builder::new()
        .prefix(".kubeconfig-")
        .tempfile_in(folder)
        .map_err(|error| Error::file("write in", folder, &error))?;
    if let Ok(facts) = fs::metadata(path) {
        let mine = temporary.as_file().metadata().map_err(|error| failed(&error))?;
        if (mine.uid(), mine.gid()) != (facts.uid(), facts.gid()) {
            let _ = std::os::unix::fs::fchown(
                temporary.as_file(),
                Some(facts.uid()),
                Some(facts.gid()),
            );
        }
        temporary
            .as_file()
            .set_permissions(fs::Permissions::from_mode(facts.mode() & 0o7777))
            .map_err(|error| failed(&error))?;
    }
    temporary
        .write_all(text.as_bytes())
        .and_then(|()| temporary.as_file().sync_all())
        .map_err(|error| failed(&error))?;
    temporary.persist(path).map_err(|error| failed(&error.error))?;
    // The rename itself is on disk when the folder is.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}
