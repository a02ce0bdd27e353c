//! Personal tenants: that of a person's workspace has no name, and the identifier of its only
//! member.

use uuid::Uuid;

use crate::{
    base::{clock::Clock, db::Tx},
    on_engine,
};

const INSERT_PERSONAL: &str = "\
INSERT INTO tenants (id, created_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING";

/// Inserts the personal tenant of a user, unless it exists, and returns its identifier, which is
/// that of the user. Of concurrent transactions that insert it, one succeeds and the others wait for
/// it.
///
/// # Errors
/// The database failed.
pub(crate) async fn get_or_create_personal(
    tx: &mut Tx,
    clock: &Clock,
    user: Uuid,
) -> sqlx::Result<Uuid> {
    on_engine!(tx.connection(), c => sqlx::query(INSERT_PERSONAL)
        .bind(user).bind(clock.now_ms()).execute(c).await.map(drop))?;
    Ok(user)
}
