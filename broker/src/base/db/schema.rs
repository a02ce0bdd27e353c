//! The schema: which migrations a database has, and whether this program may use it.
//!
//! A schema has the number of its last migration. A program applies the migrations that it knows.
//! It also works on a newer schema, unless the row of `schema_compatibility` says that a program
//! has to know more (`migrations/README.md`), so that replicas of two versions can share a database
//! during an upgrade.

use std::collections::BTreeSet;

use sqlx::{
    Connection as _, PgConnection,
    migrate::{MigrateError, Migrator},
};

use super::{Db, POSTGRES_MIGRATIONS, SQLITE_MIGRATIONS};
use crate::on_engine;

/// This program cannot use a database, or cannot migrate it.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The schema is too new for this program.
    #[error(
        "the database has schema {found}, which needs a tenant-broker that knows schema {oldest} or \
         later; this one knows schema {known}. Start the newer version, or restore a backup from \
         before the upgrade (docs/upgrade.md)"
    )]
    Newer {
        /// Number of the last applied migration.
        found: i64,
        /// Number of the migration that a program has to know.
        oldest: i64,
        /// Number of the last migration of this program.
        known: i64,
    },
    /// The checksum of an applied migration is not that of this program's.
    #[error(
        "migration {0} of the database is not the one of this program: one of them is no release. \
         Start the program that migrated the database, or restore a backup (docs/upgrade.md)"
    )]
    Changed(i64),
    /// The database has a migration among this program's numbers that this program does not have.
    #[error(
        "the database has migration {0}, which this program lacks although it has later ones: it is \
         the database of another program. Is database.url right?"
    )]
    Unknown(i64),
    /// An earlier migration is missing although a later one was applied.
    #[error(
        "the database lacks migration {missing} although it has migration {last}: somebody changed \
         the table _sqlx_migrations, or it was migrated by a program that is no release. Restore a \
         backup (docs/upgrade.md)"
    )]
    Gap {
        /// Number of the first missing migration.
        missing: i64,
        /// Number of the last applied migration.
        last: i64,
    },
    /// A migration failed.
    #[error("a migration failed, and nothing of it stays. Start again when the cause is gone")]
    Migration(#[from] MigrateError),
    /// The database failed.
    #[error("the database failed. No migration is half done: start again when it answers")]
    Storage(#[from] sqlx::Error),
}

/// The schema of a database that this program may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaStatus {
    /// Number of the last applied migration; 0 if there is none.
    pub schema: i64,
    /// Number of the last migration of this program.
    pub known: i64,
    /// Number and name of each migration that this program would apply, in order.
    pub pending: Vec<(i64, String)>,
}

impl SchemaStatus {
    /// The status of a database without tables.
    pub fn empty() -> Self {
        Self { schema: 0, known: latest_schema(), pending: names(&SQLITE_MIGRATIONS, 0) }
    }
}

/// Number of the last migration of this program.
pub fn latest_schema() -> i64 {
    SQLITE_MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0)
}

/// Number and name of each migration after this number.
fn names(migrator: &Migrator, after: i64) -> Vec<(i64, String)> {
    let later = migrator.iter().filter(|migration| migration.version > after);
    later.map(|migration| (migration.version, migration.description.to_string())).collect()
}

/// An applied migration: number and checksum.
type Applied = (i64, Vec<u8>);

/// Compares the applied migrations, in order, with those of this program.
fn compare(
    migrator: &Migrator,
    applied: &[Applied],
    oldest_program: Option<i64>,
) -> Result<SchemaStatus, SchemaError> {
    let known = migrator.iter().map(|migration| migration.version).max().unwrap_or(0);
    let last = applied.last().map_or(0, |(version, _)| *version);
    let numbers: BTreeSet<i64> = applied.iter().map(|(version, _)| *version).collect();
    for migration in migrator.iter() {
        match applied.iter().find(|(version, _)| *version == migration.version) {
            Some((version, checksum)) if *checksum != *migration.checksum => {
                return Err(SchemaError::Changed(*version));
            }
            None if migration.version < last => {
                return Err(SchemaError::Gap { missing: migration.version, last });
            }
            Some(_) | None => {}
        }
    }
    if let Some(unknown) =
        numbers.iter().find(|number| **number <= known && !migrator.version_exists(**number))
    {
        return Err(SchemaError::Unknown(*unknown));
    }
    // The row exists in every schema that is newer than this program's.
    let oldest = oldest_program.unwrap_or(last);
    if last > known && oldest > known {
        return Err(SchemaError::Newer { found: last, oldest, known });
    }
    Ok(SchemaStatus { schema: last, known, pending: names(migrator, last) })
}

const APPLIED: &str = "SELECT version, checksum FROM _sqlx_migrations ORDER BY version";
const OLDEST_PROGRAM: &str = "SELECT oldest_program FROM schema_compatibility WHERE id = 1";

impl Db {
    /// The schema of the database, compared with this program's migrations. It changes nothing.
    ///
    /// # Errors
    /// This program cannot use the database, or the database failed.
    pub async fn schema_status(&self) -> Result<SchemaStatus, SchemaError> {
        let migrator = self.migrator();
        let applied: Vec<Applied> = if self.has_table("_sqlx_migrations").await? {
            on_engine!(self.reader(), pool => sqlx::query_as(APPLIED).fetch_all(pool).await)?
        } else {
            Vec::new()
        };
        let oldest: Option<i64> = if self.has_table("schema_compatibility").await? {
            on_engine!(self.reader(), pool =>
                sqlx::query_scalar(OLDEST_PROGRAM).fetch_optional(pool).await)?
        } else {
            None
        };
        compare(migrator, &applied, oldest)
    }

    fn migrator(&self) -> &'static Migrator {
        match self {
            Self::Postgres(_) => &POSTGRES_MIGRATIONS,
            Self::Sqlite { .. } => &SQLITE_MIGRATIONS,
        }
    }

    pub(super) async fn has_table(&self, name: &str) -> sqlx::Result<bool> {
        const POSTGRES: &str = "SELECT COUNT(*) FROM pg_class WHERE oid = to_regclass($1)";
        const SQLITE: &str =
            "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = $1";
        let count: i64 = match self {
            Self::Postgres(pool) => sqlx::query_scalar(POSTGRES).bind(name).fetch_one(pool).await?,
            Self::Sqlite { read, .. } => {
                sqlx::query_scalar(SQLITE).bind(name).fetch_one(read).await?
            }
        };
        Ok(count > 0)
    }

    /// Applies the migrations of this program that the database lacks. Several replicas may run
    /// this concurrently. A database with a newer schema that this program may use stays as it is.
    ///
    /// # Errors
    /// A migration failed, or this program cannot use the database.
    pub async fn migrate(&self) -> Result<(), SchemaError> {
        // Refuses before anything is changed.
        self.schema_status().await?;
        match self {
            Self::Postgres(pool) => {
                // The lock of the migrator ends with its connection; after a failure nothing else
                // ends it.
                let mut connection = pool.acquire().await?.detach();
                // It waits for the migration of another replica, and a large table takes longer
                // than the timeouts.
                sqlx::raw_sql("SET statement_timeout = 0; SET lock_timeout = 0")
                    .execute(&mut connection)
                    .await?;
                let migrated = migrate_postgres(&mut connection, None).await;
                let closed = connection.close().await;
                migrated?;
                closed?;
            }
            Self::Sqlite { write, .. } => {
                // On SQLite the migrator has no lock of its own.
                let mut tx = write.begin_with("BEGIN IMMEDIATE").await?;
                // `run` hides from the compiler that its future may move between threads (sqlx-core
                // says so at `run_direct`).
                ignoring_newer(&SQLITE_MIGRATIONS).run_direct(None, &mut *tx, false).await?;
                tx.commit().await?;
            }
        }
        // A replica of a newer version may have migrated meanwhile.
        self.schema_status().await.map(drop)
    }
}

/// Applies the migrations that the database of this connection lacks, up to this number or all,
/// each in a transaction or savepoint of its own. It holds the lock of the migrator meanwhile.
pub(super) async fn migrate_postgres(
    connection: &mut PgConnection,
    last: Option<i64>,
) -> Result<(), MigrateError> {
    ignoring_newer(&POSTGRES_MIGRATIONS).run_direct(last, connection, false).await
}

/// The same migrations; it accepts a database that has later ones, because [`Db::schema_status`]
/// decides about these.
fn ignoring_newer(migrator: &Migrator) -> Migrator {
    let mut migrator = Migrator::with_migrations(migrator.iter().cloned().collect());
    migrator.set_ignore_missing(true);
    migrator
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first `count` migrations, as they are applied.
    fn applied(count: usize) -> Vec<Applied> {
        let all = SQLITE_MIGRATIONS.iter().take(count);
        all.map(|migration| (migration.version, migration.checksum.to_vec())).collect()
    }

    fn compared(applied: &[Applied], oldest: Option<i64>) -> Result<SchemaStatus, SchemaError> {
        compare(&SQLITE_MIGRATIONS, applied, oldest)
    }

    #[test]
    fn missing_migrations_at_the_end_are_pending() {
        let all = SQLITE_MIGRATIONS.iter().count();
        let (known, before) = (latest_schema(), latest_schema() - 1);
        let current = compared(&applied(all), Some(known)).unwrap();
        assert_eq!(current, SchemaStatus { schema: known, known, pending: Vec::new() });
        let older = compared(&applied(all - 1), None).unwrap();
        assert_eq!((older.schema, older.pending.len()), (before, 1));
        assert_eq!(older.pending[0].0, known);
        assert_eq!(compared(&[], None).unwrap(), SchemaStatus::empty());
        assert_eq!(SchemaStatus::empty().pending.len(), all);
    }

    #[test]
    fn a_newer_schema_says_which_programs_may_use_it() {
        let known = latest_schema();
        let mut newer = applied(SQLITE_MIGRATIONS.iter().count());
        newer.push((known + 1, vec![1]));
        let status = compared(&newer, Some(known)).unwrap();
        assert_eq!((status.schema, status.pending.len()), (known + 1, 0));
        for oldest in [Some(known + 1), None] {
            let error = compared(&newer, oldest).unwrap_err();
            assert!(
                matches!(error, SchemaError::Newer { found, oldest, known: mine }
                    if found == known + 1 && oldest == known + 1 && mine == known),
                "{error}"
            );
        }
    }

    #[test]
    fn another_history_is_refused() {
        let all = SQLITE_MIGRATIONS.iter().count();
        let mut changed = applied(all);
        changed[2].1[0] ^= 1;
        assert!(matches!(compared(&changed, Some(1)), Err(SchemaError::Changed(3))));
        let mut gap = applied(all);
        gap.remove(4);
        assert!(matches!(compared(&gap, Some(1)), Err(SchemaError::Gap { missing: 5, .. })));
        let mut unknown = applied(all);
        unknown.insert(0, (0, vec![1]));
        assert!(matches!(compared(&unknown, Some(1)), Err(SchemaError::Unknown(0))));
        // Also beside a newer schema that would be compatible.
        gap.push((latest_schema() + 1, vec![1]));
        assert!(matches!(compared(&gap, Some(1)), Err(SchemaError::Gap { missing: 5, .. })));
    }
}
