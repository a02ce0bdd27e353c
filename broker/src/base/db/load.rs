//! Loading of a dump into a new database. Nobody sees the database before it is published.
//!
//! SQLite: a copy of the file is prepared beside its place and then moved there. PostgreSQL: one
//! transaction makes the schema of the dump with the migrations of this program, copies the rows
//! and applies the later migrations. It holds the lock of the migrator, so a broker that starts
//! meanwhile waits.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use sqlx::{
    AssertSqlSafe, PgConnection,
    migrate::{Migrate as _, MigrateError},
};
use tempfile::{TempDir, TempPath};

use super::{
    Db, Dump, Engine, Location, SchemaError, TableDump, Tx,
    dump::{SQLITE_FILE, not_of_extension, quoted},
    latest_schema,
    schema::migrate_postgres,
};

/// A dump could not be loaded. The database is as it was.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The dump is of the other engine.
    #[error("this is a backup of {dump}, and database.url names {configured}")]
    OtherEngine {
        /// Engine of the dump.
        dump: &'static str,
        /// Engine of the database.
        configured: &'static str,
    },
    /// The schema of the dump is newer than this program.
    #[error(
        "the backup has schema {schema}, and this tenant-broker knows schema {known}: restore it with \
         the version that made it, or a later one"
    )]
    Newer {
        /// Number of the last migration of the dump.
        schema: i64,
        /// Number of the last migration of this program.
        known: i64,
    },
    /// The database exists already.
    #[error(
        "the database is not empty: {0} exists. Stop all brokers, and restore into a new database"
    )]
    NotEmpty(String),
    /// The files are not what the dump describes.
    #[error("the backup is damaged: {0}")]
    Damaged(String),
    /// A file cannot be read or written.
    #[error("cannot read or write {path}", path = path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// The schema cannot be made.
    #[error("cannot make the schema")]
    Migration(#[from] MigrateError),
    /// The schema of the copy is not usable.
    #[error("cannot use the schema of the backup")]
    Schema(#[from] SchemaError),
    /// The database failed.
    #[error("the database failed")]
    Storage(#[from] sqlx::Error),
}

/// A loaded database that nobody sees yet. If the value is dropped, nothing stays of it.
#[derive(Debug)]
pub struct Loading {
    // Fields are in drop order.
    tx: Tx,
    db: Db,
    file: Option<PreparedFile>,
    skipped: Vec<String>,
}

/// A SQLite database that is being prepared.
#[derive(Debug)]
struct PreparedFile {
    copy: PathBuf,
    target: PathBuf,
    _folder: TempDir,
}

impl Loading {
    /// Loads the dump in this folder and migrates it to the schema of this program.
    ///
    /// # Errors
    /// The database is not empty or of another engine, the dump is newer than this program or
    /// damaged, or the database failed.
    pub async fn begin(location: &Location, folder: &Path, dump: &Dump) -> Result<Self, LoadError> {
        let (schema, known) = (dump.schema(), latest_schema());
        if schema > known {
            return Err(LoadError::Newer { schema, known });
        }
        match (location, dump) {
            (Location::Sqlite(path), Dump::Sqlite { .. }) => load_sqlite(path, folder).await,
            (Location::Postgres(_), Dump::Postgres { schema, tables }) => {
                load_postgres(location, folder, *schema, tables).await
            }
            (Location::Sqlite(_), Dump::Postgres { .. }) => {
                Err(LoadError::OtherEngine { dump: dump.engine(), configured: "SQLite" })
            }
            (Location::Postgres(_), Dump::Sqlite { .. }) => {
                Err(LoadError::OtherEngine { dump: dump.engine(), configured: "PostgreSQL" })
            }
        }
    }

    /// The transaction in which further changes become visible together with the database.
    pub fn tx(&mut self) -> &mut Tx {
        &mut self.tx
    }

    /// Tables of the dump that no migration makes. Their rows were not loaded.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// Makes the database visible.
    ///
    /// # Errors
    /// The database failed, or somebody else created it meanwhile. After an error of PostgreSQL the
    /// commit may have succeeded.
    pub async fn publish(self) -> Result<(), LoadError> {
        let Self { tx, db, file, .. } = self;
        tx.commit().await?;
        if let Db::Sqlite { write, .. } = &db {
            // Afterwards the file has everything.
            sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(write).await?;
        }
        db.close().await;
        let Some(PreparedFile { copy, target, _folder }) = file else { return Ok(()) };
        let failed = |source| LoadError::File { path: target.clone(), source };
        File::open(&copy).and_then(|file| file.sync_all()).map_err(failed)?;
        let path = TempPath::try_from_path(&copy).map_err(failed)?;
        path.persist_noclobber(&target).map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => LoadError::NotEmpty(target.display().to_string()),
            _ => failed(error.error),
        })?;
        File::open(folder_of(&target)).and_then(|folder| folder.sync_all()).map_err(failed)
    }
}

async fn load_sqlite(target: &Path, folder: &Path) -> Result<Loading, LoadError> {
    // A log that an earlier database left would be applied to this one.
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut name = target.as_os_str().to_owned();
        name.push(suffix);
        let file = PathBuf::from(name);
        if file.symlink_metadata().is_ok() {
            return Err(LoadError::NotEmpty(file.display().to_string()));
        }
    }
    let parent = folder_of(target);
    let failed = |source| LoadError::File { path: parent.to_owned(), source };
    let work = tempfile::Builder::new()
        .prefix(".tenant-broker-restore-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(parent)
        .map_err(failed)?;
    let copy = work.path().join(SQLITE_FILE);
    fs::copy(folder.join(SQLITE_FILE), &copy).map_err(failed)?;
    fs::set_permissions(&copy, Permissions::from_mode(0o600)).map_err(failed)?;
    let db = Db::connect(&Location::Sqlite(copy.clone())).await?;
    db.migrate().await?;
    let tx = db.begin().await?;
    let file = PreparedFile { copy, target: target.to_owned(), _folder: work };
    Ok(Loading { tx, db, file: Some(file), skipped: Vec::new() })
}

/// The folder of a file.
fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

async fn load_postgres(
    location: &Location,
    folder: &Path,
    schema: i64,
    dumped: &[TableDump],
) -> Result<Loading, LoadError> {
    let db = Db::connect(location).await?;
    let mut tx = db.begin().await?;
    let skipped = match tx.connection() {
        Engine::Postgres(connection) => fill(connection, folder, schema, dumped).await?,
        Engine::Sqlite(_) => Vec::new(),
    };
    Ok(Loading { tx, db, file: None, skipped })
}

/// Something in the schema that the connection uses, apart from what extensions made.
const ANY_RELATION: &str = concat!(
    "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND ",
    not_of_extension!(),
    " ORDER BY c.relname LIMIT 1"
);

const TABLE_NAMES: &str = concat!(
    "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE n.nspname = current_schema() AND c.relkind = 'r' AND c.relname <> '_sqlx_migrations' AND ",
    not_of_extension!(),
    " ORDER BY c.relname"
);

/// Each foreign key: the table that has it, and the table that it refers to.
const REFERENCES: &str = "\
SELECT f.relname::text, t.relname::text FROM pg_constraint k \
JOIN pg_class f ON f.oid = k.conrelid JOIN pg_class t ON t.oid = k.confrelid \
JOIN pg_namespace n ON n.oid = f.relnamespace \
WHERE k.contype = 'f' AND n.nspname = current_schema()";

/// Fills an empty database in the transaction of this connection. Returns the names of the dumped
/// tables that no migration makes.
async fn fill(
    connection: &mut PgConnection,
    folder: &Path,
    schema: i64,
    dumped: &[TableDump],
) -> Result<Vec<String>, LoadError> {
    sqlx::raw_sql(
        "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0",
    )
    .execute(&mut *connection)
    .await?;
    // Once more than the migrator does, so that its unlock does not release it. It ends with the
    // connection.
    connection.lock().await?;
    let existing: Option<String> =
        sqlx::query_scalar(ANY_RELATION).fetch_optional(&mut *connection).await?;
    if let Some(name) = existing {
        return Err(LoadError::NotEmpty(name));
    }
    migrate_postgres(connection, Some(schema)).await?;
    let names: Vec<String> = sqlx::query_scalar(TABLE_NAMES).fetch_all(&mut *connection).await?;
    let references: Vec<(String, String)> =
        sqlx::query_as(REFERENCES).fetch_all(&mut *connection).await?;
    let all: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    // Migrations insert rows, too.
    execute(connection, format!("TRUNCATE {}", all.join(", "))).await?;
    let skipped = dumped.iter().filter(|table| !names.contains(&table.name));
    let skipped = skipped.map(|table| table.name.clone()).collect();
    for name in in_order_of_references(names, &references) {
        let table = dumped.iter().find(|table| table.name == name);
        let table = table.ok_or_else(|| LoadError::Damaged(format!("no table {name}")))?;
        copy_in(connection, folder, table).await?;
        execute(connection, format!("ANALYZE {}", quoted(&name))).await?;
    }
    migrate_postgres(connection, None).await?;
    Ok(skipped)
}

/// Runs a statement whose names are quoted.
async fn execute(connection: &mut PgConnection, statement: String) -> sqlx::Result<()> {
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await.map(drop)
}

/// The tables, each after those that it refers to.
fn in_order_of_references(mut left: Vec<String>, references: &[(String, String)]) -> Vec<String> {
    let mut order: Vec<String> = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let waits = |table: &String| {
            references.iter().any(|(from, to)| from == table && to != table && !order.contains(to))
        };
        let (waiting, ready): (Vec<_>, Vec<_>) = left.into_iter().partition(waits);
        if ready.is_empty() {
            // A circle: PostgreSQL names the key that does not hold.
            order.extend(waiting);
            break;
        }
        order.extend(ready);
        left = waiting;
    }
    order
}

/// Copies the rows of a table from its file.
async fn copy_in(
    connection: &mut PgConnection,
    folder: &Path,
    table: &TableDump,
) -> Result<(), LoadError> {
    let path = folder.join(table.file());
    let opened = tokio::fs::File::open(&path).await;
    let file = opened.map_err(|source| LoadError::File { path, source })?;
    let statement = format!("COPY {} FROM STDIN", table.target());
    let mut copy = connection.copy_in_raw(&statement).await?;
    copy.read_from(file).await?;
    let rows = copy.finish().await?;
    if rows == table.rows {
        return Ok(());
    }
    let (name, wanted) = (&table.name, table.rows);
    Err(LoadError::Damaged(format!("{rows} rows of {name} instead of {wanted}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_comes_after_the_tables_that_it_refers_to() {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let reference = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        let references = [reference("a", "b"), reference("b", "c"), reference("c", "c")];
        let order = in_order_of_references(names(&["a", "b", "c", "d"]), &references);
        assert_eq!(order, names(&["c", "d", "b", "a"]));
        // A circle loses no table.
        let circle = [reference("a", "b"), reference("b", "a")];
        let order = in_order_of_references(names(&["a", "b", "c"]), &circle);
        assert_eq!(order, names(&["c", "a", "b"]));
    }
}
