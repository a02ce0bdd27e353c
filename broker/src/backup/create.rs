//! Making a backup.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use super::{error::BackupError, keys::KeyFiles, manifest::Manifest, revoke::emptied_tables};
use crate::base::{clock::Clock, db::Db, reload::Files};

/// A finished backup.
#[derive(Clone, Debug)]
pub struct Backup {
    /// Its folder, mode 0700.
    pub folder: PathBuf,
    /// Its manifest.
    pub manifest: Manifest,
}

/// Makes a backup in this new folder, while brokers run. The folder appears when it is complete and
/// synced.
///
/// # Errors
/// The folder exists, a key file cannot be used or was changed meanwhile, the database is not a
/// broker's, or a write failed.
pub async fn create_backup(
    db: &Db,
    keys: &KeyFiles,
    clock: &Clock,
    folder: &Path,
) -> Result<Backup, BackupError> {
    if folder.symlink_metadata().is_ok() {
        return Err(BackupError::Exists(folder.to_owned()));
    }
    let parent = match folder.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let failed = BackupError::writing(parent);
    let work = tempfile::Builder::new()
        .prefix(".tenant-broker-backup-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(parent)
        .map_err(failed)?;
    let created_at = clock.now();
    let mut files = Files::default();
    let stored = keys.copy_into(work.path(), &mut files)?;
    keys.check()?;
    let database = db.dump(work.path(), &emptied_tables()).await?;
    // Brokers use a changed key within seconds, so the rows may need another one than was copied.
    if !files.are_unchanged() {
        return Err(BackupError::KeysChanged);
    }
    let manifest = Manifest::describe(work.path(), created_at, database, stored)?;
    manifest.write(work.path())?;
    let sync = |folder: &Path| File::open(folder).and_then(|folder| folder.sync_all());
    sync(work.path()).map_err(failed)?;
    fs::rename(work.path(), folder).map_err(BackupError::writing(folder))?;
    // Nothing is left to delete.
    drop(work.keep());
    sync(parent).map_err(failed)?;
    Ok(Backup { folder: folder.to_owned(), manifest })
}
