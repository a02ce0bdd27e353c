//! A consistent copy of a database in files, while brokers use it, without the rows of tables that
//! the caller names.
//!
//! SQLite: a copy of the file (`VACUUM INTO`), which also holds the names of the applied
//! migrations. PostgreSQL: the rows of each table in the text format of `COPY`, from one snapshot,
//! without the schema: [`super::Loading`] makes that with the migrations of the program, so that
//! nothing that somebody added to the schema, such as a trigger, is restored with it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, PgPool,
    sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous},
};

use super::Db;
use crate::on_engine;

/// Name of the copy of a SQLite database.
pub(super) const SQLITE_FILE: &str = "broker.db";

/// SQL: the relation `c` does not belong to an extension.
macro_rules! not_of_extension {
    () => {
        "NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass \
         AND d.objid = c.oid AND d.deptype = 'e')"
    };
}
pub(super) use not_of_extension;

/// Contents of a dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "engine", rename_all = "snake_case")]
pub enum Dump {
    /// A PostgreSQL database.
    Postgres {
        /// Number of the last applied migration.
        schema: i64,
        /// The tables, by name.
        tables: Vec<TableDump>,
    },
    /// A SQLite database, in the file `broker.db`.
    Sqlite {
        /// Number of the last applied migration.
        schema: i64,
    },
}

/// The rows of a table of PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableDump {
    /// Name of the table.
    pub name: String,
    /// Names of the columns in the order of the values.
    pub columns: Vec<String>,
    /// Number of rows.
    pub rows: u64,
}

impl TableDump {
    /// Name of the file with the rows.
    pub fn file(&self) -> String {
        format!("{}.copy", self.name)
    }

    /// The table with its columns, as `COPY` names them: `"users" ("id", "email")`.
    pub(super) fn target(&self) -> String {
        let columns: Vec<String> = self.columns.iter().map(|column| quoted(column)).collect();
        format!("{} ({})", quoted(&self.name), columns.join(", "))
    }
}

impl Dump {
    /// Number of the last applied migration.
    pub fn schema(&self) -> i64 {
        match self {
            Self::Postgres { schema, .. } | Self::Sqlite { schema } => *schema,
        }
    }

    /// Name of the engine.
    pub fn engine(&self) -> &'static str {
        match self {
            Self::Postgres { .. } => "PostgreSQL",
            Self::Sqlite { .. } => "SQLite",
        }
    }

    /// Names of the files of the dump.
    pub fn files(&self) -> Vec<String> {
        match self {
            Self::Postgres { tables, .. } => tables.iter().map(TableDump::file).collect(),
            Self::Sqlite { .. } => vec![SQLITE_FILE.to_owned()],
        }
    }
}

/// A database could not be dumped.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The database was not migrated yet, or is not a broker's.
    #[error("the database has no tables of a broker. Is database.url right?")]
    NoTables,
    /// The schema with the table of migrations lacks a table of a broker, or the connection uses
    /// one of another schema.
    #[error(
        "the database has no table {0} beside _sqlx_migrations. Is the search_path of the user in \
         database.url that of the broker?"
    )]
    NoTable(&'static str),
    /// A file cannot be written.
    #[error("cannot write {path}", path = path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// The database failed.
    #[error("the database failed")]
    Storage(#[from] sqlx::Error),
}

/// Number of the last applied migration, in a database that has the table of migrations.
const LAST_MIGRATION: &str = "SELECT COALESCE(MAX(version), 0) FROM _sqlx_migrations";

impl Db {
    /// Writes a copy of the database into this folder, in files of mode 0600, and syncs them.
    /// Nobody waits for it: it reads a snapshot. The copies of the tables `emptied` have no rows;
    /// their names must be plain identifiers.
    ///
    /// # Errors
    /// The database failed or is not a broker's; a file exists already or cannot be written.
    pub async fn dump(&self, folder: &Path, emptied: &[&str]) -> Result<Dump, DumpError> {
        if self.schema_number().await? == 0 {
            return Err(DumpError::NoTables);
        }
        match self {
            Self::Postgres(pool) => dump_postgres(pool, folder, emptied).await,
            Self::Sqlite { read, .. } => {
                let path = folder.join(SQLITE_FILE);
                // Deleted rows stay in free space of the pages, so the tables are emptied in a first
                // copy, and the second one is made of its rows. `VACUUM` alone would write its
                // temporary file into another folder.
                let all_rows = folder.join("all-rows.db");
                vacuum_into(read, &all_rows).await?;
                let options = SqliteConnectOptions::new()
                    .filename(&all_rows)
                    .journal_mode(SqliteJournalMode::Memory)
                    .synchronous(SqliteSynchronous::Off);
                let mut copy = options.connect().await?;
                empty(&mut copy, emptied).await?;
                let schema: i64 = sqlx::query_scalar(LAST_MIGRATION).fetch_one(&mut copy).await?;
                vacuum_into(&mut copy, &path).await?;
                copy.close().await?;
                fs::remove_file(&all_rows)
                    .map_err(|source| DumpError::Write { path: all_rows, source })?;
                sync(&path)?;
                Ok(Dump::Sqlite { schema })
            }
        }
    }

    /// Number of the last applied migration, whatever program applied it; 0 if there is none.
    async fn schema_number(&self) -> sqlx::Result<i64> {
        if !self.has_table("_sqlx_migrations").await? {
            return Ok(0);
        }
        on_engine!(self.reader(), pool => sqlx::query_scalar(LAST_MIGRATION).fetch_one(pool).await)
    }
}

/// Writes a copy without free space into a new file.
async fn vacuum_into(
    database: impl sqlx::SqliteExecutor<'_>,
    path: &Path,
) -> Result<(), DumpError> {
    let name = path.to_str().ok_or_else(|| DumpError::Write {
        path: path.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidInput, "the path is not UTF-8"),
    })?;
    // SQLite fills an empty file, and would make a new one readable for others.
    drop(create(path)?);
    sqlx::query("VACUUM INTO $1").bind(name).execute(database).await?;
    Ok(())
}

/// Deletes the rows of these tables, of which an older schema may lack some.
async fn empty(copy: &mut SqliteConnection, tables: &[&str]) -> sqlx::Result<()> {
    const EXISTS: &str = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = $1";
    for table in tables {
        let found: i64 = sqlx::query_scalar(EXISTS).bind(*table).fetch_one(&mut *copy).await?;
        if found > 0 {
            let statement = AssertSqlSafe(format!("DELETE FROM {}", quoted(table)));
            sqlx::raw_sql(statement).execute(&mut *copy).await?;
        }
    }
    Ok(())
}

/// Tables of every schema of a broker.
const REQUIRED_TABLES: [&str; 3] = ["audit_logs", "users", "workspaces"];

/// The tables beside `_sqlx_migrations` that the connection uses, with their columns in order.
const TABLES: &str = concat!(
    "SELECT c.relname::text, array_agg(a.attname::text ORDER BY a.attnum) \
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
     WHERE c.relkind = 'r' AND c.relname <> '_sqlx_migrations' \
       AND n.oid = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('_sqlx_migrations')) \
       AND c.oid = to_regclass(quote_ident(c.relname)) AND ",
    not_of_extension!(),
    " GROUP BY c.relname ORDER BY c.relname"
);

async fn dump_postgres(pool: &PgPool, folder: &Path, emptied: &[&str]) -> Result<Dump, DumpError> {
    // All statements of the transaction read the same snapshot.
    let mut tx = pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    sqlx::raw_sql(
        "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0",
    )
    .execute(&mut *tx)
    .await?;
    let schema: i64 = sqlx::query_scalar(LAST_MIGRATION).fetch_one(&mut *tx).await?;
    let found: Vec<(String, Vec<String>)> = sqlx::query_as(TABLES).fetch_all(&mut *tx).await?;
    let is_missing = |required: &&str| !found.iter().any(|(name, _)| name == required);
    if let Some(missing) = REQUIRED_TABLES.into_iter().find(is_missing) {
        return Err(DumpError::NoTable(missing));
    }
    let mut tables = Vec::with_capacity(found.len());
    for (name, columns) in found {
        let mut table = TableDump { name, columns, rows: 0 };
        let path = folder.join(table.file());
        if emptied.contains(&table.name.as_str()) {
            drop(create(&path)?);
        } else {
            table.rows = copy_out(&mut tx, &table, &path).await?;
        }
        tables.push(table);
    }
    tx.rollback().await?;
    Ok(Dump::Postgres { schema, tables })
}

/// Writes the rows of a table; returns their number.
async fn copy_out(
    connection: &mut PgConnection,
    table: &TableDump,
    path: &Path,
) -> Result<u64, DumpError> {
    let failed = |source| DumpError::Write { path: path.to_owned(), source };
    let mut file = BufWriter::new(create(path)?);
    let statement = format!("COPY {} TO STDOUT", table.target());
    let mut chunks = connection.copy_out_raw(&statement).await?;
    let mut rows: u64 = 0;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        // A line break in a value is written as `\n`, so each one ends a row.
        rows += chunk.iter().map(|byte| u64::from(*byte == b'\n')).sum::<u64>();
        file.write_all(&chunk).map_err(failed)?;
    }
    let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)?;
    Ok(rows)
}

/// Creates a file that only this user can read.
fn create(path: &Path) -> Result<File, DumpError> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|source| DumpError::Write { path: path.to_owned(), source })
}

fn sync(path: &Path) -> Result<(), DumpError> {
    File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(|source| DumpError::Write { path: path.to_owned(), source })
}

/// An identifier of SQL.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
