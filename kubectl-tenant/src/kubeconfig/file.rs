//! The kubeconfig file: finds, locks and atomically replaces it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

use crate::{environment::Env, error::Error, world::Messages};

/// Age from which a lock file counts as stale: its process died. kubectl holds the lock for
/// milliseconds.
const STALE_LOCK_AGE: Duration = Duration::from_mins(1);
/// Timeout of waiting for a lock that is not stale.
const LOCK_TIMEOUT: Duration = Duration::from_secs(15);
/// Interval at which a waiting process tries again.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum length of a chain of symbolic links, the same as the kernel's.
const MAX_SYMLINKS: usize = 40;

/// Path of the kubeconfig to change: the first existing file of `KUBECONFIG`, else its first one,
/// else `~/.kube/config`. The first existing file takes precedence in kubectl's own merge.
pub(crate) fn target_path(env: &Env) -> Result<PathBuf, Error> {
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

/// client-go's lock on a kubeconfig: the file `<kubeconfig>.lock`, created exclusively and removed
/// on drop.
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
    /// Waits for the lock and removes a stale one. client-go does neither.
    pub(crate) async fn acquire(kubeconfig: &Path, messages: &Messages) -> Result<Self, Error> {
        let mut name = kubeconfig.as_os_str().to_owned();
        name.push(".lock");
        let path = PathBuf::from(name);
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)
                .map_err(|error| Error::file("make the folder", folder, &error))?;
        }
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(_) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::file("lock", kubeconfig, &error)),
            }
            if remove_stale(&path) {
                messages.print_message(format!(
                    "warning: the stale lock {} was removed, because it was older than {} s",
                    path.display(),
                    STALE_LOCK_AGE.as_secs()
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
                    "if no kubectl is running, delete it: rm {} (otherwise it counts as stale after {} s)",
                    path.display(),
                    STALE_LOCK_AGE.as_secs()
                )));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Removes a stale lock. The lock is renamed first and then compared again, because another process
/// may have removed it and taken its own lock in between.
fn remove_stale(path: &Path) -> bool {
    let Ok(metadata) = fs::symlink_metadata(path) else { return false };
    // Both times come from the clock of the file system, so they can be compared.
    let age = metadata
        .modified()
        .ok()
        .zip(file_system_now(path))
        .and_then(|(then, now)| now.duration_since(then).ok());
    if age.is_none_or(|age| age < STALE_LOCK_AGE) {
        return false;
    }
    let aside = path.with_extension(format!("stale-{}", std::process::id()));
    if fs::rename(path, &aside).is_err() {
        return false;
    }
    let same = fs::symlink_metadata(&aside).is_ok_and(|now| now.ino() == metadata.ino());
    if !same {
        // It was another process's new lock: restore it, unless there is a newer one.
        let _ = fs::hard_link(&aside, path);
    }
    let _ = fs::remove_file(&aside);
    same
}

/// Current time of the file system that holds a path.
fn file_system_now(path: &Path) -> Option<SystemTime> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let probe = tempfile::Builder::new()
        .prefix(".now-")
        .tempfile_in(folder.unwrap_or(Path::new(".")))
        .ok()?;
    probe.as_file().metadata().ok()?.modified().ok()
}

/// Resolves a chain of symbolic links; the target need not exist.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf, Error> {
    let mut path = path.to_owned();
    for _ in 0..MAX_SYMLINKS {
        match fs::read_link(&path) {
            Ok(next) => path = path.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => return Ok(path),
        }
    }
    Err(Error::other(format!("{} has too many levels of symbolic links", path.display())))
}

/// Reads a kubeconfig; returns an empty text if there is none.
pub(crate) fn read(path: &Path) -> Result<String, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(Error::file("read", path, &error)),
    }
}

/// Atomically replaces a file (not a link) and preserves its mode and, as far as the system
/// permits, its owner; a new file is private.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), Error> {
    let failed = |error: &io::Error| Error::file("write", path, error);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(|error| Error::file("make the folder", folder, &error))?;
    let mut temporary = tempfile::Builder::new()
        .prefix(".kubeconfig-")
        .tempfile_in(folder)
        .map_err(|error| Error::file("write in", folder, &error))?;
    if let Ok(metadata) = fs::metadata(path) {
        let mine = temporary.as_file().metadata().map_err(|error| failed(&error))?;
        if (mine.uid(), mine.gid()) != (metadata.uid(), metadata.gid()) {
            let _ = std::os::unix::fs::fchown(
                temporary.as_file(),
                Some(metadata.uid()),
                Some(metadata.gid()),
            );
        }
        temporary
            .as_file()
            .set_permissions(fs::Permissions::from_mode(metadata.mode() & 0o7777))
            .map_err(|error| failed(&error))?;
    }
    temporary
        .write_all(text.as_bytes())
        .and_then(|()| temporary.as_file().sync_all())
        .map_err(|error| failed(&error))?;
    temporary.persist(path).map_err(|error| failed(&error.error))?;
    // The rename is durable once the folder is synced.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}
