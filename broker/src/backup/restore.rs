//! Restoring a backup.

use std::path::{Path, PathBuf};

use super::{
    error::BackupError,
    keys::{KeyFiles, KeyOutcome},
    manifest::Manifest,
    revoke::{Revoked, revoke_restored},
    suspensions_after_backup::{ReappliedSuspensions, SuspensionsAfterBackup},
};
use crate::{
    audit::{
        self, Action, Event,
        chain::{self, Head},
    },
    base::{
        clock::Clock,
        db::{Loading, Location, Tx},
        signing::PublicKeys,
    },
};

/// A backup that is loaded into a database which nobody sees yet. Nothing stays of the database if
/// the value is dropped.
#[derive(Debug)]
pub struct Restoration {
    manifest: Manifest,
    folder: PathBuf,
    loading: Loading,
}

/// A restored backup.
#[derive(Clone, Debug)]
pub struct Restored {
    /// The manifest of the backup.
    pub manifest: Manifest,
    /// The last sealed row of the audit trail in the backup.
    pub head: Head,
    /// Revocations of the restore.
    pub revoked: Revoked,
    /// Suspensions that the restore applied again, if there was an exported trail.
    pub repeated: Option<ReappliedSuspensions>,
    /// Tables of the backup that are not a broker's and were left out.
    pub skipped: Vec<String>,
}

impl Restoration {
    /// Verifies the backup in this folder and loads its database.
    ///
    /// # Errors
    /// The backup is damaged, newer than this program or of another engine; the database is not
    /// empty or failed.
    pub async fn begin(location: &Location, folder: &Path) -> Result<Self, BackupError> {
        let manifest = Manifest::read_and_verify(folder)?;
        let loading = Loading::begin(location, folder, &manifest.database).await?;
        Ok(Self { manifest, folder: folder.to_owned(), loading })
    }

    /// Writes the key files that are missing. Existing files stay.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn restore_keys(&self, keys: &KeyFiles) -> Result<Vec<KeyOutcome>, BackupError> {
        keys.restore(&self.folder, &self.manifest.keys, self.manifest.created_at)
    }

    /// Ends what the backup would revive, repeats the suspensions of an exported trail, records the
    /// restore in the audit trail, and makes the database visible.
    ///
    /// # Errors
    /// The exported trail does not continue the backup, or the database failed.
    pub async fn finish(
        mut self,
        clock: &Clock,
        trail: Option<(&Path, &PublicKeys)>,
    ) -> Result<Restored, BackupError> {
        let tx = self.loading.tx();
        let head = chain::head(tx).await?;
        let revoked = revoke_restored(tx, clock).await?;
        let repeated = match trail {
            Some((path, keys)) => {
                let decisions = SuspensionsAfterBackup::read(path, keys, head)?;
                Some(decisions.repeat(tx, clock).await?)
            }
            None => None,
        };
        record(tx, clock, &self.manifest, head, &revoked).await?;
        let skipped = self.loading.skipped().to_vec();
        self.loading.publish().await?;
        Ok(Restored { manifest: self.manifest, head, revoked, repeated, skipped })
    }
}

/// Writes the restore into the audit trail, whose chain continues after the last row of the backup.
async fn record(
    tx: &mut Tx,
    clock: &Clock,
    manifest: &Manifest,
    head: Head,
    revoked: &Revoked,
) -> sqlx::Result<()> {
    let reason = format!(
        "the backup of {} by version {}, schema {}; the trail continues after row {head}; {} sessions \
         ended, {} workspaces get another ServiceAccount, {} workspaces and {} tenants are suspended again",
        manifest.created_at,
        manifest.program,
        manifest.database.schema(),
        revoked.sessions,
        revoked.workspaces_replaced,
        revoked.workspaces_suspended,
        revoked.tenants_suspended,
    );
    let event = Event { reason: Some(reason), ..Event::success(Action::RestoreBackup) };
    audit::record(tx, clock, event).await
}
