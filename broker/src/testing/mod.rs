//! Fixtures for unit tests: fresh databases on both engines, an API server, and a log that a test reads.

mod api_server;

use std::{
    io,
    sync::{Arc, Mutex},
};

use integration::postgres::{Database, Postgres};
pub(crate) use integration::{engine::On, on_both_engines};
use tempfile::TempDir;
use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

pub(crate) use self::api_server::{StubApiServer, StubResponse, status};
use crate::{
    base::{
        clock::Clock,
        db::{ConnectionPools, Db, Location},
        reload::Reloader,
        telemetry::Metrics,
    },
    cluster::{Cluster, Clusters},
    config::{Config, Settings},
    on_engine,
    workspace::{self, Workspaces},
};

/// An empty database of its own, deleted with the value.
pub(crate) struct TestDatabase {
    location: Location,
    folder: TempDir,
    _database: Option<Database>,
}

impl TestDatabase {
    pub(crate) async fn new(on: On) -> Self {
        match on {
            On::Sqlite => Self::at_location(None),
            On::Postgres => Self::on_server(&Postgres::shared().await.unwrap()).await,
        }
    }

    /// A database on a server that the test may break.
    pub(crate) async fn on_server(server: &Postgres) -> Self {
        Self::at_location(Some(server.database("storage").await.unwrap()))
    }

    fn at_location(database: Option<Database>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let location = match &database {
            None => Location::Sqlite(folder.path().join("broker.db")),
            Some(database) => database.url().as_str().parse().unwrap(),
        };
        Self { location, folder, _database: database }
    }

    /// Where the database is, for what opens it itself. The file of SQLite may not exist yet.
    pub(crate) fn location(&self) -> &Location {
        &self.location
    }

    /// Connects like another process.
    pub(crate) async fn connect(&self) -> Db {
        Db::connect(&self.location).await.unwrap()
    }

    /// Connects like `tenant-broker serve`, with pools of connections.
    pub(crate) async fn pools(&self) -> ConnectionPools {
        ConnectionPools::connect(&self.location).await.unwrap()
    }
}

/// A migrated database and a manual clock.
pub(crate) struct Storage {
    pub(crate) db: Db,
    pub(crate) clock: Clock,
    // Last field: dropped after the connections.
    pub(crate) database: TestDatabase,
}

impl Storage {
    pub(crate) async fn new(on: On) -> Self {
        Self::at(TestDatabase::new(on).await).await
    }

    pub(crate) async fn at(database: TestDatabase) -> Self {
        let db = database.connect().await;
        db.migrate().await.unwrap();
        let clock = Clock::manual("2026-01-02T03:04:05.678Z".parse().unwrap());
        Self { db, clock, database }
    }

    /// Runs a statement that returns one number.
    pub(crate) async fn number(&self, statement: &'static str) -> i64 {
        on_engine!(self.db.reader(), pool =>
            sqlx::query_scalar(statement).fetch_one(pool).await)
        .unwrap()
    }

    /// Inserts an active user.
    pub(crate) async fn user(&self) -> Uuid {
        let id = self.clock.random_id();
        let mut tx = self.db.begin().await.unwrap();
        on_engine!(tx.connection(), c => sqlx::query(
            "INSERT INTO users (id, email, status, role, created_at) \
             VALUES ($1, $2, 'active', 'user', 0)")
            .bind(id).bind(format!("{id}@example.com")).execute(c).await.map(drop))
        .unwrap();
        tx.commit().await.unwrap();
        id
    }

    /// Inserts a workspace of this user, in a namespace named after its id. It has a tenant of its
    /// own, so that a user may have several.
    pub(crate) async fn workspace(&self, user: Uuid, status: WorkspaceStatus) -> Uuid {
        let id = self.clock.random_id();
        let uid = (status != WorkspaceStatus::Provisioning).then_some(SA_UID);
        let mut tx = self.db.begin().await.unwrap();
        on_engine!(tx.connection(), c => sqlx::query(
            "INSERT INTO tenants (id, created_at) VALUES ($1, $2)")
            .bind(id).bind(self.clock.now_ms()).execute(c).await.map(drop))
        .unwrap();
        on_engine!(tx.connection(), c => sqlx::query(
            "INSERT INTO workspaces (id, tenant_id, user_id, cluster, k8s_namespace, k8s_sa_name, \
               tier, k8s_sa_uid, quota_cpu, quota_memory, status, status_changed_at, created_at) \
             VALUES ($1, $1, $2, 'internal-cluster', $3, 'sa', 'basic', $6, '4', '8Gi', $4, $5, \
               $5)")
            .bind(id).bind(user).bind(id.to_string()).bind(status.as_str())
            .bind(self.clock.now_ms()).bind(uid).execute(c).await.map(drop))
        .unwrap();
        tx.commit().await.unwrap();
        id
    }
}

/// The uid of the ServiceAccount of [`Storage::workspace`], unless it is still provisioning.
pub(crate) const SA_UID: &str = "sa-1";

/// Kubeconfig of a cluster that refuses connections at once.
const UNREACHABLE_KUBECONFIG: &str = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
  "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
  "users": [{"name": "c", "user": {"token": "t"}}],
  "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]}"#;

impl Storage {
    /// A cluster that refuses connections.
    pub(crate) async fn no_cluster(&self) -> Cluster {
        let (config, clock, metrics) = (self.config(), self.clock.clone(), Metrics::default());
        let reloader = Reloader::new(clock.clone(), metrics.clone());
        Cluster::connect(&config.cluster, clock, metrics, &reloader).await.unwrap()
    }

    /// Workspaces on this database, with a cluster that refuses connections.
    pub(crate) async fn workspaces(&self) -> Workspaces {
        let config = self.config();
        Workspaces::new(workspace::Dependencies {
            db: self.db.clone(),
            clock: self.clock.clone(),
            clusters: Clusters::new(self.no_cluster().await),
            tiers: config.tiers,
            init_limit: config.init_limit,
            metrics: Metrics::default(),
            notifier: workspace::notification_channel().0,
        })
    }

    fn config(&self) -> Config {
        let kubeconfig = self.database.folder.path().join("nowhere.kubeconfig");
        std::fs::write(&kubeconfig, UNREACHABLE_KUBECONFIG).unwrap();
        let arguments = [format!("cluster.kubeconfig={}", kubeconfig.display())];
        let settings = Settings::load(None, std::iter::empty(), &arguments).unwrap();
        Config::from_settings(settings).unwrap()
    }
}

/// Runs the futures concurrently, each as a task of its own, and returns their results.
pub(crate) async fn run_concurrently<T: Send + 'static>(
    tasks: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let tasks: tokio::task::JoinSet<T> = tasks.into_iter().collect();
    tasks.join_all().await
}

/// A log that a test reads.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Runs a function, and returns its log lines without their times.
    pub(crate) fn of(run: impl FnOnce()) -> String {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .without_time()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, run);
        log.text()
    }

    /// What was written.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}
