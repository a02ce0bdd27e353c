//! Temporary folders of a run.

use std::fs::DirBuilder;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

use crate::process::guardian;

/// A temporary folder that only this user can enter. It is removed with the value, or when the
/// process ends. After a panic it stays, so that its logs can be read, and its path is printed.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    keep: AtomicBool,
}

impl Scratch {
    /// Creates an empty folder in the system's folder for temporary files. Its name contains
    /// `purpose`.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new(purpose: &str) -> Result<Self> {
        let path = tempfile::Builder::new()
            .prefix(&format!("kubectl-tenant-{purpose}-"))
            .tempdir()
            .context("make a temporary folder; is TMPDIR writable?")?
            .keep();
        guardian::adopt_folder(&path)?;
        Ok(Self { path, keep: AtomicBool::new(false) })
    }

    /// Opens a permanent folder at this path, and creates it if it is missing.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn kept(path: &Path) -> Result<Self> {
        private_folder(path)?;
        let path = path
            .canonicalize()
            .with_context(|| format!("resolve the folder {}", path.display()))?;
        Ok(Self { path, keep: AtomicBool::new(true) })
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a folder in it that only this user can enter, and creates it if it is missing.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        private_folder(&path)?;
        Ok(path)
    }

    /// Keeps the folder, and prints so once on standard error.
    pub fn keep(&self) {
        if !self.keep.swap(true, Ordering::Relaxed) {
            let _ = guardian::release_folder(&self.path);
            let _ = writeln!(std::io::stderr(), "kept for reading: {}", self.path.display());
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep();
        }
        if !self.keep.load(Ordering::Relaxed) {
            // The guardian tries once more to remove what remains.
            if std::fs::remove_dir_all(&self.path).is_ok() {
                let _ = guardian::release_folder(&self.path);
            }
        }
    }
}

/// Creates a folder that only this user can enter, if it is missing.
///
/// # Errors
/// The folder cannot be created.
pub fn private_folder(path: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("make the folder {}", path.display()))
}

/// Writes a file that only this user can read, and replaces an existing one.
///
/// # Errors
/// The file cannot be written.
pub fn write_private(path: &Path, contents: impl AsRef<[u8]>) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        // Created with mode 0600, so that others can never open it.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(contents.as_ref())?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("write {}", path.display()))
}
