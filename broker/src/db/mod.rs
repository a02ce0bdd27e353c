//! The database: PostgreSQL or embedded SQLite behind one SQL text.
//!
//! Every statement is written once, with `$1` placeholders and no function that only one engine
//! knows; [`on_engine!`](crate::on_engine) type-checks it for both. A transaction that writes takes
//! SQLite's one write lock when it begins, so that it cannot fail half-way for want of it.

mod shares;
#[cfg(test)]
mod tests;

use shares::Turn;
pub use shares::{Shares, Turns};

use std::{
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use sqlx::{
    ConnectOptions as _, Connection as _, PgConnection, PgPool, Postgres, Sqlite, SqliteConnection,
    SqlitePool, Transaction,
    migrate::{MigrateError, Migrator},
    postgres::{PgConnectOptions, PgPoolOptions},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

/// How long a caller waits for a connection before the database counts as unavailable.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a statement may wait for somebody's lock: as long as SQLite waits for its own.
const LOCK_TIMEOUT: Duration = ACQUIRE_TIMEOUT;
/// How long PostgreSQL may work on one statement. Every statement of the broker is one of an index.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a transaction may do nothing. One whose broker hangs or was cut off holds its locks no
/// longer.
const IDLE_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection to PostgreSQL that was used so lately is not asked first whether it is still there,
/// which is a round trip each time.
const SURELY_ALIVE: Duration = Duration::from_secs(1);
/// Connections of one process to PostgreSQL where nothing divides them.
const POSTGRES_CONNECTIONS: u32 = 16;
/// Readers of one process on SQLite where nothing divides them; there is one writer beside them.
const SQLITE_READERS: u32 = 4;

/// What a credential's audit row needs before the credential leaves. A default of the server, the
/// database or the role that waits for less is raised, one that waits for more (`remote_apply`) stays.
const COMMIT_DURABLY: &str = "\
SELECT set_config('synchronous_commit', 'on', false) \
WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')";

static POSTGRES_MIGRATIONS: Migrator = sqlx::migrate!("../migrations/postgres");
static SQLITE_MIGRATIONS: Migrator = sqlx::migrate!("../migrations/sqlite");

/// One value for either engine.
#[derive(Debug)]
pub enum Engine<P, S> {
    /// PostgreSQL.
    Postgres(P),
    /// SQLite.
    Sqlite(S),
}

/// Runs one body on whichever engine is there; the body is type-checked for both.
#[macro_export]
macro_rules! on_engine {
    ($engine:expr, $connection:ident => $body:expr) => {
        match $engine {
            $crate::db::Engine::Postgres($connection) => $body,
            $crate::db::Engine::Sqlite($connection) => $body,
        }
    };
}

/// A place to run single statements that read.
pub type Reader<'a> = Engine<&'a PgPool, &'a SqlitePool>;
/// A connection inside a transaction.
pub type Connection<'a> = Engine<&'a mut PgConnection, &'a mut SqliteConnection>;

/// Where the database is.
#[derive(Clone, Debug)]
pub enum Location {
    /// PostgreSQL, with everything its URL can say. The password does not print.
    Postgres(Box<PgConnectOptions>),
    /// A SQLite file; it is made if it is not there.
    Sqlite(PathBuf),
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
            // The parser's own error can repeat the URL, and with it the password.
            return url.parse().map(|options| Self::Postgres(Box::new(options))).map_err(|_| {
                "not a PostgreSQL URL: postgres://user:password@host:5432/name".into()
            });
        }
        Err("a database URL starts with postgres:// or sqlite://".to_owned())
    }
}

/// Opens the file once, which makes it and changes its journal to a write-ahead log for good.
///
/// Of several processes that do so at once on a new file, SQLite tells all but one that the file is
/// locked, without the wait of `busy_timeout`: two that wait for each other's read lock would wait
/// forever. They try again.
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

/// A stuck database is an error after a bounded time, not a request that hangs. What the URL says of
/// these limits (`?options=-c%20statement_timeout=…`) counts more.
fn with_time_limits(options: &PgConnectOptions) -> PgConnectOptions {
    let given = options.get_options().unwrap_or_default().to_owned();
    let limits = [
        ("statement_timeout", STATEMENT_TIMEOUT),
        ("lock_timeout", LOCK_TIMEOUT),
        ("idle_in_transaction_session_timeout", IDLE_TRANSACTION_TIMEOUT),
    ];
    let limits = limits.into_iter().filter(|(name, _)| !given.contains(name));
    options.clone().options(limits.map(|(name, limit)| (name, limit.as_millis().to_string())))
}

/// With the limits, and the name that `pg_stat_activity` shows.
fn named(options: &PgConnectOptions) -> PgConnectOptions {
    with_time_limits(options).application_name("tenant-broker")
}

fn postgres_pool(connections: u32) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .test_before_acquire(false)
        .after_connect(|connection, _| {
            Box::pin(async move { sqlx::query(COMMIT_DURABLY).execute(connection).await.map(drop) })
        })
        .before_acquire(|connection, meta| {
            Box::pin(async move {
                if meta.idle_for > SURELY_ALIVE {
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
        // What is acknowledged survives a power cut, not only a crash.
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(ACQUIRE_TIMEOUT)
}

/// Nobody hangs up on a file, and asking costs as much as a statement.
fn sqlite_readers(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .test_before_acquire(false)
        .max_connections(connections)
}

fn sqlite_writer() -> SqlitePoolOptions {
    // A full disk ends SQLite's transaction but not the driver's, which would then refuse to begin
    // another one: such a connection is replaced.
    sqlite_readers(1).before_acquire(|connection, _| {
        Box::pin(async move { Ok(!connection.is_in_transaction()) })
    })
}

/// Whether this is `SQLITE_BUSY`, extended or not: the lowest eight bits are the code.
fn is_busy(code: Option<&str>) -> bool {
    const SQLITE_BUSY: u32 = 5;
    code.and_then(|code| code.parse::<u32>().ok()).is_some_and(|code| code & 0xff == SQLITE_BUSY)
}

/// The database of one broker.
#[derive(Clone, Debug)]
pub enum Db {
    /// PostgreSQL, shared by all replicas.
    Postgres(PgPool),
    /// SQLite: readers beside one writer.
    Sqlite {
        /// Connections that read.
        read: SqlitePool,
        /// The connection that writes.
        write: SqlitePool,
        /// What a transaction waits for before it queues for that connection.
        turns: Turns,
    },
}

/// A transaction that may write. Dropped without [`Tx::commit`], it leaves nothing behind.
#[derive(Debug)]
pub struct Tx {
    // Dropped first, so that the connection is on its way back when the next one gets its turn.
    engine: Engine<Transaction<'static, Postgres>, Transaction<'static, Sqlite>>,
    _turn: Turn,
}

impl Tx {
    /// The connection, for statements inside the transaction.
    pub fn connection(&mut self) -> Connection<'_> {
        match &mut self.engine {
            Engine::Postgres(tx) => Engine::Postgres(tx),
            Engine::Sqlite(tx) => Engine::Sqlite(tx),
        }
    }

    /// Makes everything inside durable, or nothing.
    ///
    /// # Errors
    /// The database cannot say that it is durable.
    pub async fn commit(self) -> sqlx::Result<()> {
        on_engine!(self.engine, tx => tx.commit().await)
    }
}

impl Db {
    /// Connects; makes the file of a SQLite database.
    ///
    /// # Errors
    /// The server does not answer in time or refuses; the file cannot be opened.
    pub async fn connect(location: &Location) -> sqlx::Result<Self> {
        match location {
            Location::Postgres(options) => {
                let pool = postgres_pool(POSTGRES_CONNECTIONS).connect_with(named(options)).await?;
                Ok(Self::Postgres(pool))
            }
            Location::Sqlite(path) => {
                let options = sqlite_options(path);
                change_to_wal(&options).await?;
                let write = sqlite_writer().connect_with(options.clone()).await?;
                let read = sqlite_readers(SQLITE_READERS).connect_with(options).await?;
                Ok(Self::Sqlite { read, write, turns: Turns::default() })
            }
        }
    }

    /// Brings the tables to this version. Several replicas may try at once.
    ///
    /// # Errors
    /// A migration fails, or the database is of a later version than this program.
    pub async fn migrate(&self) -> Result<(), MigrateError> {
        // `run` hides from the compiler that its future may move between threads (sqlx-core says so
        // at `run_direct`).
        match self {
            Self::Postgres(pool) => {
                // The migrator's lock goes with its connection; after a failure nothing else ends it.
                let mut connection = pool.acquire().await?.detach();
                // It waits for another replica's migration, and a large table takes its time.
                sqlx::raw_sql("SET statement_timeout = 0; SET lock_timeout = 0")
                    .execute(&mut connection)
                    .await?;
                let result = POSTGRES_MIGRATIONS.run_direct(None, &mut connection, false).await;
                connection.close().await?;
                result
            }
            Self::Sqlite { write, .. } => {
                // On SQLite the migrator has no lock of its own.
                let mut tx = write.begin_with("BEGIN IMMEDIATE").await?;
                SQLITE_MIGRATIONS.run_direct(None, &mut *tx, false).await?;
                Ok(tx.commit().await?)
            }
        }
    }

    /// For statements that read.
    pub fn reader(&self) -> Reader<'_> {
        match self {
            Self::Postgres(pool) => Engine::Postgres(pool),
            Self::Sqlite { read, .. } => Engine::Sqlite(read),
        }
    }

    /// Begins a transaction that writes.
    ///
    /// # Errors
    /// No connection in time.
    pub async fn begin(&self) -> sqlx::Result<Tx> {
        Ok(match self {
            Self::Postgres(pool) => {
                Tx { engine: Engine::Postgres(pool.begin().await?), _turn: Turn::default() }
            }
            Self::Sqlite { write, turns, .. } => {
                let turn = turns.wait().await?;
                let engine = Engine::Sqlite(write.begin_with("BEGIN IMMEDIATE").await?);
                Tx { engine, _turn: turn }
            }
        })
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// It does not.
    pub async fn ping(&self) -> sqlx::Result<()> {
        on_engine!(self.reader(), pool => sqlx::query("SELECT 1").execute(pool).await.map(drop))
    }

    /// The database's clock in milliseconds since 1970; `None` for SQLite, which has ours.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn clock_ms(&self) -> sqlx::Result<Option<i64>> {
        const CLOCK: &str = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";
        match self {
            Self::Postgres(pool) => sqlx::query_scalar(CLOCK).fetch_one(pool).await.map(Some),
            Self::Sqlite { .. } => Ok(None),
        }
    }

    /// Closes the connections, once what is under way has ended.
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
