//! The two database engines; tests of stored data run on both.

/// The engine that a test runs on.
#[derive(Clone, Copy, Debug)]
pub enum On {
    /// SQLite, embedded in the broker.
    Sqlite,
    /// A PostgreSQL server.
    Postgres,
}

/// Turns each test, which takes an [`On`], into two: `sqlite::…` and `postgres::…`. The calling
/// crate must depend on tokio with its macros.
#[macro_export]
macro_rules! on_both_engines {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test($crate::engine::On::Sqlite).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test($crate::engine::On::Postgres).await;
            })*
        }
    };
}
