//! Revocation of what a restore would revive: sessions, tokens and sign-ins from before the backup.

use crate::{
    base::{clock::Clock, db::Tx},
    identity::sessions,
    issuer, tenant, workspace,
};

/// The reason in sessions that a restore ended.
const SESSION_END: &str = "a backup was restored";

/// Revocations of a restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    /// Sessions that nobody had ended in the backup.
    pub sessions: u64,
    /// Provisioned workspaces, whose ServiceAccounts the sweep replaces.
    pub workspaces_replaced: u64,
    /// Workspaces that the sweep suspends again.
    pub workspaces_suspended: u64,
    /// Tenants that the controller suspends again.
    pub tenants_suspended: u64,
}

/// The tables that a restore empties. Their rows are no part of a backup: those of providers hold
/// refresh tokens, and the key that seals these is in the backup.
pub(super) fn emptied_tables() -> Vec<&'static str> {
    issuer::TABLES_EMPTIED_BY_RESTORE.into_iter().chain([sessions::ACCESS_TOKENS]).collect()
}

/// Ends everything in a restored database that was issued before, because somebody may have revoked
/// it after the backup: sessions with their tokens, codes and requests for authorization, the tokens of
/// all workspaces, and resumptions of tenants.
///
/// # Errors
/// The database failed.
pub async fn revoke_restored(tx: &mut Tx, clock: &Clock) -> sqlx::Result<Revoked> {
    issuer::forget_sign_ins(tx).await?;
    let sessions = sessions::end_every(tx, clock.now_ms(), SESSION_END).await?;
    let workspaces = workspace::invalidate_restored(tx, clock).await?;
    let tenants_suspended = tenant::suspend_restored_tenants(tx, clock).await?;
    Ok(Revoked {
        sessions,
        workspaces_replaced: workspaces.replaced,
        workspaces_suspended: workspaces.suspended,
        tenants_suspended,
    })
}
