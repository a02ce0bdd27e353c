//! A real PostgreSQL server, with full durability.

mod programs;
mod server;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::OnceCell;
use url::Url;

use server::Server;

use crate::random;

/// Environment variable with the URL of a server to use instead of starting one, for example
/// `postgres://user:password@127.0.0.1:5432/postgres`. The user must be allowed to create
/// databases.
pub const URL_ENV: &str = "TENANT_TEST_POSTGRES_URL";

/// Time limit of one statement of the harness.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// A PostgreSQL server. A server that we started ends when the value is dropped.
#[derive(Debug)]
pub struct Postgres {
    url: Url,
    server: Option<Server>,
}

impl Postgres {
    /// Returns the server that [`URL_ENV`] names; else starts one from the programs of the machine
    /// (on `PATH`, or where Debian installs them); else one whose programs are downloaded from
    /// Maven Central and kept in our cache. Takes 1 to 2 s.
    ///
    /// # Errors
    /// No programs are available, or the server does not start.
    pub async fn start() -> Result<Self> {
        match std::env::var(URL_ENV) {
            Ok(url) => {
                let url = url.parse().with_context(|| format!("{URL_ENV} is no URL"))?;
                Ok(Self { url, server: None })
            }
            Err(_) => Self::started(Server::start(None).await?),
        }
    }

    /// As [`Postgres::start`], but a server that is started keeps its data in this folder.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub async fn start_in(folder: &Path) -> Result<Self> {
        if std::env::var_os(URL_ENV).is_some() {
            return Self::start().await;
        }
        Self::started(Server::start(Some(folder)).await?)
    }

    /// Returns the server that the tests of one process share. It ends with the process.
    ///
    /// # Errors
    /// As [`Postgres::start`]; the next caller tries again.
    pub async fn shared() -> Result<Arc<Self>> {
        static SHARED: OnceCell<Arc<Postgres>> = OnceCell::const_new();
        SHARED.get_or_try_init(|| async { Self::start().await.map(Arc::new) }).await.cloned()
    }

    fn started(server: Server) -> Result<Self> {
        Ok(Self { url: server.url()?, server: Some(server) })
    }

    /// Creates an empty database for one caller. Its name starts with `name` (lower-case letters,
    /// digits and underscores).
    ///
    /// # Errors
    /// The server refuses.
    pub async fn database(&self, name: &str) -> Result<Database> {
        let name = format!("{}_{}", checked(name)?, random::hex(6)?);
        self.execute(format!("CREATE DATABASE {name}")).await?;
        Ok(Database {
            url: self.url_of(&name),
            name,
            // On our own server the database ends with the server.
            foreign_server: self.server.is_none().then(|| self.url.clone()),
        })
    }

    /// Returns the URL of the database of exactly this name, and creates it if it is missing.
    ///
    /// # Errors
    /// The server refuses.
    pub async fn kept_database(&self, name: &str) -> Result<Url> {
        let name = checked(name)?;
        let url = self.url_of(name);
        if PgConnection::connect(url.as_str()).await.is_err() {
            self.execute(format!("CREATE DATABASE {name}")).await?;
        }
        Ok(url)
    }

    /// Kills the server, as a crash of the machine would, except for its disks.
    ///
    /// # Errors
    /// The server is not one that we started.
    pub async fn kill(&self) -> Result<()> {
        self.own_server()?.kill().await;
        Ok(())
    }

    /// Starts the server again on the same port and data, after [`Postgres::kill`].
    ///
    /// # Errors
    /// The server is not one that we started, or it does not start.
    pub async fn restart(&self) -> Result<()> {
        self.own_server()?.restart().await
    }

    /// Path of the log, if we started the server.
    pub fn log(&self) -> Option<PathBuf> {
        self.server.as_ref().map(Server::log)
    }

    fn own_server(&self) -> Result<&Server> {
        self.server.as_ref().with_context(|| {
            format!("{URL_ENV} names a server that is not ours to stop; unset it for this test")
        })
    }

    fn url_of(&self, database: &str) -> Url {
        let mut url = self.url.clone();
        url.set_path(database);
        url
    }

    async fn execute(&self, statement: String) -> Result<()> {
        execute(&self.url, statement).await
    }
}

/// A database for one test.
#[derive(Debug)]
pub struct Database {
    url: Url,
    name: String,
    foreign_server: Option<Url>,
}

impl Database {
    /// URL of the database, with user and password.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Name of the database.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let Some(server) = self.foreign_server.take() else { return };
        let statement = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        // A destructor cannot await, and the runtime of the test may be ending, so a thread does
        // it.
        let thread = std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .context("start a runtime")?
                .block_on(execute(&server, statement))
        });
        if !matches!(thread.join(), Ok(Ok(()))) {
            crate::progress::print_message(&format!(
                "the database {} could not be dropped",
                self.name
            ));
        }
    }
}

async fn execute(server: &Url, statement: String) -> Result<()> {
    let work = async {
        let mut connection = PgConnection::connect(server.as_str()).await?;
        sqlx::query(AssertSqlSafe(statement.clone())).execute(&mut connection).await?;
        connection.close().await
    };
    tokio::time::timeout(STATEMENT_TIMEOUT, work)
        .await
        .with_context(|| format!("{statement}: no answer within {STATEMENT_TIMEOUT:?}"))?
        .with_context(|| statement.clone())
}

/// Returns the name if it needs no quoting in a statement.
fn checked(name: &str) -> Result<&str> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(plain) {
        return Ok(name);
    }
    bail!("{name:?} cannot be part of a database name; use lower-case letters, digits and _")
}
