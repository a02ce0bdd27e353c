//! The two engines that rows may be kept in; tests of rows run on both.

/// Which engine a test runs on.
#[derive(Clone, Copy, Debug)]
pub enum On {
    /// The embedded one.
    Sqlite,
    /// A real server.
    Postgres,
}

/// Makes each test, which takes an [`On`], two: `sqlite::…` and `postgres::…`. Whoever uses it
/// depends on tokio with its macros.
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
