//! Limits on how often somebody may do a thing, kept in the database so that replicas share them.

use crate::{
    clock::Clock,
    db::{Db, Tx},
    on_engine,
};

/// What is limited, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// `POST /workspaces/init`, by user.
    Init,
    /// Sign-in attempts that failed, by account.
    SignInAccount,
    /// Sign-in attempts that failed, by address.
    SignInAddress,
}

impl Limited {
    /// Name in the database.
    fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::SignInAccount => "sign_in_account",
            Self::SignInAddress => "sign_in_address",
        }
    }
}

/// So many in a window of so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// How many.
    pub count: u32,
    /// Length of the window, in seconds. It begins with the first use.
    pub window_seconds: u32,
}

/// Too many: the window ends in so many seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany {
    /// Seconds until the window ends, at least 1.
    pub retry_after: u64,
}

const TAKE: &str = "\
INSERT INTO throttles (name, subject, window_start, used) VALUES ($1, $2, $3, 1) \
ON CONFLICT (name, subject) DO UPDATE SET \
  used = CASE WHEN throttles.window_start <= $4 THEN 1 ELSE throttles.used + 1 END, \
  window_start = CASE WHEN throttles.window_start <= $4 THEN $3 ELSE throttles.window_start END \
RETURNING window_start, used";

const LOOK: &str = "\
SELECT window_start, used FROM throttles WHERE name = $1 AND subject = $2 AND window_start > $3";

const FORGET: &str = "DELETE FROM throttles WHERE window_start <= $1";

/// Counts one use and says whether it is still within the allowance. One statement decides, so two
/// requests at once cannot both be the last one allowed.
///
/// # Errors
/// The outer error is the database's.
pub async fn take(
    tx: &mut Tx,
    clock: &Clock,
    limited: Limited,
    subject: &str,
    allowance: Allowance,
) -> sqlx::Result<Result<(), TooMany>> {
    let now = clock.now_ms();
    let window = i64::from(allowance.window_seconds) * 1000;
    let (start, used): (i64, i64) = on_engine!(tx.connection(), c => sqlx::query_as(TAKE)
        .bind(limited.name()).bind(subject).bind(now).bind(now - window)
        .fetch_one(c).await)?;
    Ok(judge(start, used, now, allowance, false))
}

/// Whether the next use would be within the allowance; counts nothing.
///
/// # Errors
/// The outer error is the database's.
pub async fn look(
    db: &Db,
    clock: &Clock,
    limited: Limited,
    subject: &str,
    allowance: Allowance,
) -> sqlx::Result<Result<(), TooMany>> {
    let now = clock.now_ms();
    let window = i64::from(allowance.window_seconds) * 1000;
    let row: Option<(i64, i64)> = on_engine!(db.reader(), pool => sqlx::query_as(LOOK)
        .bind(limited.name()).bind(subject).bind(now - window)
        .fetch_optional(pool).await)?;
    Ok(row.map_or(Ok(()), |(start, used)| judge(start, used, now, allowance, true)))
}

/// Forgets windows that began before this time; they no longer decide anything.
///
/// # Errors
/// The database's.
pub async fn forget(tx: &mut Tx, before_ms: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(FORGET).bind(before_ms).execute(c).await.map(drop))
}

fn judge(start: i64, used: i64, now: i64, allowance: Allowance, next: bool) -> Result<(), TooMany> {
    let used = used + i64::from(next);
    if used <= i64::from(allowance.count) {
        return Ok(());
    }
    let left = start + i64::from(allowance.window_seconds) * 1000 - now;
    Err(TooMany { retry_after: u64::try_from(left.max(0)).unwrap_or(0).div_ceil(1000).max(1) })
}
