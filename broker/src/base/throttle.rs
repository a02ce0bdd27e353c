//! Rate limits with fixed windows, stored in the database so that replicas share them.

use crate::{
    base::{
        clock::Clock,
        db::{Db, Tx},
        rate_limit::ClientNetwork,
    },
    on_engine,
};

pub use crate::base::rate_limit::RateLimited;

/// An action that is rate limited, and the subject it is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateLimit {
    /// `POST /workspaces/init`, by user.
    Init,
    /// Failed sign-in attempts, by account and address.
    SignInAccount,
    /// Failed sign-in attempts, by address.
    SignInAddress,
    /// Refused sign-ins at a provider, by address.
    SignInProvider,
    /// Failed sign-in attempts, by account, from browsers in which nobody signed in before.
    SignInEverywhere,
    /// Failed sign-in attempts, by account and browser, from browsers that signed in to this
    /// account before.
    SignInKnownBrowser,
    /// Started sign-ins, finished or not, by address, because each is a row until it ends.
    SignInStart,
    /// Device codes, by address.
    DeviceStart,
    /// Wrong user codes, by address.
    UserCode,
    /// Self-registered accounts, by address.
    Register,
    /// Token exchanges of workloads, by address.
    TokenExchange,
    /// Access tokens for the gateway, by session.
    GatewayToken,
}

impl RateLimit {
    /// The `name` of its rows in the table `throttles`.
    fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::SignInAccount => "sign_in_account",
            Self::SignInAddress => "sign_in_address",
            Self::SignInProvider => "sign_in_provider",
            Self::SignInEverywhere => "sign_in_everywhere",
            Self::SignInKnownBrowser => "sign_in_known_browser",
            Self::SignInStart => "sign_in_start",
            Self::DeviceStart => "device_start",
            Self::UserCode => "user_code",
            Self::Register => "register",
            Self::TokenExchange => "exchange",
            Self::GatewayToken => "gateway_token",
        }
    }
}

/// The permitted number of uses in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowQuota {
    /// Permitted uses in a window.
    pub count: u32,
    /// Length of the window, in seconds. A window begins with its first use.
    pub window_seconds: u32,
}

impl WindowQuota {
    /// Length of the window in milliseconds.
    fn window_ms(self) -> i64 {
        i64::from(self.window_seconds) * 1000
    }
}

const CONSUME: &str = "\
INSERT INTO throttles (name, subject, window_start, used) VALUES ($1, $2, $3, 1) \
ON CONFLICT (name, subject) DO UPDATE SET \
  used = CASE WHEN throttles.window_start <= $4 THEN 1 ELSE throttles.used + 1 END, \
  window_start = CASE WHEN throttles.window_start <= $4 THEN $3 ELSE throttles.window_start END \
RETURNING window_start, used";

const PEEK: &str = "\
SELECT window_start, used FROM throttles WHERE name = $1 AND subject = $2 AND window_start > $3";

const DELETE_EXPIRED: &str = "DELETE FROM throttles WHERE window_start <= $1";

/// Counts one use and checks it against the allowance. One statement does both, so two concurrent
/// requests cannot both be the last permitted one.
///
/// # Errors
/// The outer error is that of the database.
pub async fn consume(
    tx: &mut Tx,
    clock: &Clock,
    limit: RateLimit,
    subject: &str,
    allowance: WindowQuota,
) -> sqlx::Result<Result<(), RateLimited>> {
    let now = clock.now_ms();
    let (start, used): (i64, i64) = on_engine!(tx.connection(), c => sqlx::query_as(CONSUME)
        .bind(limit.name()).bind(subject).bind(now).bind(now - allowance.window_ms())
        .fetch_one(c).await)?;
    Ok(check(start, used, now, allowance, false))
}

/// Checks whether the next use would be within the allowance, without counting it.
///
/// # Errors
/// The outer error is that of the database.
pub async fn peek(
    db: &Db,
    clock: &Clock,
    limit: RateLimit,
    subject: &str,
    allowance: WindowQuota,
) -> sqlx::Result<Result<(), RateLimited>> {
    let now = clock.now_ms();
    let row: Option<(i64, i64)> = on_engine!(db.reader(), pool => sqlx::query_as(PEEK)
        .bind(limit.name()).bind(subject).bind(now - allowance.window_ms())
        .fetch_optional(pool).await)?;
    Ok(row.map_or(Ok(()), |(start, used)| check(start, used, now, allowance, true)))
}

/// Deletes windows that began before this time; they have expired.
///
/// # Errors
/// The database failed.
pub async fn delete_expired(tx: &mut Tx, before_ms: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c => sqlx::query(DELETE_EXPIRED).bind(before_ms).execute(c).await.map(drop))
}

/// The subject of the limits by address: the client of the current request.
pub fn client_key() -> String {
    ClientNetwork::current().to_string()
}

fn check(
    start: i64,
    used: i64,
    now: i64,
    allowance: WindowQuota,
    peek: bool,
) -> Result<(), RateLimited> {
    let used = used + i64::from(peek);
    if used <= i64::from(allowance.count) {
        return Ok(());
    }
    let left = start + allowance.window_ms() - now;
    Err(RateLimited { retry_after: u64::try_from(left.max(0)).unwrap_or(0).div_ceil(1000).max(1) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{On, Storage, on_both_engines, run_concurrently};

    on_both_engines!(
        exactly_the_allowance_of_concurrent_requests_passes,
        a_window_ends_to_the_millisecond_and_begins_with_the_next_use,
        peeking_does_not_count_and_predicts_the_next_use,
        names_and_subjects_do_not_share_a_window,
        an_uncommitted_use_is_not_counted,
        only_expired_windows_are_deleted,
    );

    const THREE_A_MINUTE: WindowQuota = WindowQuota { count: 3, window_seconds: 60 };

    async fn take_as(
        storage: &Storage,
        limit: RateLimit,
        subject: &str,
    ) -> Result<(), RateLimited> {
        let mut tx = storage.db.begin().await.unwrap();
        let taken = consume(&mut tx, &storage.clock, limit, subject, THREE_A_MINUTE).await.unwrap();
        tx.commit().await.unwrap();
        taken
    }

    async fn take_one(storage: &Storage) -> Result<(), RateLimited> {
        take_as(storage, RateLimit::Init, "ada").await
    }

    async fn peek_once(storage: &Storage) -> Result<(), RateLimited> {
        peek(&storage.db, &storage.clock, RateLimit::Init, "ada", THREE_A_MINUTE).await.unwrap()
    }

    async fn exactly_the_allowance_of_concurrent_requests_passes(on: On) {
        let storage = Storage::new(on).await;
        let allowance = WindowQuota { count: 5, window_seconds: 60 };
        // Two processes, because replicas share the count.
        let processes = [storage.db.clone(), storage.database.connect().await];
        let results = run_concurrently((0..32).map(|n| {
            let (db, clock) = (processes[n % 2].clone(), storage.clock.clone());
            async move {
                let mut tx = db.begin().await.unwrap();
                let taken =
                    consume(&mut tx, &clock, RateLimit::Init, "ada", allowance).await.unwrap();
                tx.commit().await.unwrap();
                taken
            }
        }))
        .await;
        assert_eq!(results.iter().filter(|taken| taken.is_ok()).count(), 5);
        let refused: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        assert_eq!(refused, [RateLimited { retry_after: 60 }; 27]);
        assert_eq!(storage.number("SELECT used FROM throttles").await, 32);
    }

    async fn a_window_ends_to_the_millisecond_and_begins_with_the_next_use(on: On) {
        let storage = Storage::new(on).await;
        take_one(&storage).await.unwrap();
        storage.clock.advance(59_000);
        take_one(&storage).await.unwrap();
        take_one(&storage).await.unwrap();
        assert_eq!(take_one(&storage).await, Err(RateLimited { retry_after: 1 }));
        storage.clock.advance(999);
        assert_eq!(take_one(&storage).await, Err(RateLimited { retry_after: 1 }), "1 ms is left");
        assert_eq!(peek_once(&storage).await, Err(RateLimited { retry_after: 1 }), "1 ms is left");
        storage.clock.advance(1);
        assert_eq!(peek_once(&storage).await, Ok(()), "the window has ended");
        // The new window begins now, not at the end of the old one, and starts at zero.
        storage.clock.advance(30_000);
        for _ in 0..3 {
            take_one(&storage).await.unwrap();
        }
        assert_eq!(take_one(&storage).await, Err(RateLimited { retry_after: 60 }));
        storage.clock.advance(500);
        assert_eq!(take_one(&storage).await, Err(RateLimited { retry_after: 60 }), "rounded up");
        storage.clock.advance(59_500);
        take_one(&storage).await.unwrap();
    }

    async fn peeking_does_not_count_and_predicts_the_next_use(on: On) {
        let storage = Storage::new(on).await;
        for _ in 0..5 {
            peek_once(&storage).await.unwrap();
        }
        assert_eq!(storage.number("SELECT COUNT(*) FROM throttles").await, 0);
        for _ in 0..3 {
            peek_once(&storage).await.unwrap();
            take_one(&storage).await.unwrap();
        }
        assert_eq!(peek_once(&storage).await, Err(RateLimited { retry_after: 60 }));
        assert_eq!(storage.number("SELECT used FROM throttles").await, 3);
    }

    async fn names_and_subjects_do_not_share_a_window(on: On) {
        let storage = Storage::new(on).await;
        let all = [RateLimit::Init, RateLimit::SignInAccount, RateLimit::SignInAddress];
        for limit in all {
            for subject in ["ada", "Ada", ""] {
                for _ in 0..3 {
                    take_as(&storage, limit, subject).await.unwrap();
                }
                take_as(&storage, limit, subject).await.unwrap_err();
            }
        }
        assert_eq!(storage.number("SELECT COUNT(*) FROM throttles WHERE used = 4").await, 9);
    }

    async fn an_uncommitted_use_is_not_counted(on: On) {
        let storage = Storage::new(on).await;
        for _ in 0..9 {
            let mut tx = storage.db.begin().await.unwrap();
            consume(&mut tx, &storage.clock, RateLimit::Init, "ada", THREE_A_MINUTE)
                .await
                .unwrap()
                .unwrap();
        }
        assert_eq!(storage.number("SELECT COUNT(*) FROM throttles").await, 0);
    }

    async fn only_expired_windows_are_deleted(on: On) {
        let storage = Storage::new(on).await;
        take_as(&storage, RateLimit::Init, "old").await.unwrap();
        let old = storage.clock.now_ms();
        storage.clock.advance(1);
        take_as(&storage, RateLimit::Init, "young").await.unwrap();
        for (before, left) in [(old - 1, 2), (old, 1)] {
            let mut tx = storage.db.begin().await.unwrap();
            delete_expired(&mut tx, before).await.unwrap();
            tx.commit().await.unwrap();
            assert_eq!(storage.number("SELECT COUNT(*) FROM throttles").await, left);
        }
        let young = "SELECT COUNT(*) FROM throttles WHERE subject = 'young'";
        assert_eq!(storage.number(young).await, 1);
    }
}
