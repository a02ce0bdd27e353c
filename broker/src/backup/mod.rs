//! Backup and restore of the database with the signing keys.
//!
//! A backup is a folder that only its owner can read: `manifest.json`, the dump of the database
//! ([`Dump`](crate::base::db::Dump)) and the key files. It is taken from one snapshot while brokers
//! run.
//!
//! A restored database is older than the cluster and than what people have, so the restore ends
//! what the backup would revive (`revoke`): sessions, codes, tokens of providers, and through the
//! sweep the tokens of all workspaces and resumptions of tenants. Suspensions are repeated, and those
//! that were decided after the backup are taken from the cluster and from an exported audit trail
//! (`suspensions_after_backup`).

mod create;
mod error;
mod keys;
mod manifest;
mod restore;
mod revoke;
mod suspensions_after_backup;
#[cfg(test)]
mod tests;

pub use create::{Backup, create_backup};
pub use error::BackupError;
pub use keys::{KeyFiles, KeyOutcome};
pub use manifest::Manifest;
pub use restore::{Restoration, Restored};
pub use revoke::{Revoked, revoke_restored};
pub use suspensions_after_backup::{
    LastRow, MembershipNotInBackup, ReappliedSuspensions, UserNotInBackup,
};
