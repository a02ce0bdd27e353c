//! Errors of backup and restore.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::base::{
    db::{DumpError, LoadError},
    signing::KeyError,
};

/// A backup could not be made or restored. No partial backup and no partial database stays.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The folder for the backup exists.
    #[error("{path} exists already; name a new folder, for example with the date", path = .0.display())]
    Exists(PathBuf),
    /// A key file cannot be used. Brokers that run use what it contained before, and no backup could
    /// contain that.
    #[error("cannot back up the keys")]
    Keys(#[from] KeyError),
    /// A key file was changed while the database was copied.
    #[error("a key file was changed during the backup; make the backup again")]
    KeysChanged,
    /// The backup is not complete, or was changed.
    #[error("the backup is damaged: {0}")]
    Damaged(String),
    /// The backup was made by a program with another format of backups.
    #[error(
        "the backup has format {format}, and this tenant-broker reads format {known}: restore it with \
         the version that made it"
    )]
    OtherFormat {
        /// Format of the backup.
        format: u32,
        /// Format of this program.
        known: u32,
    },
    /// The exported trail does not continue this backup.
    #[error("cannot use the exported trail {path}: {why}", path = path.display())]
    Trail {
        /// Path of the file.
        path: PathBuf,
        /// The cause as text.
        why: String,
    },
    /// A file cannot be read or written.
    #[error("cannot {verb} {path}", path = path.display())]
    File {
        /// `read` or `write`.
        verb: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// The database could not be dumped.
    #[error("cannot copy the database")]
    Dump(#[from] DumpError),
    /// The dump could not be loaded.
    #[error("cannot load the database")]
    Load(#[from] LoadError),
    /// The database failed.
    #[error("the database failed")]
    Storage(#[from] sqlx::Error),
}

impl BackupError {
    /// A conversion of the error of a read.
    pub(super) fn reading(path: &Path) -> impl Fn(io::Error) -> Self + Copy + '_ {
        move |source| Self::File { verb: "read", path: path.to_owned(), source }
    }

    /// A conversion of the error of a write.
    pub(super) fn writing(path: &Path) -> impl Fn(io::Error) -> Self + Copy + '_ {
        move |source| Self::File { verb: "write", path: path.to_owned(), source }
    }
}
