//! Opening of the database.

use std::{
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use secrecy::ExposeSecret as _;
use tokio::runtime::Handle;

use crate::{
    base::{
        clock::Clock,
        db::{ConnectionPools, Db, Location},
        error_chain,
        reload::{FileError, FileSource, Files, Loaded},
        telemetry::Metrics,
    },
    config::Config,
};

/// Offset between this machine's clock and the database's from which on a warning is logged, in
/// milliseconds.
const MAX_CLOCK_OFFSET_MS: i64 = 2_000;

/// Compares this machine's clock with the database's, which all replicas share. Where clocks
/// differ, a replica notices suspensions and sessions of other replicas later.
pub(super) async fn compare_clocks(
    db: &Db,
    clock: &Clock,
    metrics: &Metrics,
) -> anyhow::Result<()> {
    let before = clock.now_ms();
    let Some(theirs) = db.clock_ms().await.context("cannot read the database's clock")? else {
        return Ok(());
    };
    let offset_ms = i64::midpoint(before, clock.now_ms()) - theirs;
    metrics.clock_offset(offset_ms);
    if offset_ms.abs() > MAX_CLOCK_OFFSET_MS {
        tracing::warn!(
            offset_ms,
            "this machine's clock differs from the database's; synchronise both (NTP), because \
             replicas notice each other's suspensions later otherwise"
        );
    }
    Ok(())
}

/// Warns if the broker's PostgreSQL role has attributes that the broker does not need. The broker
/// starts nevertheless, because it works with them.
pub(super) async fn check_role(db: &Db) {
    match db.role().await {
        Ok(Some(role)) if !role.excess_attributes.is_empty() => tracing::warn!(
            database_role = role.name,
            attributes = role.excess_attributes.join(", "),
            "the broker's PostgreSQL role has attributes that the broker does not need; take them \
             away (ALTER ROLE), because a stolen database.url gives them to the thief"
        ),
        Ok(_) => {}
        Err(error) => tracing::warn!(
            error = error_chain(&error),
            "cannot read the attributes of the broker's PostgreSQL role"
        ),
    }
}

/// Opens the database and migrates it to this version.
///
/// # Errors
/// The database does not answer, or its schema is of a later version.
pub async fn open_database(config: &Config) -> anyhow::Result<Db> {
    make_database_folder(config)?;
    let db =
        Db::connect(&config.database).await.with_context(|| config.database.connect_failed())?;
    migrate(&db).await?;
    Ok(db)
}

/// Opens and migrates the database like [`open_database`], with pools of connections.
pub(super) async fn open_pools(config: &Config) -> anyhow::Result<ConnectionPools> {
    make_database_folder(config)?;
    let pools = ConnectionPools::connect(&config.database)
        .await
        .with_context(|| config.database.connect_failed())?;
    migrate(&pools.signed_in).await?;
    Ok(pools)
}

pub(super) fn make_database_folder(config: &Config) -> anyhow::Result<()> {
    if let Location::Sqlite(path) = &config.database
        && let Some(folder) = path.parent()
    {
        private_folder(folder)?;
    }
    Ok(())
}

async fn migrate(db: &Db) -> anyhow::Result<()> {
    db.migrate().await.context("cannot bring the database's tables to this version")
}

/// Creates a folder with mode 0700 unless it exists.
pub(super) fn private_folder(path: &Path) -> anyhow::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("cannot make the folder {} (state_dir)", path.display()))
}

/// The file with the URL of the database. User, password and options of a changed URL are used for
/// new connections; those in use stay until they are half an hour old. The database itself cannot
/// change while the broker runs, because half of its work would be in each of the two.
pub(super) struct DatabaseUrlFile {
    path: PathBuf,
    location: Location,
    pools: ConnectionPools,
}

/// The URL in the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum DatabaseUrlError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file contains something else.
    #[error("{path} is no database URL: {why}", path = path.display())]
    NotAUrl {
        /// Path of the file.
        path: PathBuf,
        /// The expected format.
        why: String,
    },
    /// The URL has another host, port or name.
    #[error(
        "{path} names another database; to move to it, stop all replicas and start them again",
        path = path.display()
    )]
    OtherDatabase {
        /// Path of the file.
        path: PathBuf,
    },
    /// The database refuses connections with it.
    #[error("the database does not accept the URL")]
    Refused(#[source] sqlx::Error),
}

impl DatabaseUrlFile {
    /// The file of this configuration, if it names one.
    pub(super) fn new(config: &Config, pools: &ConnectionPools) -> Option<Self> {
        let path = config.database_url_file.clone()?;
        Some(Self { path, location: config.database.clone(), pools: pools.clone() })
    }
}

impl FileSource for DatabaseUrlFile {
    type Value = Location;
    type Error = DatabaseUrlError;

    const ADVICE: &'static str = "write a URL of the same database with a user and password that it \
                                  accepts into the file (database.url_file); it is read again by \
                                  itself";

    fn load(&self, files: &mut Files) -> Result<Loaded<Location>, DatabaseUrlError> {
        let text = files.read_text(&self.path)?;
        let location: Location = text
            .expose_secret()
            .parse()
            .map_err(|why| DatabaseUrlError::NotAUrl { path: self.path.clone(), why })?;
        if location.is_same_database(&self.location) {
            Ok(Loaded::without_end(location))
        } else {
            Err(DatabaseUrlError::OtherDatabase { path: self.path.clone() })
        }
    }

    fn check(&self, location: &Location) -> Result<(), DatabaseUrlError> {
        Handle::current().block_on(location.try_connect()).map_err(DatabaseUrlError::Refused)
    }

    fn in_use(&self, location: &Location, _replaced: Option<&Location>) {
        self.pools.connect_with(location);
    }
}

#[cfg(test)]
mod tests {
    use integration::postgres::Postgres;
    use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
    use url::Url;

    use super::*;
    use crate::{base::reload::Reloader, config::Settings};

    /// The user of a connection of this pool.
    async fn user_of(db: &Db) -> String {
        let Db::Postgres(pool) = db else { panic!("a PostgreSQL database") };
        sqlx::query_scalar("SELECT CAST(current_user AS TEXT)").fetch_one(pool).await.unwrap()
    }

    #[tokio::test]
    async fn new_connections_use_the_user_and_password_of_a_changed_url() {
        let server = Postgres::shared().await.unwrap();
        let database = server.database("url_file").await.unwrap();
        let [first, second] = ["a", "b"].map(|role| format!("{}_{role}", database.name()));
        let mut admin = PgConnection::connect(database.url().as_str()).await.unwrap();
        for role in [&first, &second] {
            let statement = format!("CREATE ROLE {role} LOGIN PASSWORD '{role}'");
            sqlx::query(AssertSqlSafe(statement)).execute(&mut admin).await.unwrap();
        }
        let url_of = |role: &str| -> Url {
            let mut url = database.url().clone();
            url.set_username(role).unwrap();
            url.set_password(Some(role)).unwrap();
            url
        };

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("database-url");
        let write = |url: &str| std::fs::write(&path, format!("{url}\n")).unwrap();
        write(url_of(&first).as_str());
        let location: Location = url_of(&first).as_str().parse().unwrap();
        let pools = ConnectionPools::connect(&location).await.unwrap();
        let metrics = Metrics::default();
        let reloader = Reloader::new(Clock::system(), metrics.clone());
        let source = DatabaseUrlFile { path: path.clone(), location, pools: pools.clone() };
        reloader.load("database.url_file", source).unwrap();
        let reloads = async |outcome: &str, count: u32| {
            reloader.poll().await;
            reloader.poll().await;
            let labels = format!("{{file=\"database.url_file\",outcome=\"{outcome}\"}}");
            let line = format!("tenant_broker_file_reloads_total{labels} {count}\n");
            assert!(metrics.render().contains(&line), "{}", metrics.render());
        };

        write(url_of("nobody_of_this_name").as_str());
        reloads("refused", 1).await;
        write("postgres");
        reloads("refused", 2).await;
        let mut other = url_of(&second);
        other.set_path("/postgres");
        write(other.as_str());
        reloads("refused", 3).await;
        assert_eq!(user_of(&pools.signed_in).await, first);

        write(url_of(&second).as_str());
        reloads("ok", 1).await;
        // Only this pool has connected before.
        assert_eq!(user_of(&pools.signed_in).await, first);
        assert_eq!(user_of(&pools.authority).await, second);
        assert_eq!(user_of(&pools.unauthenticated).await, second);

        pools.close().await;
        for role in [&first, &second] {
            let statement = format!("DROP ROLE {role}");
            sqlx::query(AssertSqlSafe(statement)).execute(&mut admin).await.unwrap();
        }
    }

    #[tokio::test]
    async fn the_error_of_a_sqlite_database_names_the_file_and_what_to_check() {
        let folder = tempfile::tempdir().unwrap();
        // Nobody can open a folder as a database, root included.
        let path = folder.path().join("broker.db");
        std::fs::create_dir(&path).unwrap();
        let arguments = [format!("state_dir={}", folder.path().display())];
        let settings = Settings::load(None, std::iter::empty(), &arguments).unwrap();
        let config = Config::from_settings(settings).unwrap();
        let pools = open_pools(&config).await.map(drop).unwrap_err();
        let database = open_database(&config).await.map(drop).unwrap_err();
        for error in [pools, database] {
            let text = format!("{error:#}");
            for part in [path.to_str().unwrap(), "owner and mode", "unable to open database file"] {
                assert!(text.contains(part), "{part} is not in: {text}");
            }
        }
    }

    #[test]
    fn another_host_port_or_name_is_another_database() {
        let location = |url: &str| url.parse::<Location>().unwrap();
        let database = location("postgres://a:b@db.example.com:5432/tenants");
        for (url, is_same) in [
            ("postgres://c:d@db.example.com:5432/tenants?sslmode=require", true),
            ("postgres://a:b@db.example.com/tenants", true),
            ("postgres://a:b@db.example.com:5433/tenants", false),
            ("postgres://a:b@other.example.com:5432/tenants", false),
            ("postgres://a:b@db.example.com:5432/others", false),
            ("sqlite:///tenants", false),
        ] {
            assert_eq!(location(url).is_same_database(&database), is_same, "{url}");
        }
        assert!(location("sqlite:///a").is_same_database(&location("sqlite:///a")));
        assert!(!location("sqlite:///a").is_same_database(&location("sqlite:///b")));
    }
}
