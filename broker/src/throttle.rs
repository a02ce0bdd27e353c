//! Limits on how often somebody may do a thing, kept in the database so that replicas share them.

use crate::{
    clock::Clock,
    db::{Db, Tx},
    on_engine,
    rate_limit::Client,
};

pub use crate::rate_limit::TooMany;

/// What is limited, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// `POST /workspaces/init`, by user.
    Init,
    /// Sign-in attempts that failed, by account and address.
    SignInAccount,
    /// Sign-in attempts that failed, by address.
    SignInAddress,
    /// Sign-ins at a provider that were refused, by address.
    SignInProvider,
    /// Sign-in attempts that failed, by account, from browsers that nobody signed in with before.
    SignInEverywhere,
    /// Sign-in attempts that failed, by account and a browser that signed in as it before.
    SignInKnownBrowser,
    /// Sign-ins begun, finished or not, by address: each is a row until it is over.
    SignInStart,
    /// Device codes asked for, by address.
    DeviceStart,
    /// User codes typed that were wrong, by address.
    UserCode,
    /// Accounts that people made for themselves, by address.
    Register,
    /// Token exchanges of machines, by address.
    Exchange,
    /// Access tokens for the gateway, by session.
    GatewayToken,
}

impl Limited {
    /// Name in the database.
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
            Self::Exchange => "exchange",
            Self::GatewayToken => "gateway_token",
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

impl Allowance {
    /// Length of the window in milliseconds.
    fn window_ms(self) -> i64 {
        i64::from(self.window_seconds) * 1000
    }
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
    let (start, used): (i64, i64) = on_engine!(tx.connection(), c => sqlx::query_as(TAKE)
        .bind(limited.name()).bind(subject).bind(now).bind(now - allowance.window_ms())
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
    let row: Option<(i64, i64)> = on_engine!(db.reader(), pool => sqlx::query_as(LOOK)
        .bind(limited.name()).bind(subject).bind(now - allowance.window_ms())
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

/// Where the request under way came from, as the limits by address know it.
pub fn requester() -> String {
    Client::of_request().to_string()
}

fn judge(start: i64, used: i64, now: i64, allowance: Allowance, next: bool) -> Result<(), TooMany> {
    let used = used + i64::from(next);
    if used <= i64::from(allowance.count) {
        return Ok(());
    }
    let left = start + allowance.window_ms() - now;
    Err(TooMany { retry_after: u64::try_from(left.max(0)).unwrap_or(0).div_ceil(1000).max(1) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{On, Storage, at_once, on_both_engines};

    on_both_engines!(
        of_many_at_once_exactly_the_allowance_passes,
        a_window_ends_to_the_millisecond_and_begins_with_the_next_use,
        looking_counts_nothing_and_sees_what_the_next_use_would,
        names_and_subjects_do_not_share_a_window,
        what_is_not_committed_is_not_counted,
        only_windows_that_are_over_are_forgotten,
    );

    const THREE_A_MINUTE: Allowance = Allowance { count: 3, window_seconds: 60 };

    async fn take_as(storage: &Storage, limited: Limited, subject: &str) -> Result<(), TooMany> {
        let mut tx = storage.db.begin().await.unwrap();
        let taken = take(&mut tx, &storage.clock, limited, subject, THREE_A_MINUTE).await.unwrap();
        tx.commit().await.unwrap();
        taken
    }

    async fn take_one(storage: &Storage) -> Result<(), TooMany> {
        take_as(storage, Limited::Init, "ada").await
    }

    async fn look_once(storage: &Storage) -> Result<(), TooMany> {
        look(&storage.db, &storage.clock, Limited::Init, "ada", THREE_A_MINUTE).await.unwrap()
    }

    async fn of_many_at_once_exactly_the_allowance_passes(on: On) {
        let storage = Storage::new(on).await;
        let allowance = Allowance { count: 5, window_seconds: 60 };
        // Two processes, for replicas share the count.
        let processes = [storage.db.clone(), storage.place.connect().await];
        let results = at_once((0..32).map(|n| {
            let (db, clock) = (processes[n % 2].clone(), storage.clock.clone());
            async move {
                let mut tx = db.begin().await.unwrap();
                let taken = take(&mut tx, &clock, Limited::Init, "ada", allowance).await.unwrap();
                tx.commit().await.unwrap();
                taken
            }
        }))
        .await;
        assert_eq!(results.iter().filter(|taken| taken.is_ok()).count(), 5);
        let refused: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        assert_eq!(refused, [TooMany { retry_after: 60 }; 27]);
        assert_eq!(storage.number("SELECT used FROM throttles").await, 32);
    }

    async fn a_window_ends_to_the_millisecond_and_begins_with_the_next_use(on: On) {
        let storage = Storage::new(on).await;
        take_one(&storage).await.unwrap();
        storage.clock.advance(59_000);
        take_one(&storage).await.unwrap();
        take_one(&storage).await.unwrap();
        assert_eq!(take_one(&storage).await, Err(TooMany { retry_after: 1 }));
        storage.clock.advance(999);
        assert_eq!(take_one(&storage).await, Err(TooMany { retry_after: 1 }), "1 ms is left");
        assert_eq!(look_once(&storage).await, Err(TooMany { retry_after: 1 }), "1 ms is left");
        storage.clock.advance(1);
        assert_eq!(look_once(&storage).await, Ok(()), "the window has ended");
        // The new window begins now, not at the end of the old one, and with nothing used.
        storage.clock.advance(30_000);
        for _ in 0..3 {
            take_one(&storage).await.unwrap();
        }
        assert_eq!(take_one(&storage).await, Err(TooMany { retry_after: 60 }));
        storage.clock.advance(500);
        assert_eq!(take_one(&storage).await, Err(TooMany { retry_after: 60 }), "rounded up");
        storage.clock.advance(59_500);
        take_one(&storage).await.unwrap();
    }

    async fn looking_counts_nothing_and_sees_what_the_next_use_would(on: On) {
        let storage = Storage::new(on).await;
        for _ in 0..5 {
            look_once(&storage).await.unwrap();
        }
        assert_eq!(storage.number("SELECT COUNT(*) FROM throttles").await, 0);
        for _ in 0..3 {
            look_once(&storage).await.unwrap();
            take_one(&storage).await.unwrap();
        }
        assert_eq!(look_once(&storage).await, Err(TooMany { retry_after: 60 }));
        assert_eq!(storage.number("SELECT used FROM throttles").await, 3);
    }

    async fn names_and_subjects_do_not_share_a_window(on: On) {
        let storage = Storage::new(on).await;
        let all = [Limited::Init, Limited::SignInAccount, Limited::SignInAddress];
        for limited in all {
            for subject in ["ada", "Ada", ""] {
                for _ in 0..3 {
                    take_as(&storage, limited, subject).await.unwrap();
                }
                take_as(&storage, limited, subject).await.unwrap_err();
            }
        }
        assert_eq!(storage.number("SELECT COUNT(*) FROM throttles WHERE used = 4").await, 9);
    }

    async fn what_is_not_committed_is_not_counted(on: On) {
        let storage = Storage::new(on).await;
        for _ in 0..9 {
            let mut tx = storage.db.begin().await.unwrap();
            take(&mut tx, &storage.clock, Limited::Init, "ada", THREE_A_MINUTE)
                .await
                .unwrap()
                .unwrap();
        }
        assert_eq!(storage.number("SELECT COUNT(*) FROM throttles").await, 0);
    }

    async fn only_windows_that_are_over_are_forgotten(on: On) {
        let storage = Storage::new(on).await;
        take_as(&storage, Limited::Init, "old").await.unwrap();
        let old = storage.clock.now_ms();
        storage.clock.advance(1);
        take_as(&storage, Limited::Init, "young").await.unwrap();
        for (before, left) in [(old - 1, 2), (old, 1)] {
            let mut tx = storage.db.begin().await.unwrap();
            forget(&mut tx, before).await.unwrap();
            tx.commit().await.unwrap();
            assert_eq!(storage.number("SELECT COUNT(*) FROM throttles").await, left);
        }
        let young = "SELECT COUNT(*) FROM throttles WHERE subject = 'young'";
        assert_eq!(storage.number(young).await, 1);
    }
}
