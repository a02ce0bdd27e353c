//! The issuer's rows after the restore of a backup: nothing that was issued before, whether it was
//! revoked since or not, starts or continues a session.

use sqlx::AssertSqlSafe;

use crate::{base::db::Tx, on_engine};

/// The tables of what people, devices, browsers and providers may still present. A restore empties
/// them, so a backup contains no rows of them. A browser that is forgotten only counts as a new one
/// for the limits on sign-ins.
pub(crate) const TABLES_EMPTIED_BY_RESTORE: [&str; 6] = [
    "refresh_tokens",
    "authorizations",
    "device_authorizations",
    "known_browsers",
    "upstream_attempts",
    "upstream_grants",
];

/// Deletes all refresh tokens, codes, requests for authorization, trusted browsers and grants of
/// providers. The providers' refresh tokens are not revoked there, because the broker has probably
/// replaced them since the backup.
///
/// # Errors
/// The database failed.
pub(crate) async fn forget_sign_ins(tx: &mut Tx) -> sqlx::Result<()> {
    for table in TABLES_EMPTIED_BY_RESTORE {
        let statement = AssertSqlSafe(format!("DELETE FROM {table}"));
        on_engine!(tx.connection(), c => sqlx::query(statement).execute(c).await.map(drop))?;
    }
    Ok(())
}
