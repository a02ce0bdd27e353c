//! The manifest of a backup: what it contains, and the checksum of each file.

use std::{
    fmt::Write as _,
    fs::File,
    io::{Read as _, Write as _},
    path::Path,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{error::BackupError, keys::StoredKey};
use crate::base::db::Dump;

/// Version of the format of a backup.
const FORMAT: u32 = 2;
/// Name of the file with the manifest.
const FILE_NAME: &str = "manifest.json";
/// Maximum bytes of a manifest; it has about 200 for each file.
const MAX_MANIFEST_BYTES: u64 = 1024 * 1024;
/// Maximum length of a file name, in bytes.
const MAX_NAME_BYTES: usize = 100;
/// Bytes that are hashed at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// The manifest of a backup, in `manifest.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the format.
    pub format: u32,
    /// Version of the program that made the backup.
    pub program: String,
    /// When the backup was begun.
    pub created_at: Timestamp,
    /// Engine, schema and tables of the database.
    pub database: Dump,
    /// The copied key files.
    pub(super) keys: Vec<StoredKey>,
    /// All files but the manifest.
    files: Vec<StoredFile>,
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredFile {
    name: String,
    bytes: u64,
    /// SHA-256, as 64 hexadecimal digits.
    sha256: String,
}

impl Manifest {
    /// Describes the files of a new backup in this folder.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn describe(
        folder: &Path,
        created_at: Timestamp,
        database: Dump,
        keys: Vec<StoredKey>,
    ) -> Result<Self, BackupError> {
        let mut files = Vec::new();
        for name in names(&database, &keys) {
            let (bytes, sha256) = checksum(&folder.join(&name))?;
            files.push(StoredFile { name, bytes, sha256 });
        }
        let program = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Self { format: FORMAT, program, created_at, database, keys, files })
    }

    /// Writes the manifest, mode 0600.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write(&self, folder: &Path) -> Result<(), BackupError> {
        let path = folder.join(FILE_NAME);
        let failed = BackupError::writing(&path);
        let json = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        file.write_all(&json).map_err(failed)?;
        file.as_file().sync_all().map_err(failed)?;
        file.persist_noclobber(&path).map_err(|error| failed(error.error)).map(drop)
    }

    /// Reads the manifest of the backup in this folder and verifies every file.
    ///
    /// # Errors
    /// A file cannot be read, is missing or differs from the manifest; or the backup has another
    /// format.
    pub fn read_and_verify(folder: &Path) -> Result<Self, BackupError> {
        #[derive(Deserialize)]
        struct Versioned {
            format: u32,
        }
        let path = folder.join(FILE_NAME);
        let mut json = Vec::new();
        let file = File::open(&path).map_err(BackupError::reading(&path))?;
        file.take(MAX_MANIFEST_BYTES)
            .read_to_end(&mut json)
            .map_err(BackupError::reading(&path))?;
        let damaged =
            |error: serde_json::Error| BackupError::Damaged(format!("{FILE_NAME}: {error}"));
        let Versioned { format } = serde_json::from_slice(&json).map_err(damaged)?;
        if format != FORMAT {
            return Err(BackupError::OtherFormat { format, known: FORMAT });
        }
        let manifest: Self = serde_json::from_slice(&json).map_err(damaged)?;
        manifest.verify(folder)?;
        Ok(manifest)
    }

    fn verify(&self, folder: &Path) -> Result<(), BackupError> {
        for name in names(&self.database, &self.keys) {
            if !is_plain(&name) {
                return Err(BackupError::Damaged(format!("{name:?} cannot be a name in a backup")));
            }
            let stored = self.files.iter().find(|file| file.name == name);
            let stored = stored.ok_or_else(|| BackupError::Damaged(format!("no file {name}")))?;
            let (bytes, sha256) = checksum(&folder.join(&name))?;
            if (bytes, &sha256) != (stored.bytes, &stored.sha256) {
                let why = format!("{name} differs from its checksum in {FILE_NAME}");
                return Err(BackupError::Damaged(why));
            }
        }
        Ok(())
    }

    /// Bytes of all files but the manifest.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// Names of the files of a backup but the manifest.
fn names(database: &Dump, keys: &[StoredKey]) -> Vec<String> {
    let mut names = database.files();
    names.extend(keys.iter().map(|key| key.file.clone()));
    names
}

/// Whether this name is one that a backup uses, so that it names nothing outside of its folder.
fn is_plain(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && !name.starts_with('.')
        && name.chars().all(allowed)
}

/// Size and SHA-256 of a file.
fn checksum(path: &Path) -> Result<(u64, String), BackupError> {
    let failed = BackupError::reading(path);
    let mut file = File::open(path).map_err(failed)?;
    let (mut hash, mut chunk, mut bytes) = (Sha256::new(), vec![0; CHUNK_BYTES], 0);
    loop {
        let read = file.read(&mut chunk).map_err(failed)?;
        if read == 0 {
            break;
        }
        hash.update(&chunk[..read]);
        bytes += u64::try_from(read).unwrap_or(u64::MAX);
    }
    let mut digits = String::with_capacity(64);
    for byte in hash.finalize() {
        // Writing to a String cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    Ok((bytes, digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_the_folder() {
        for name in ["broker.db", "issued_credentials.copy", "key-issuer-1"] {
            assert!(is_plain(name), "{name}");
        }
        for name in ["../key", "/etc/passwd", ".", "..", "a/b", "A", "", &"a".repeat(101)] {
            assert!(!is_plain(name), "{name}");
        }
    }

    #[test]
    fn a_checksum_is_that_of_the_whole_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![b'a'; 1_000_000]).unwrap();
        let (bytes, sha256) = checksum(&path).unwrap();
        assert_eq!(bytes, 1_000_000);
        // FIPS 180-2 appendix B.3.
        assert_eq!(sha256, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
}
