//! Reading of files, with a record of what was read.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use secrecy::{ExposeSecret as _, SecretSlice, SecretString};
use sha2::{Digest as _, Sha256};

/// Maximum size of a file; a Secret of Kubernetes has at most this size, too.
pub const MAX_FILE_BYTES: usize = 1024 * 1024;

/// A file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file does not exist, or the broker may not read it.
    #[error("cannot read {path}: {cause}", path = path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the file system.
        cause: io::Error,
    },
    /// The file has no content.
    #[error("{path} is empty", path = path.display())]
    Empty {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is larger than [`MAX_FILE_BYTES`].
    #[error("{path} has more than {max} bytes", path = path.display(), max = MAX_FILE_BYTES)]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is not UTF-8.
    #[error("{path} is not UTF-8 text", path = path.display())]
    NotText {
        /// Path of the file.
        path: PathBuf,
    },
}

/// Content of a path when it was read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// SHA-256 of a file's content.
    Sha256([u8; 32]),
    /// The file could not be read.
    Unreadable(io::ErrorKind),
    /// A pipe or device, which can be read only once, and so never changes.
    Stream,
}

/// Reads files and records what they contained. Two values are equal if the same paths had the same
/// contents.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Files(BTreeMap<PathBuf, Content>);

impl Files {
    /// Reads a file; symbolic links are followed.
    ///
    /// # Errors
    /// The file cannot be read, is empty, or is larger than [`MAX_FILE_BYTES`].
    pub fn read(&mut self, path: &Path) -> Result<SecretSlice<u8>, FileError> {
        let is_stream = is_stream(path);
        let read = read_limited(path);
        let content = if is_stream { Content::Stream } else { Content::of(&read) };
        self.0.insert(path.to_owned(), content);
        match read {
            Err(cause) => Err(FileError::Unreadable { path: path.to_owned(), cause }),
            Ok(bytes) if bytes.is_empty() => Err(FileError::Empty { path: path.to_owned() }),
            Ok(bytes) if bytes.len() > MAX_FILE_BYTES => {
                Err(FileError::TooLarge { path: path.to_owned() })
            }
            Ok(bytes) => Ok(bytes.into()),
        }
    }

    /// Reads a text without the white space at its beginning and end.
    ///
    /// # Errors
    /// Like [`Files::read`]; the file is not UTF-8, or contains white space only.
    pub fn read_text(&mut self, path: &Path) -> Result<SecretString, FileError> {
        let bytes = self.read(path)?;
        let text = std::str::from_utf8(bytes.expose_secret())
            .map_err(|_| FileError::NotText { path: path.to_owned() })?
            .trim();
        if text.is_empty() {
            return Err(FileError::Empty { path: path.to_owned() });
        }
        Ok(text.into())
    }

    /// Whether the paths still have the recorded contents.
    pub fn are_unchanged(&self) -> bool {
        self.0.iter().all(|(path, content)| {
            *content == Content::Stream || *content == Content::of(&read_limited(path))
        })
    }
}

impl Content {
    fn of(read: &io::Result<Vec<u8>>) -> Self {
        match read {
            Ok(bytes) => Self::Sha256(Sha256::digest(bytes).into()),
            Err(error) => Self::Unreadable(error.kind()),
        }
    }
}

fn is_stream(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// Reads a file up to one byte beyond the limit.
fn read_limited(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
