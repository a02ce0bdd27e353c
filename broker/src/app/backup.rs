//! Backup and restore with the database and the key files of a configuration.

use std::path::Path;

use super::database::make_database_folder;
use crate::{
    audit::AuditKeyFiles,
    backup::{Backup, KeyFiles, KeyOutcome, Restoration, Restored, create_backup},
    base::{
        clock::Clock,
        db::Db,
        reload::{FileSource as _, Files},
    },
    config::Config,
};

/// The key files that a backup contains.
fn key_files(config: &Config) -> KeyFiles {
    let (issuer, audit) = (&config.issuer.signing_key_files, &config.audit.signing_key_files);
    KeyFiles {
        issuer: issuer.clone(),
        audit: if audit == issuer { Vec::new() } else { audit.clone() },
        known_audit_keys: config.audit.known_keys_file.clone(),
    }
}

/// Makes a backup of this database and the keys in a new folder, while brokers run.
///
/// # Errors
/// The folder exists, a key cannot be used or was changed meanwhile, the database is not a broker's,
/// or a write failed.
pub async fn back_up(config: &Config, db: &Db, folder: &Path) -> anyhow::Result<Backup> {
    Ok(create_backup(db, &key_files(config), &Clock::system(), folder).await?)
}

/// Restores the backup in this folder into the empty database of the configuration, and writes
/// missing key files. Suspensions of `trail`, an exported audit trail, that were decided after the
/// backup are repeated.
///
/// # Errors
/// The backup is damaged, newer than this program or of another engine; the database is not empty
/// or failed; the trail does not continue the backup. The database is as before then; key files
/// that were written stay.
pub async fn restore(
    config: &Config,
    folder: &Path,
    trail: Option<&Path>,
) -> anyhow::Result<(Restored, Vec<KeyOutcome>)> {
    make_database_folder(config)?;
    let restoration = Restoration::begin(&config.database, folder).await?;
    let keys = restoration.restore_keys(&key_files(config))?;
    let keys_of_trail = match trail {
        Some(path) => {
            let loaded = AuditKeyFiles(config.audit.clone()).load(&mut Files::default())?;
            Some((path, loaded.value.known))
        }
        None => None,
    };
    let trail = keys_of_trail.as_ref().map(|(path, known)| (*path, known));
    let restored = restoration.finish(&Clock::system(), trail).await?;
    Ok((restored, keys))
}
