//! The database: PostgreSQL or embedded SQLite with the same SQL text.
//!
//! Every statement is written once, with `$1` placeholders and without functions that only one
//! engine has; [`on_engine!`](crate::on_engine) type-checks it for both. A transaction that writes
//! takes the single write lock of SQLite when it begins, so that it cannot fail half-way because
//! the lock is taken.

mod connection_pools;
mod dump;
mod load;
mod operation_timeout;
mod postgres_url;
mod role;
mod schema;
#[cfg(test)]
mod tests;

use connection_pools::WriterPermits;
pub use connection_pools::{ConnectionPools, PoolUsage, WriteQueue};
pub use dump::{Dump, DumpError, TableDump};
pub use load::{LoadError, Loading};
pub use operation_timeout::{OPERATION_TIMEOUT, within};
pub use role::DatabaseRole;
pub use schema::{SchemaError, SchemaStatus, latest_schema};

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use sqlx::{
    ConnectOptions as _, Connection as _, PgConnection, PgPool, Postgres, Sqlite, SqliteConnection,
    SqlitePool, Transaction,
    migrate::Migrator,
    postgres::{PgConnectOptions, PgPoolOptions},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use uuid::Uuid;

/// How long a caller waits for a connection before the database counts as unavailable.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a PostgreSQL statement may wait for a lock: as long as SQLite waits for its own.
const LOCK_TIMEOUT: Duration = ACQUIRE_TIMEOUT;
/// How long PostgreSQL may work on one statement. Every statement of the broker uses an index.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a transaction may be idle. After that PostgreSQL releases the locks of a broker that
/// hangs or was disconnected.
const IDLE_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(30);
/// A PostgreSQL connection that has been idle for longer is pinged before its use. More recently
/// used ones are not, because a ping is a round trip.
const PING_AFTER_IDLE: Duration = Duration::from_secs(1);
/// PostgreSQL connections of a process that does not use [`ConnectionPools`].
const POSTGRES_CONNECTIONS: u32 = 16;
/// SQLite readers of a process that does not use [`ConnectionPools`]; there is one writer beside
/// them.
const SQLITE_READERS: u32 = 4;

/// Makes commits durable, because the audit row of a credential must be durable before the
/// credential is returned. Raises a weaker default of the server, the database or the role; a
/// stronger one (`remote_apply`) stays.
const REQUIRE_SYNCHRONOUS_COMMIT: &str = "\
SELECT set_config('synchronous_commit', 'on', false) \
WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')";

static POSTGRES_MIGRATIONS: Migrator = sqlx::migrate!("../migrations/postgres");
static SQLITE_MIGRATIONS: Migrator = sqlx::migrate!("../migrations/sqlite");

/// A value for one of the two engines.
#[derive(Debug)]
pub enum Engine<P, S> {
    /// PostgreSQL variant.
    Postgres(P),
    /// SQLite variant.
    Sqlite(S),
}

/// Runs one body on the engine in use; the body is type-checked for both.
#[macro_export]
macro_rules! on_engine {
    ($engine:expr, $connection:ident => $body:expr) => {
        match $engine {
            $crate::base::db::Engine::Postgres($connection) => $body,
            $crate::base::db::Engine::Sqlite($connection) => $body,
        }
    };
}

/// A pool for single statements that only read.
pub type Reader<'a> = Engine<&'a PgPool, &'a SqlitePool>;
/// A connection inside a transaction.
pub type Connection<'a> = Engine<&'a mut PgConnection, &'a mut SqliteConnection>;

/// Location of the database. `Debug` does not print the password.
#[derive(Clone)]
pub enum Location {
    /// PostgreSQL, with every option of its URL.
    Postgres(Box<PgConnectOptions>),
    /// A SQLite file; it is created if it does not exist.
    Sqlite(PathBuf),
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The options' own `Debug` prints the password.
            Self::Postgres(options) => {
                f.debug_tuple("Postgres").field(&postgres_database(options)).finish()
            }
            Self::Sqlite(path) => f.debug_tuple("Sqlite").field(path).finish(),
        }
    }
}

impl Location {
    /// Whether both are the same database: of the same name at the same host and port, or the same
    /// file. User, password and options may differ.
    pub fn is_same_database(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Postgres(one), Self::Postgres(other)) => {
                postgres_database(one) == postgres_database(other)
            }
            (Self::Sqlite(one), Self::Sqlite(other)) => one == other,
            _ => false,
        }
    }

    /// The text of the error that [`Db::connect`] failed: what failed, and what to check.
    pub fn connect_failed(&self) -> String {
        match self {
            Self::Postgres(_) => {
                "cannot open the database (database.url); is it running, and are user and password \
                 right?"
                    .to_owned()
            }
            Self::Sqlite(path) => format!(
                "cannot open the SQLite database {} (database.url); the user that runs this program \
                 must be able to read and write this file, those named like it with -wal and -shm \
                 at the end, and their folder: check the owner and mode of each",
                path.display()
            ),
        }
    }

    /// Opens a connection to PostgreSQL and closes it. Does nothing for SQLite.
    ///
    /// # Errors
    /// The server refuses or does not answer in time.
    pub async fn try_connect(&self) -> sqlx::Result<()> {
        let Self::Postgres(options) = self else { return Ok(()) };
        let connect = async { connect_options(options).connect().await?.close().await };
        tokio::time::timeout(ACQUIRE_TIMEOUT, connect)
            .await
            .unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }
}

/// Host, socket, port and name of a database. Without a name PostgreSQL takes that of the user.
fn postgres_database(options: &PgConnectOptions) -> (&str, Option<&PathBuf>, u16, &str) {
    let name = options.get_database().unwrap_or(options.get_username());
    (options.get_host(), options.get_socket(), options.get_port(), name)
}

impl FromStr for Location {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        if let Some(path) = url.strip_prefix("sqlite://") {
            if path.is_empty() {
                return Err("a SQLite URL names a file: sqlite:///var/lib/…/broker.db".to_owned());
            }
            return Ok(Self::Sqlite(PathBuf::from(path)));
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            let options = postgres_url::parse(url).ok_or_else(|| {
                "not a PostgreSQL URL (postgres://user:password@host:5432/name), or one with an \
                 unknown parameter ssl…; those of TLS are sslmode, sslrootcert, sslcert and sslkey"
                    .to_owned()
            })?;
            return Ok(Self::Postgres(Box::new(options)));
        }
        Err("a database URL starts with postgres:// or sqlite://".to_owned())
    }
}

/// Opens the file once, which creates it and switches its journal to a write-ahead log permanently.
///
/// If several processes do so concurrently on a new file, SQLite tells all but one that the file is
/// locked, without the wait of `busy_timeout`, because two that wait for each other's read lock
/// would wait forever. They retry.
async fn change_to_wal(options: &SqliteConnectOptions) -> sqlx::Result<()> {
    let deadline = tokio::time::Instant::now() + ACQUIRE_TIMEOUT;
    loop {
        match options.connect().await {
            Err(sqlx::Error::Database(error))
                if is_busy(error.code().as_deref()) && tokio::time::Instant::now() < deadline =>
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            connected => return connected?.close().await,
        }
    }
}

/// Adds server-side timeouts, so that a stuck database gives an error after a bounded time and not
/// a request that hangs. Values in the URL (`?options=-c%20statement_timeout=…`) take precedence.
fn with_timeouts(options: &PgConnectOptions) -> PgConnectOptions {
    let url_options = options.get_options().unwrap_or_default().to_owned();
    let limits = [
        ("statement_timeout", STATEMENT_TIMEOUT),
        ("lock_timeout", LOCK_TIMEOUT),
        ("idle_in_transaction_session_timeout", IDLE_TRANSACTION_TIMEOUT),
    ];
    let limits = limits.into_iter().filter(|(name, _)| !url_options.contains(name));
    options.clone().options(limits.map(|(name, limit)| (name, limit.as_millis().to_string())))
}

/// Options with the timeouts and the application name that `pg_stat_activity` shows.
fn connect_options(options: &PgConnectOptions) -> PgConnectOptions {
    with_timeouts(options).application_name("tenant-broker")
}

fn postgres_pool(connections: u32) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .test_before_acquire(false)
        .after_connect(|connection, _| {
            Box::pin(async move {
                sqlx::query(REQUIRE_SYNCHRONOUS_COMMIT).execute(connection).await.map(drop)
            })
        })
        .before_acquire(|connection, meta| {
            Box::pin(async move {
                if meta.idle_for > PING_AFTER_IDLE {
                    connection.ping().await?;
                }
                Ok(true)
            })
        })
}

fn sqlite_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // Committed data survives a power failure, not only a crash.
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(ACQUIRE_TIMEOUT)
}

/// A pool of SQLite connections. They are not tested before use, because a file does not disconnect
/// and a test costs as much as a statement.
fn sqlite_readers(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .test_before_acquire(false)
        .max_connections(connections)
}

fn sqlite_writer() -> SqlitePoolOptions {
    // A full disk ends the transaction of SQLite but not that of the driver, which would then
    // refuse to begin another one: such a connection is replaced.
    sqlite_readers(1).before_acquire(|connection, _| {
        Box::pin(async move { Ok(!connection.is_in_transaction()) })
    })
}

/// Whether this code is `SQLITE_BUSY`, extended or not: the lowest eight bits are the primary code.
fn is_busy(code: Option<&str>) -> bool {
    const SQLITE_BUSY: u32 = 5;
    code.and_then(|code| code.parse::<u32>().ok()).is_some_and(|code| code & 0xff == SQLITE_BUSY)
}

/// The database of one broker.
#[derive(Clone, Debug)]
pub enum Db {
    /// PostgreSQL, shared by all replicas.
    Postgres(PgPool),
    /// SQLite: several readers and one writer.
    Sqlite {
        /// Pool of the readers.
        read: SqlitePool,
        /// Pool of the single writer.
        write: SqlitePool,
        /// The queue that a transaction passes before it waits for the writer.
        queue: WriteQueue,
    },
}

/// A transaction that may write. If it is dropped without [`Tx::commit`], it is rolled back.
#[derive(Debug)]
pub struct Tx {
    // Dropped first, so that the connection is on its way back to the pool when the next
    // transaction gets its permits.
    engine: Engine<Transaction<'static, Postgres>, Transaction<'static, Sqlite>>,
    _writer_permits: WriterPermits,
}

impl Tx {
    /// The connection, for statements inside the transaction.
    pub fn connection(&mut self) -> Connection<'_> {
        match &mut self.engine {
            Engine::Postgres(tx) => Engine::Postgres(tx),
            Engine::Sqlite(tx) => Engine::Sqlite(tx),
        }
    }

    /// Runs an `UPDATE` with the parameters `$1`, an identifier, and `$2`, a text. Returns whether it
    /// changed a row. If a unique index refuses the text, because another transaction has just
    /// stored it, it did not, and this transaction goes on.
    ///
    /// # Errors
    /// The database failed.
    pub async fn update_if_unique(
        &mut self,
        statement: &'static str,
        id: Uuid,
        text: &str,
    ) -> sqlx::Result<bool> {
        on_engine!(self.connection(), c => {
            // A failed statement ends a transaction of PostgreSQL, but not beyond a savepoint.
            let mut savepoint = c.begin().await?;
            let updated =
                sqlx::query(statement).bind(id).bind(text).execute(&mut *savepoint).await;
            match updated {
                Ok(done) => {
                    savepoint.commit().await?;
                    Ok(done.rows_affected() == 1)
                }
                Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {
                    savepoint.rollback().await?;
                    Ok(false)
                }
                Err(error) => Err(error),
            }
        })
    }

    /// Commits: makes all changes durable, or none.
    ///
    /// # Errors
    /// The database did not confirm the commit.
    pub async fn commit(self) -> sqlx::Result<()> {
        on_engine!(self.engine, tx => tx.commit().await)
    }
}

impl Db {
    /// Connects; creates the file of a SQLite database.
    ///
    /// # Errors
    /// The server refuses or does not answer in time; the file cannot be opened.
    pub async fn connect(location: &Location) -> sqlx::Result<Self> {
        match location {
            Location::Postgres(options) => {
                let pool = postgres_pool(POSTGRES_CONNECTIONS)
                    .connect_with(connect_options(options))
                    .await?;
                Ok(Self::Postgres(pool))
            }
            Location::Sqlite(path) => {
                let options = sqlite_options(path);
                change_to_wal(&options).await?;
                let write = sqlite_writer().connect_with(options.clone()).await?;
                let read = sqlite_readers(SQLITE_READERS).connect_with(options).await?;
                Ok(Self::Sqlite { read, write, queue: WriteQueue::default() })
            }
        }
    }

    /// The pool for statements that only read.
    pub fn reader(&self) -> Reader<'_> {
        match self {
            Self::Postgres(pool) => Engine::Postgres(pool),
            Self::Sqlite { read, .. } => Engine::Sqlite(read),
        }
    }

    /// Begins a transaction that writes.
    ///
    /// # Errors
    /// No connection was available in time.
    pub async fn begin(&self) -> sqlx::Result<Tx> {
        Ok(match self {
            Self::Postgres(pool) => Tx {
                engine: Engine::Postgres(pool.begin().await?),
                _writer_permits: WriterPermits::default(),
            },
            Self::Sqlite { write, queue, .. } => {
                let permits = queue.wait().await?;
                let engine = Engine::Sqlite(write.begin_with("BEGIN IMMEDIATE").await?);
                Tx { engine, _writer_permits: permits }
            }
        })
    }

    /// Checks that the database answers.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn ping(&self) -> sqlx::Result<()> {
        on_engine!(self.reader(), pool => sqlx::query("SELECT 1").execute(pool).await.map(drop))
    }

    /// The clock of the database in milliseconds since 1970; `None` for SQLite, which uses ours.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn clock_ms(&self) -> sqlx::Result<Option<i64>> {
        const CLOCK: &str = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";
        match self {
            Self::Postgres(pool) => sqlx::query_scalar(CLOCK).fetch_one(pool).await.map(Some),
            Self::Sqlite { .. } => Ok(None),
        }
    }

    /// Closes the connections after the statements in flight have ended.
    pub async fn close(&self) {
        match self {
            Self::Postgres(pool) => pool.close().await,
            Self::Sqlite { read, write, .. } => {
                read.close().await;
                write.close().await;
            }
        }
    }
}
