//! The key files of a backup: those that the settings name for the issuer and for the audit trail.
//! The keys that seal secrets in the database are derived from the issuer's.

use std::{
    fmt,
    fs::{self, DirBuilder, File},
    io::{self, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};

use super::error::BackupError;
use crate::base::{
    reload::Files,
    signing::{KeyError, PrivateKey},
};

/// The key files that the configuration names.
#[derive(Clone, Debug, Default)]
pub struct KeyFiles {
    /// `issuer.signing_key_files`.
    pub issuer: Vec<PathBuf>,
    /// `audit.signing_key_files`, if they are not the issuer's.
    pub audit: Vec<PathBuf>,
    /// `audit.known_keys_file`.
    pub known_audit_keys: Option<PathBuf>,
}

/// A key file in a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredKey {
    /// The setting that names the file.
    setting: String,
    /// Position in the list of that setting, beginning with 1.
    position: usize,
    /// Name of the file in the backup.
    pub(super) file: String,
}

/// A key file of the configuration.
struct NamedFile<'a> {
    setting: &'static str,
    position: usize,
    /// Name of its copy in a backup.
    copy: String,
    path: &'a Path,
}

/// What a restore did with a key file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOutcome {
    /// The file was missing and was written.
    Written(PathBuf),
    /// The file exists with the same content.
    Same(PathBuf),
    /// The file exists with another content and stays.
    Different {
        /// Path of the file.
        path: PathBuf,
        /// Path of the backup's.
        copy: PathBuf,
    },
    /// The configuration names no file for this one.
    NotConfigured {
        /// The setting that named it.
        setting: String,
        /// Path of the backup's.
        copy: PathBuf,
    },
}

impl fmt::Display for KeyOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Written(path) => write!(f, "written: {}", path.display()),
            Self::Same(path) => write!(f, "unchanged: {}", path.display()),
            Self::Different { path, copy } => write!(
                f,
                "NOT RESTORED: {} differs from {}. If it lacks a key of that file, checkpoints of \
                 the audit trail that the key signed need it, or its public key in \
                 audit.known_keys_file",
                path.display(),
                copy.display()
            ),
            Self::NotConfigured { setting, copy } => write!(
                f,
                "NOT RESTORED: {setting} has no place for {}; add it if the audit trail has \
                 checkpoints that it signed",
                copy.display()
            ),
        }
    }
}

impl KeyFiles {
    fn named(&self) -> Vec<NamedFile<'_>> {
        let lists = [
            ("issuer.signing_key_files", "issuer", self.issuer.as_slice()),
            ("audit.signing_key_files", "audit", self.audit.as_slice()),
            ("audit.known_keys_file", "known", self.known_audit_keys.as_slice()),
        ];
        let files = lists.into_iter().flat_map(|(setting, short, paths)| {
            paths.iter().zip(1..).map(move |(path, position)| NamedFile {
                setting,
                position,
                copy: format!("key-{short}-{position}"),
                path,
            })
        });
        files.collect()
    }

    /// Copies all key files into the folder of a backup, mode 0600. They are read through `files`.
    ///
    /// # Errors
    /// A file cannot be read or written, is empty, or is larger than a key file can be.
    pub(super) fn copy_into(
        &self,
        folder: &Path,
        files: &mut Files,
    ) -> Result<Vec<StoredKey>, BackupError> {
        let mut stored = Vec::new();
        for NamedFile { setting, position, copy, path } in self.named() {
            let content = files.read(path).map_err(KeyError::from)?;
            write_private(&folder.join(&copy), content.expose_secret())?;
            stored.push(StoredKey { setting: setting.to_owned(), position, file: copy });
        }
        Ok(stored)
    }

    /// Checks that the private keys can be used, because brokers that run go on with the keys that
    /// a broken file contained before.
    ///
    /// # Errors
    /// A file contains something else than usable keys.
    pub(super) fn check(&self) -> Result<(), BackupError> {
        for paths in [&self.issuer, &self.audit] {
            if !paths.is_empty() {
                PrivateKey::load(paths, &mut Files::default())?;
            }
        }
        Ok(())
    }

    /// Writes the key files of a backup that are missing. Existing files stay.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub(super) fn restore(
        &self,
        folder: &Path,
        stored: &[StoredKey],
    ) -> Result<Vec<KeyOutcome>, BackupError> {
        let named = self.named();
        let restore_one = |key: &StoredKey| -> Result<KeyOutcome, BackupError> {
            let copy = folder.join(&key.file);
            let place = named
                .iter()
                .find(|file| file.setting == key.setting && file.position == key.position);
            let Some(NamedFile { path, .. }) = place else {
                return Ok(KeyOutcome::NotConfigured { setting: key.setting.clone(), copy });
            };
            let content = fs::read(&copy).map_err(BackupError::reading(&copy))?;
            match fs::read(path) {
                Ok(existing) if existing == content => Ok(KeyOutcome::Same(path.to_path_buf())),
                Ok(_) => Ok(KeyOutcome::Different { path: path.to_path_buf(), copy }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    write_private(path, &content)?;
                    Ok(KeyOutcome::Written(path.to_path_buf()))
                }
                Err(error) => Err(BackupError::reading(path)(error)),
            }
        };
        stored.iter().map(restore_one).collect()
    }
}

/// Writes a file that only this user can read; it must not exist. Makes its folder if necessary.
fn write_private(path: &Path, content: &[u8]) -> Result<(), BackupError> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let write = || -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        // A temporary file has mode 0600.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(content)?;
        file.as_file().sync_all()?;
        file.persist_noclobber(path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(BackupError::writing(path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn missing_keys_are_written_and_existing_ones_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let backup = path("backup");
        fs::create_dir(&backup).unwrap();
        let content = |name: &str| fs::read_to_string(path(name)).unwrap();
        for name in ["one", "two", "three", "known"] {
            fs::write(path(name), name).unwrap();
        }
        let configured = KeyFiles {
            issuer: vec![path("one"), path("two"), path("three")],
            audit: Vec::new(),
            known_audit_keys: Some(path("known")),
        };
        let stored = configured.copy_into(&backup, &mut Files::default()).unwrap();
        let mode = fs::metadata(backup.join("key-issuer-2")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        fs::write(path("two"), "rotated").unwrap();
        let elsewhere = path("lost/folder/known");
        let restored = KeyFiles {
            issuer: vec![path("one"), path("two")],
            audit: Vec::new(),
            known_audit_keys: Some(elsewhere.clone()),
        };
        let outcomes = restored.restore(&backup, &stored).unwrap();
        let copy = |name: &str| backup.join(name);
        assert_eq!(
            outcomes,
            [
                KeyOutcome::Same(path("one")),
                KeyOutcome::Different { path: path("two"), copy: copy("key-issuer-2") },
                KeyOutcome::NotConfigured {
                    setting: "issuer.signing_key_files".to_owned(),
                    copy: copy("key-issuer-3"),
                },
                KeyOutcome::Written(elsewhere.clone()),
            ]
        );
        assert_eq!(content("two"), "rotated");
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "known");
        assert_eq!(fs::metadata(&elsewhere).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(outcomes[1].to_string().starts_with("NOT RESTORED"));
    }
}
