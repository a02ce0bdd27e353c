//! The key files of a backup: those that the settings name for the issuer and for the audit trail.
//! The keys that seal secrets in the database are derived from the issuer's.

use std::{
    fmt,
    fs::{self, DirBuilder, File},
    io::{self, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
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
    /// Name of the file that was copied, without its folder.
    name: String,
    /// Identifiers (RFC 7638) of the private keys in the file; none for a file of public keys.
    kids: Vec<String>,
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

impl NamedFile<'_> {
    /// Name of the file, without its folder.
    fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// Result of the restore of a key file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOutcome {
    /// The file was missing and was written.
    Written {
        /// Path of the file.
        path: PathBuf,
        /// Identifiers of its private keys.
        kids: Vec<String>,
        /// When the backup was made.
        backup: Timestamp,
    },
    /// The file exists with the same content.
    Same(PathBuf),
    /// The file exists with another content and stays.
    Different {
        /// Path of the file.
        path: PathBuf,
        /// Path of the backup's.
        copy: PathBuf,
    },
    /// The configuration names no file of this name, so the key may be retired.
    NotConfigured {
        /// The setting that named it.
        setting: String,
        /// Name of the file that was copied.
        name: String,
        /// Identifiers of its private keys.
        kids: Vec<String>,
        /// Path of the backup's.
        copy: PathBuf,
    },
}

impl fmt::Display for KeyOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Written { path, kids, backup } if kids.is_empty() => {
                write!(f, "written: {}, as the backup of {backup} has it", path.display())
            }
            Self::Written { path, kids, backup } => write!(
                f,
                "written: {}, the key {} of the backup of {backup}. If this key was retired since, \
                 make a new one before the broker starts",
                path.display(),
                kids.join(", ")
            ),
            Self::Same(path) => write!(f, "unchanged: {}", path.display()),
            Self::Different { path, copy } => write!(
                f,
                "NOT RESTORED: {} differs from {}. If it lacks a key of that file, checkpoints of \
                 the audit trail that the key signed need it, or its public key in \
                 audit.known_keys_file",
                path.display(),
                copy.display()
            ),
            Self::NotConfigured { setting, name, kids, copy } => write!(
                f,
                "NOT RESTORED: {setting} names no file {name:?}, so {} {kids:?} is not written. If \
                 the audit trail has checkpoints that it signed, put its public key into \
                 audit.known_keys_file; if it is still in use, copy it to its place",
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
        for named in self.named() {
            let content = files.read(named.path).map_err(KeyError::from)?;
            let copy = folder.join(&named.copy);
            write_private(&copy, content.expose_secret())?;
            stored.push(StoredKey {
                setting: named.setting.to_owned(),
                position: named.position,
                name: named.name(),
                kids: kids(&copy),
                file: named.copy,
            });
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

    /// Writes the key files of a backup of this time that are missing. Existing files stay.
    ///
    /// A file is written only in the place of a file of its name, because the place of a retired
    /// key is that of its successor.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub(super) fn restore(
        &self,
        folder: &Path,
        stored: &[StoredKey],
        backup: Timestamp,
    ) -> Result<Vec<KeyOutcome>, BackupError> {
        let named = self.named();
        let restore_one = |key: &StoredKey| -> Result<KeyOutcome, BackupError> {
            let copy = folder.join(&key.file);
            let content = fs::read(&copy).map_err(BackupError::reading(&copy))?;
            let of_setting: Vec<_> =
                named.iter().filter(|file| file.setting == key.setting).collect();
            let of_name: Vec<_> =
                of_setting.iter().filter(|file| file.name() == key.name).collect();
            let place = match of_name.as_slice() {
                [only] => Some(only.path),
                several => {
                    several.iter().find(|file| file.position == key.position).map(|file| file.path)
                }
            };
            let Some(path) = place else {
                let has_it = |path: &Path| fs::read(path).is_ok_and(|found| found == content);
                let elsewhere = of_setting.iter().find(|file| has_it(file.path));
                return Ok(elsewhere.map_or_else(
                    || KeyOutcome::NotConfigured {
                        setting: key.setting.clone(),
                        name: key.name.clone(),
                        kids: kids(&copy),
                        copy: copy.clone(),
                    },
                    |file| KeyOutcome::Same(file.path.to_path_buf()),
                ));
            };
            match fs::read(path) {
                Ok(existing) if existing == content => Ok(KeyOutcome::Same(path.to_path_buf())),
                Ok(_) => Ok(KeyOutcome::Different { path: path.to_path_buf(), copy }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    write_private(path, &content)?;
                    let (path, kids) = (path.to_path_buf(), kids(&copy));
                    Ok(KeyOutcome::Written { path, kids, backup })
                }
                Err(error) => Err(BackupError::reading(path)(error)),
            }
        };
        stored.iter().map(restore_one).collect()
    }
}

/// Identifiers of the private keys in a file; none if it contains no usable private key.
fn kids(path: &Path) -> Vec<String> {
    let keys = PrivateKey::load(&[path.to_owned()], &mut Files::default()).unwrap_or_default();
    keys.iter().map(|key| key.jwk().kid().to_owned()).collect()
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
    use crate::base::signing::generate_if_missing;

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
        let outcomes = restored.restore(&backup, &stored, Timestamp::UNIX_EPOCH).unwrap();
        let copy = |name: &str| backup.join(name);
        assert_eq!(
            outcomes,
            [
                KeyOutcome::Same(path("one")),
                KeyOutcome::Different { path: path("two"), copy: copy("key-issuer-2") },
                KeyOutcome::NotConfigured {
                    setting: "issuer.signing_key_files".to_owned(),
                    name: "three".to_owned(),
                    kids: Vec::new(),
                    copy: copy("key-issuer-3"),
                },
                KeyOutcome::Written {
                    path: elsewhere.clone(),
                    kids: Vec::new(),
                    backup: Timestamp::UNIX_EPOCH,
                },
            ]
        );
        assert_eq!(content("two"), "rotated");
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "known");
        assert_eq!(fs::metadata(&elsewhere).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(outcomes[1].to_string().starts_with("NOT RESTORED"));
    }

    #[test]
    fn a_retired_key_does_not_come_back_as_its_successor() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let backup = path("backup");
        fs::create_dir(&backup).unwrap();
        generate_if_missing(&path("old.pem")).unwrap();
        let configured = |names: &[&str]| KeyFiles {
            issuer: names.iter().map(|name| path(name)).collect(),
            ..KeyFiles::default()
        };
        let before = configured(&["old.pem"]);
        let stored = before.copy_into(&backup, &mut Files::default()).unwrap();
        let kid = kids(&path("old.pem")).remove(0);
        let restore = |names: &[&str]| {
            let restored = configured(names).restore(&backup, &stored, Timestamp::UNIX_EPOCH);
            restored.unwrap().remove(0)
        };

        // A file of another name that has this content is a renamed one.
        fs::rename(path("old.pem"), path("renamed.pem")).unwrap();
        assert_eq!(restore(&["renamed.pem"]), KeyOutcome::Same(path("renamed.pem")));
        fs::remove_file(path("renamed.pem")).unwrap();

        let report = restore(&["new.pem"]).to_string();
        assert!(report.starts_with("NOT RESTORED") && report.contains(&kid), "{report}");
        assert!(!path("new.pem").exists());
        // In a list the key comes back under its own name, wherever that is.
        let report = restore(&["new.pem", "old.pem"]).to_string();
        assert!(report.contains(&kid) && report.contains("1970-01-01T00:00:00Z"), "{report}");
        assert!(report.contains("If this key was retired since"), "{report}");
        assert!(!path("new.pem").exists());
        assert_eq!(kids(&path("old.pem")), [kid]);
    }
}
