//! Tests of the database: both engines have the same tables and give the same guarantees.

mod memberships;
mod personal_tenants;
mod role;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use integration::postgres::Postgres as Server;
use uuid::Uuid;

use super::*;
use crate::{
    on_engine,
    testing::{On, Storage, TestDatabase, on_both_engines, run_concurrently},
};

on_both_engines!(
    migrating_again_changes_nothing,
    several_processes_may_open_and_migrate_at_once,
    several_processes_may_upgrade_at_once,
    a_newer_schema_is_used_if_it_allows_this_program,
    a_database_of_another_history_is_refused,
    a_dropped_transaction_leaves_no_changes,
    a_transaction_is_visible_once_it_is_committed,
    committed_data_survives_a_power_failure,
    a_closed_database_does_not_answer,
    a_lock_held_by_another_transaction_times_out,
);

/// Name of each column and whether it is `NOT NULL`, in order.
type Columns = Vec<(String, bool)>;

/// The tables and views of a database and their columns, without the table of the migrations.
/// SQLite does not know whether a column of a view is `NOT NULL`, and neither does PostgreSQL.
async fn tables_and_views(db: &Db) -> BTreeMap<String, Columns> {
    let rows: Vec<(String, String, bool)> = match db {
        Db::Postgres(pool) => {
            let columns = "\
                SELECT table_name::text, column_name::text, is_nullable = 'NO' \
                FROM information_schema.columns WHERE table_schema = 'public' \
                ORDER BY table_name, ordinal_position";
            sqlx::query_as(columns).fetch_all(pool).await.unwrap()
        }
        Db::Sqlite { read, .. } => {
            let columns = "\
                SELECT t.name, c.name, c.\"notnull\" FROM sqlite_master t, pragma_table_info(t.name) c \
                WHERE t.type IN ('table', 'view') ORDER BY t.name, c.cid";
            sqlx::query_as(columns).fetch_all(read).await.unwrap()
        }
    };
    let mut tables: BTreeMap<_, Columns> = BTreeMap::new();
    for (table, column, needed) in rows {
        tables.entry(table).or_default().push((column, needed));
    }
    assert!(tables.remove("_sqlx_migrations").is_some(), "the tables come from migrations");
    tables
}

/// `table(columns)` of every index, and whether it is unique.
async fn indexes(db: &Db) -> BTreeMap<String, bool> {
    let rows: Vec<(String, String, bool)> = match db {
        Db::Postgres(pool) => {
            let indexes = "\
                SELECT t.relname::text, \
                  string_agg(a.attname::text, ',' ORDER BY array_position(i.indkey, a.attnum)), \
                  i.indisunique \
                FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid \
                JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = ANY(i.indkey) \
                WHERE t.relnamespace = 'public'::regnamespace \
                GROUP BY i.indexrelid, t.relname, i.indisunique";
            sqlx::query_as(indexes).fetch_all(pool).await.unwrap()
        }
        Db::Sqlite { read, .. } => {
            let indexes = "\
                SELECT t.name, (SELECT group_concat(name, ',' ORDER BY seqno) \
                  FROM pragma_index_info(i.name)), i.\"unique\" \
                FROM sqlite_master t, pragma_index_list(t.name) i WHERE t.type = 'table'";
            sqlx::query_as(indexes).fetch_all(read).await.unwrap()
        }
    };
    let indexes = rows.into_iter().filter(|(table, ..)| table != "_sqlx_migrations");
    indexes.map(|(table, columns, unique)| (format!("{table}({columns})"), unique)).collect()
}

/// `table(column) -> table(column)` of every foreign key.
async fn references(db: &Db) -> Vec<String> {
    match db {
        Db::Postgres(pool) => {
            let keys = "\
                SELECT f.relname || '(' || a.attname || ') -> ' || t.relname || '(' || b.attname || ')' \
                FROM pg_constraint c \
                JOIN pg_class f ON f.oid = c.conrelid JOIN pg_class t ON t.oid = c.confrelid \
                JOIN pg_attribute a ON a.attrelid = f.oid AND a.attnum = c.conkey[1] \
                JOIN pg_attribute b ON b.attrelid = t.oid AND b.attnum = c.confkey[1] \
                WHERE c.contype = 'f' ORDER BY 1";
            sqlx::query_scalar(keys).fetch_all(pool).await.unwrap()
        }
        Db::Sqlite { read, .. } => {
            let keys = "\
                SELECT t.name || '(' || k.\"from\" || ') -> ' || k.\"table\" || '(' || k.\"to\" || ')' \
                FROM sqlite_master t, pragma_foreign_key_list(t.name) k ORDER BY 1";
            sqlx::query_scalar(keys).fetch_all(read).await.unwrap()
        }
    }
}

#[tokio::test]
async fn both_engines_have_the_same_tables() {
    let (sqlite, postgres) = (Storage::new(On::Sqlite).await, Storage::new(On::Postgres).await);
    let ours = tables_and_views(&sqlite.db).await;
    let theirs = tables_and_views(&postgres.db).await;
    assert!(ours.contains_key("workspaces") && ours.len() == 25 + 12, "{ours:?}");
    assert_eq!(ours, theirs);
    assert_eq!(indexes(&sqlite.db).await, indexes(&postgres.db).await);
    let keys = references(&sqlite.db).await;
    assert!(keys.contains(&"workspaces(user_id) -> users(id)".to_owned()), "{keys:?}");
    assert_eq!(keys, references(&postgres.db).await);
}

#[test]
fn both_engines_have_the_same_migrations() {
    let files = |engine: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations").join(engine);
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(files("sqlite"), files("postgres"));
    let known = |migrator: &Migrator| migrator.iter().map(|m| m.version).collect::<Vec<_>>();
    assert_eq!(known(&SQLITE_MIGRATIONS), known(&POSTGRES_MIGRATIONS));
    assert_eq!(known(&SQLITE_MIGRATIONS).len(), files("sqlite").len(), "all are built in");
    let numbers = 1..=i64::try_from(files("sqlite").len()).unwrap();
    assert_eq!(known(&SQLITE_MIGRATIONS), numbers.collect::<Vec<_>>(), "numbered without a gap");
}

async fn migrating_again_changes_nothing(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let before = tables_and_views(&storage.db).await;
    storage.db.migrate().await.unwrap();
    storage.database.connect().await.migrate().await.unwrap();
    assert_eq!(tables_and_views(&storage.db).await, before);
    let kept: Vec<Uuid> = on_engine!(storage.db.reader(), pool =>
        sqlx::query_scalar("SELECT id FROM users").fetch_all(pool).await)
    .unwrap();
    assert_eq!(kept, [user]);
}

async fn several_processes_may_open_and_migrate_at_once(on: On) {
    // Several times, because failures here occur by chance.
    let times = match on {
        On::Sqlite => 5,
        On::Postgres => 2,
    };
    for _ in 0..times {
        let place = Arc::new(TestDatabase::new(on).await);
        let results = run_concurrently((0..4).map(|_| {
            let place = Arc::clone(&place);
            async move {
                let db = place.connect().await;
                db.migrate().await.map(|()| db)
            }
        }))
        .await;
        for result in results {
            let applied: i64 = on_engine!(result.unwrap().reader(), pool =>
                sqlx::query_scalar("SELECT COUNT(*) FROM _sqlx_migrations").fetch_one(pool).await)
            .unwrap();
            assert_eq!(usize::try_from(applied).unwrap(), SQLITE_MIGRATIONS.iter().count());
        }
    }
}

/// Migrates to this number only, as an earlier program did.
async fn migrate_to(db: &Db, last: i64) {
    match db {
        Db::Postgres(pool) => {
            let mut connection = pool.acquire().await.unwrap();
            schema::migrate_postgres(&mut connection, Some(last)).await.unwrap();
        }
        Db::Sqlite { write, .. } => {
            let mut connection = write.acquire().await.unwrap();
            SQLITE_MIGRATIONS.run_direct(Some(last), &mut *connection, false).await.unwrap();
        }
    }
}

/// The schemas of the last three steps of development.
const EARLIER_SCHEMAS: [i64; 3] = [7, 13, 14];

async fn several_processes_may_upgrade_at_once(on: On) {
    for earlier in EARLIER_SCHEMAS {
        let place = Arc::new(TestDatabase::new(on).await);
        let db = place.connect().await;
        migrate_to(&db, earlier).await;
        let mut tx = db.begin().await.unwrap();
        on_engine!(tx.connection(), c => sqlx::query(ADD_USER)
            .bind(Uuid::nil()).execute(c).await.map(drop))
        .unwrap();
        tx.commit().await.unwrap();
        let results = run_concurrently((0..4).map(|_| {
            let place = Arc::clone(&place);
            async move {
                let db = place.connect().await;
                db.migrate().await.map(|()| db)
            }
        }))
        .await;
        for result in results {
            let status = result.unwrap().schema_status().await.unwrap();
            assert_eq!((status.schema, status.pending), (latest_schema(), Vec::new()));
        }
        let users: i64 = on_engine!(db.reader(), pool =>
            sqlx::query_scalar(USERS).fetch_one(pool).await)
        .unwrap();
        assert_eq!(users, 1, "rows stay");
    }
}

/// Each migration is a transaction, so the next start finishes what is left.
#[tokio::test]
async fn a_server_that_dies_during_an_upgrade_leaves_no_migration_half_done() {
    let server = Server::start().await.unwrap();
    let place = TestDatabase::on_server(&server).await;
    let db = place.connect().await;
    migrate_to(&db, 11).await;
    // Migration 0012 changes the table `users`, and waits for this transaction.
    let mut reader = db.begin().await.unwrap();
    let lock = "LOCK TABLE users IN ACCESS SHARE MODE";
    on_engine!(reader.connection(), c => sqlx::query(lock).execute(c).await.map(drop)).unwrap();
    let upgrading = place.connect().await;
    let upgrade = tokio::spawn(async move { upgrading.migrate().await });
    let waiting = async {
        const WAITING: &str = "\
            SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND relation = to_regclass('users')";
        while on_engine!(db.reader(), pool => sqlx::query_scalar::<_, i64>(WAITING).fetch_one(pool).await)
            .unwrap()
            == 0
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(BOUND, waiting).await.expect("the migration waits for the lock");

    server.kill().await.unwrap();
    let error = upgrade.await.unwrap().unwrap_err();
    assert!(matches!(error, SchemaError::Migration(_) | SchemaError::Storage(_)), "{error}");
    drop(reader);
    server.restart().await.unwrap();
    let db = place.connect().await;
    assert_eq!(db.schema_status().await.unwrap().schema, 11);
    db.migrate().await.unwrap();
    assert_eq!(db.schema_status().await.unwrap().schema, latest_schema());
}

/// Records a migration that this program does not know, and the oldest program for the schema.
async fn pretend_newer(storage: &Storage, oldest_program: i64) {
    const APPLY: &str = "\
        INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
        VALUES ($1, 'newer', $2, $3, 0) ON CONFLICT (version) DO NOTHING";
    const ALLOW: &str = "UPDATE schema_compatibility SET oldest_program = $1";
    let mut tx = storage.db.begin().await.unwrap();
    on_engine!(tx.connection(), c => sqlx::query(APPLY)
        .bind(latest_schema() + 1).bind(true).bind(vec![1_u8]).execute(c).await.map(drop))
    .unwrap();
    on_engine!(tx.connection(), c =>
        sqlx::query(ALLOW).bind(oldest_program).execute(c).await.map(drop))
    .unwrap();
    tx.commit().await.unwrap();
}

async fn a_newer_schema_is_used_if_it_allows_this_program(on: On) {
    let storage = Storage::new(on).await;
    let newer = latest_schema() + 1;
    pretend_newer(&storage, latest_schema()).await;
    storage.db.migrate().await.unwrap();
    let another = storage.database.connect().await;
    another.migrate().await.unwrap();
    let status = another.schema_status().await.unwrap();
    assert_eq!((status.schema, status.pending), (newer, Vec::new()));

    pretend_newer(&storage, newer).await;
    let refused = |error: &SchemaError| {
        matches!(error, SchemaError::Newer { found, oldest, .. }
            if *found == newer && *oldest == newer)
    };
    let error = storage.db.migrate().await.unwrap_err();
    assert!(refused(&error), "{error}");
    assert!(error.to_string().contains("Start the newer version"), "{error}");
    // The refusal leaves no lock behind.
    storage.db.begin().await.unwrap().commit().await.unwrap();
    let error = storage.database.connect().await.migrate().await.unwrap_err();
    assert!(refused(&error), "{error}");
}

async fn a_database_of_another_history_is_refused(on: On) {
    let storage = Storage::new(on).await;
    for (change, changed) in [
        (
            "UPDATE _sqlx_migrations SET checksum = \
               (SELECT o.checksum FROM _sqlx_migrations o WHERE o.version = 1) WHERE version = 2",
            2,
        ),
        ("DELETE FROM _sqlx_migrations WHERE version = 1", 1),
    ] {
        let mut tx = storage.db.begin().await.unwrap();
        on_engine!(tx.connection(), c => sqlx::query(change).execute(c).await.map(drop)).unwrap();
        tx.commit().await.unwrap();
        let error = storage.db.migrate().await.unwrap_err();
        let expected = match &error {
            SchemaError::Changed(version) => *version,
            SchemaError::Gap { missing, .. } => *missing,
            other => panic!("{other}"),
        };
        assert_eq!(expected, changed, "{error}");
    }
}

/// The oldest program that this migration names.
fn declared_oldest_program(sql: &str) -> Option<i64> {
    let (_, rest) = sql.split_once("UPDATE schema_compatibility SET oldest_program = ")?;
    rest.split_once(';')?.0.parse().ok()
}

#[test]
fn every_later_migration_says_which_programs_it_works_with() {
    let text = "ALTER …;\nUPDATE schema_compatibility SET oldest_program = 15;\n";
    assert_eq!(declared_oldest_program(text), Some(15));
    assert_eq!(declared_oldest_program("ALTER TABLE users ADD COLUMN x TEXT;"), None);
    // Migration 0014 makes the table with its first value.
    let first = 14;
    for migrator in [&SQLITE_MIGRATIONS, &POSTGRES_MIGRATIONS] {
        let mut oldest = first;
        for migration in migrator.iter().filter(|migration| migration.version > first) {
            let version = migration.version;
            let declared = declared_oldest_program(migration.sql.as_str());
            let declared = declared.unwrap_or_else(|| {
                panic!("migration {version} has to set oldest_program (migrations/README.md)")
            });
            assert!((oldest..=version).contains(&declared), "migration {version}: {declared}");
            oldest = declared;
        }
    }
}

const USERS: &str = "SELECT COUNT(*) FROM users";
const ADD_USER: &str = "\
INSERT INTO users (id, email, status, role, created_at) VALUES ($1, 'a', 'active', 'user', 0)";

async fn add_user(storage: &Storage) -> Tx {
    let mut tx = storage.db.begin().await.unwrap();
    let id = storage.clock.random_id();
    on_engine!(tx.connection(), c => sqlx::query(ADD_USER).bind(id).execute(c).await.map(drop))
        .unwrap();
    tx
}

async fn a_dropped_transaction_leaves_no_changes(on: On) {
    let storage = Storage::new(on).await;
    // More often than there are connections: no connection is lost, and none continues an old
    // transaction.
    for _ in 0..20 {
        drop(add_user(&storage).await);
    }
    assert_eq!(storage.number(USERS).await, 0);
    // The same for a transaction whose future is dropped half-way, as when a client disconnects.
    for _ in 0..20 {
        let abandoned = async {
            let _tx = add_user(&storage).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = abandoned => {}
            () = tokio::task::yield_now() => {}
        }
    }
    assert_eq!(storage.number(USERS).await, 0);
    add_user(&storage).await.commit().await.unwrap();
    assert_eq!(storage.number(USERS).await, 1);
}

async fn a_transaction_is_visible_once_it_is_committed(on: On) {
    let storage = Storage::new(on).await;
    let tx = add_user(&storage).await;
    assert_eq!(storage.number(USERS).await, 0, "readers do not wait and see what is committed");
    tx.commit().await.unwrap();
    assert_eq!(storage.number(USERS).await, 1);
}

async fn committed_data_survives_a_power_failure(on: On) {
    let storage = Storage::new(on).await;
    match &storage.db {
        Db::Postgres(pool) => {
            for setting in ["SHOW fsync", "SHOW synchronous_commit", "SHOW full_page_writes"] {
                let value: String = sqlx::query_scalar(setting).fetch_one(pool).await.unwrap();
                assert_eq!(value, "on", "{setting}");
            }
        }
        Db::Sqlite { write, .. } => {
            let mode: String =
                sqlx::query_scalar("PRAGMA journal_mode").fetch_one(write).await.unwrap();
            assert_eq!(mode, "wal");
            let full: i64 =
                sqlx::query_scalar("PRAGMA synchronous").fetch_one(write).await.unwrap();
            assert_eq!(full, 2);
            let keys: i64 =
                sqlx::query_scalar("PRAGMA foreign_keys").fetch_one(write).await.unwrap();
            assert_eq!(keys, 1, "references are checked, as PostgreSQL does");
        }
    }
}

async fn a_closed_database_does_not_answer(on: On) {
    let storage = Storage::new(on).await;
    storage.db.ping().await.unwrap();
    storage.db.close().await;
    assert!(matches!(storage.db.ping().await, Err(sqlx::Error::PoolClosed)));
    assert!(matches!(storage.db.begin().await, Err(sqlx::Error::PoolClosed)));
}

/// Longer than any of the timeouts, and much shorter than forever.
const BOUND: Duration = Duration::from_mins(1);

async fn a_lock_held_by_another_transaction_times_out(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    // Another process wrote to the row and hangs.
    let other = storage.database.connect().await;
    let mut stuck = other.begin().await.unwrap();
    let write = "UPDATE users SET role = 'admin' WHERE id = $1";
    let write = async |tx: &mut Tx| on_engine!(tx.connection(), c => sqlx::query(write).bind(user).execute(c).await.map(drop));
    write(&mut stuck).await.unwrap();
    let attempts = run_concurrently((0..3).map(|_| {
        let db = storage.db.clone();
        async move {
            tokio::time::timeout(BOUND, async {
                let mut tx = db.begin().await?;
                let touch = "UPDATE users SET role = 'user' WHERE id = $1";
                on_engine!(tx.connection(), c =>
                    sqlx::query(touch).bind(user).execute(c).await.map(drop))
            })
            .await
        }
    }));
    for attempt in attempts.await {
        attempt.expect("an answer in time").unwrap_err();
    }
    assert_eq!(storage.number(USERS).await, 1, "readers never wait");
    drop(stuck);
    let mut tx = storage.db.begin().await.unwrap();
    write(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_statement_that_never_ends_times_out() {
    let storage = Storage::new(On::Postgres).await;
    let Db::Postgres(pool) = &storage.db else { panic!("another engine") };
    let sleep = sqlx::query("SELECT pg_sleep(600)").execute(pool);
    let error = tokio::time::timeout(BOUND, sleep).await.expect("an answer in time").unwrap_err();
    let code = error.as_database_error().and_then(|error| error.code().map(|it| it.to_string()));
    assert_eq!(code.as_deref(), Some("57014"), "query_canceled");
    storage.db.ping().await.unwrap();
}

/// With `off` a credential could be returned before its audit row is durable.
#[tokio::test]
async fn commits_are_durable_whatever_the_database_s_default_is() {
    let storage = Storage::new(On::Postgres).await;
    let Db::Postgres(pool) = &storage.db else { panic!("another engine") };
    let (database, role): (String, String) =
        sqlx::query_as("SELECT current_database()::text, current_user::text")
            .fetch_one(pool)
            .await
            .unwrap();
    let of_database = format!("ALTER DATABASE \"{database}\" SET synchronous_commit");
    let of_role =
        format!("ALTER ROLE \"{role}\" IN DATABASE \"{database}\" SET synchronous_commit");
    for default in [of_database, of_role] {
        for (given, used) in [
            ("off", "on"),
            ("local", "on"),
            ("remote_write", "on"),
            ("on", "on"),
            ("remote_apply", "remote_apply"),
        ] {
            let statement = format!("{default} = {given}");
            sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(pool).await.unwrap();
            let Db::Postgres(new) = storage.database.connect().await else {
                panic!("another engine")
            };
            let shown: String =
                sqlx::query_scalar("SHOW synchronous_commit").fetch_one(&new).await.unwrap();
            assert_eq!(shown, used, "{default} = {given}");
        }
    }
}

#[tokio::test]
async fn the_url_may_set_other_time_limits() {
    let url = "postgres://u@localhost/db?options=-c%20statement_timeout%3D1234";
    let Ok(Location::Postgres(options)) = url.parse() else { panic!("a PostgreSQL URL") };
    let options = with_timeouts(&options);
    let options = options.get_options().unwrap();
    assert!(options.contains("statement_timeout=1234") && options.contains("lock_timeout=5000"));
    assert_eq!(options.matches("statement_timeout").count(), 1, "{options}");
}
