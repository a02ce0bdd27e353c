//! Rows of device authorizations: from the device's request to the redeemed device code.

use uuid::Uuid;

use crate::{
    base::{
        db::{Db, Tx},
        secret::SecretHash,
    },
    on_engine,
};

/// Seconds by which the polling interval grows after each poll that was too early (RFC 8628 section
/// 3.5).
const SLOW_DOWN_SECONDS: i64 = 5;
/// Tolerance for early polls, in milliseconds, because networks and clocks are not exact.
const EARLY_POLL_TOLERANCE_MS: i64 = 1000;

/// A new device authorization. Times are milliseconds since 1970.
pub(super) struct NewDeviceAuthorization<'a> {
    pub(super) id: Uuid,
    pub(super) device_code: SecretHash,
    pub(super) user_code: SecretHash,
    pub(super) client_id: &'a str,
    pub(super) scope: &'a str,
    pub(super) ip_address: Option<String>,
    pub(super) user_agent: Option<String>,
    pub(super) created_at: i64,
    pub(super) expires_at: i64,
    pub(super) interval_seconds: i64,
}

const INSERT: &str = "\
INSERT INTO device_authorizations (id, device_code_hash, user_code_hash, client_id, scope, \
  ip_address, user_agent, created_at, expires_at, interval_seconds) \
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (user_code_hash) DO NOTHING";

/// Stores a request; `false` if another one has this user code.
pub(super) async fn insert(tx: &mut Tx, new: &NewDeviceAuthorization<'_>) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(INSERT)
        .bind(new.id).bind(new.device_code.as_bytes()).bind(new.user_code.as_bytes())
        .bind(new.client_id).bind(new.scope).bind(&new.ip_address).bind(&new.user_agent)
        .bind(new.created_at).bind(new.expires_at).bind(new.interval_seconds)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

/// A device authorization without a decision.
#[derive(sqlx::FromRow)]
pub(super) struct PendingDevice {
    pub(super) id: Uuid,
    pub(super) client_id: String,
    pub(super) scope: String,
    pub(super) ip_address: Option<String>,
    pub(super) user_agent: Option<String>,
    pub(super) created_at: i64,
}

const BY_USER_CODE: &str = "\
SELECT id, client_id, scope, ip_address, user_agent, created_at FROM device_authorizations \
WHERE user_code_hash = $1 AND decision IS NULL AND expires_at > $2";

/// Finds the undecided device with this user code.
pub(super) async fn by_user_code(
    db: &Db,
    code: SecretHash,
    now: i64,
) -> sqlx::Result<Option<PendingDevice>> {
    on_engine!(db.reader(), pool => sqlx::query_as(BY_USER_CODE)
        .bind(code.as_bytes()).bind(now).fetch_optional(pool).await)
}

const BY_ID: &str = "\
SELECT id, client_id, scope, ip_address, user_agent, created_at FROM device_authorizations \
WHERE id = $1 AND decision IS NULL AND expires_at > $2";

/// Finds the undecided device with this identifier.
pub(super) async fn by_id(db: &Db, id: Uuid, now: i64) -> sqlx::Result<Option<PendingDevice>> {
    on_engine!(db.reader(), pool => sqlx::query_as(BY_ID)
        .bind(id).bind(now).fetch_optional(pool).await)
}

const DECIDE: &str = "\
UPDATE device_authorizations SET decision = $3, authorization_id = $4 \
WHERE id = $1 AND decision IS NULL AND expires_at > $2";

/// Records the decision of the user; `false` if there is one already or the code has expired.
pub(super) async fn decide(
    tx: &mut Tx,
    id: Uuid,
    now: i64,
    allowed: bool,
    authorization_id: Uuid,
) -> sqlx::Result<bool> {
    let decision = if allowed { "allowed" } else { "denied" };
    on_engine!(tx.connection(), c => sqlx::query(DECIDE)
        .bind(id).bind(now).bind(decision).bind(authorization_id)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

/// State of a device code at a poll.
#[derive(sqlx::FromRow)]
pub(super) struct Polled {
    pub(super) client_id: String,
    pub(super) expires_at: i64,
    pub(super) decision: Option<String>,
    pub(super) redeemed_at: Option<i64>,
    pub(super) authorization_id: Option<Uuid>,
}

/// One statement decides whether the poll is too early; of two concurrent polls the second is.
const POLL: &str = "\
UPDATE device_authorizations SET polled_at = $2 WHERE device_code_hash = $1 \
  AND (polled_at IS NULL OR polled_at + interval_seconds * 1000 <= $2 + $3) \
RETURNING client_id, expires_at, decision, redeemed_at, authorization_id";

/// Records a poll that is not too early. `None` if it is, or the code is unknown.
pub(super) async fn poll(tx: &mut Tx, code: SecretHash, now: i64) -> sqlx::Result<Option<Polled>> {
    on_engine!(tx.connection(), c => sqlx::query_as(POLL)
        .bind(code.as_bytes()).bind(now).bind(EARLY_POLL_TOLERANCE_MS).fetch_optional(c).await)
}

const SLOW_DOWN: &str = "\
UPDATE device_authorizations SET polled_at = $2, interval_seconds = interval_seconds + $3 \
WHERE device_code_hash = $1";

/// Records an early poll: the polling interval grows. `false` if the code is unknown.
pub(super) async fn slow_down(tx: &mut Tx, code: SecretHash, now: i64) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(SLOW_DOWN)
        .bind(code.as_bytes()).bind(now).bind(SLOW_DOWN_SECONDS)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

const REDEEM: &str = "\
UPDATE device_authorizations SET redeemed_at = $2 \
WHERE device_code_hash = $1 AND redeemed_at IS NULL";

/// Marks the code as redeemed; `false` if it already is.
pub(super) async fn redeem(tx: &mut Tx, code: SecretHash, now: i64) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(REDEEM)
        .bind(code.as_bytes()).bind(now)
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

const DELETE_EXPIRED: &str = "DELETE FROM device_authorizations WHERE expires_at <= $1";

/// Deletes device authorizations that had expired by this time.
pub(in crate::issuer) async fn delete_expired(tx: &mut Tx, before: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(DELETE_EXPIRED).bind(before).execute(c).await.map(drop))
}
