//! The issuer's rows after the restore of a backup: nothing that was issued before, whether it was
//! revoked since or not, starts or continues a session.

use crate::{base::db::Tx, on_engine};

/// The tables of what people, devices, browsers and providers may still present. A browser that is
/// forgotten only counts as a new one for the limits on sign-ins.
const DELETE_ALL: [&str; 6] = [
    "DELETE FROM refresh_tokens",
    "DELETE FROM authorizations",
    "DELETE FROM device_authorizations",
    "DELETE FROM known_browsers",
    "DELETE FROM upstream_attempts",
    "DELETE FROM upstream_grants",
];

/// Deletes all refresh tokens, codes, requests for authorization, trusted browsers and grants of
/// providers. The providers' refresh tokens are not revoked there, because the broker has probably
/// replaced them since the backup.
///
/// # Errors
/// The database failed.
pub(crate) async fn forget_sign_ins(tx: &mut Tx) -> sqlx::Result<()> {
    for statement in DELETE_ALL {
        on_engine!(tx.connection(), c => sqlx::query(statement).execute(c).await.map(drop))?;
    }
    Ok(())
}
