//! The options and the start of a world.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use url::Url;

use super::{PostgresStore, World};
use crate::authority;
use crate::binaries::{Binaries, Profile};
use crate::broker::{self, Broker, Settings};
use crate::control_plane::{BROKER_USER, ControlPlane, ControlPlaneOptions, prerequisites};
use crate::fault_proxy::FaultProxy;
use crate::kubectl::Kubectl;
use crate::machine;
use crate::node::{self, Node};
use crate::postgres::Postgres;
use crate::scratch::{Scratch, write_private};

/// The options of a world.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is one thing that a test may ask for")]
pub struct WorldBuilder {
    postgres: bool,
    replicas: usize,
    own: bool,
    control_plane: ControlPlaneOptions,
    fault_proxy: bool,
    tls: bool,
    node: bool,
    settings: Settings,
    profile: Profile,
    broker_program: Option<PathBuf>,
    replica_programs: Vec<PathBuf>,
    port: Option<u16>,
    folder: Option<PathBuf>,
    steps: fn(&str),
}

impl Default for WorldBuilder {
    fn default() -> Self {
        let mut settings = Settings::default();
        // The most verbose level, so that tests can search everything that the broker could log.
        settings.set("log.level", "trace");
        Self {
            postgres: false,
            replicas: 1,
            own: false,
            control_plane: ControlPlaneOptions::default(),
            fault_proxy: false,
            tls: false,
            node: false,
            settings,
            profile: Profile::own(),
            broker_program: None,
            replica_programs: Vec::new(),
            port: None,
            folder: None,
            steps: |_| {},
        }
    }
}

impl WorldBuilder {
    /// Stores the broker's data in a fresh PostgreSQL database instead of SQLite.
    #[must_use]
    pub fn postgres(mut self) -> Self {
        self.postgres = true;
        self
    }

    /// Runs this many brokers on one database, which must then be PostgreSQL. Each listens on ports
    /// of its own; all share the public URL of the first one.
    #[must_use]
    pub fn replicas(mut self, count: usize) -> Self {
        self.replicas = count;
        self
    }

    /// Shares nothing with other worlds of this process; everything ends with this one.
    #[must_use]
    pub fn own_control_plane(mut self) -> Self {
        self.own = true;
        self
    }

    /// Adds a flag to the API server, in a control plane that only worlds with the same options
    /// share.
    #[must_use]
    pub fn apiserver_flag(mut self, flag: impl Into<String>) -> Self {
        self.control_plane.apiserver_flags.push(flag.into());
        self
    }

    /// Adds users with a token, one a line: `token,name,uid,"group1,group2"`, in a control plane that
    /// only worlds with the same options share.
    #[must_use]
    pub fn token_users(mut self, lines: impl Into<String>) -> Self {
        self.control_plane.token_users = lines.into();
        self
    }

    /// Runs every controller of Kubernetes, not only those that a workspace needs, in a control
    /// plane that only worlds with the same options share.
    #[must_use]
    pub fn every_controller(mut self) -> Self {
        self.control_plane.every_controller = true;
        self
    }

    /// Puts a fault proxy between the brokers and the API server; people still connect to the API
    /// server itself.
    #[must_use]
    pub fn fault_proxy(mut self) -> Self {
        self.fault_proxy = true;
        self
    }

    /// Binds every token to a Secret of its own, and grants the broker the right to create these,
    /// in a control plane that only worlds with the same options share.
    #[must_use]
    pub fn bind_tokens(self) -> Self {
        self.installed("cluster.bind_tokens_to_secrets", true)
    }

    /// Sets a key of all brokers that `tenant-broker install` needs as well, in a control plane
    /// that only worlds with the same options share.
    #[must_use]
    pub fn installed(mut self, key: &str, value: impl Into<toml::Value>) -> Self {
        let value = value.into();
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        self.control_plane.installed.push(format!("{key}={text}"));
        self.setting(key, value)
    }

    /// Serves the broker over TLS, with a certificate of the control plane's CA.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Adds a node, so that pods run and `logs`, `exec`, `attach` and `port-forward` work, in a
    /// control plane that only worlds with the same options share.
    #[must_use]
    pub fn node(mut self) -> Self {
        self.node = true;
        node::APISERVER_FLAGS.into_iter().fold(self, Self::apiserver_flag)
    }

    /// Sets a key of all brokers by its dotted name, for example `limits.init_per_hour`. By default
    /// their log level is `trace`.
    #[must_use]
    pub fn setting(mut self, key: &str, value: impl Into<toml::Value>) -> Self {
        self.settings.set(key, value);
        self
    }

    /// Sets the cargo profile of the programs; by default the harness's own.
    #[must_use]
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// Runs this program as the broker, not the workspace's. Nothing is shared then.
    #[must_use]
    pub fn broker_program(mut self, program: Option<PathBuf>) -> Self {
        self.own |= program.is_some();
        self.broker_program = program;
        self
    }

    /// Adds a replica for each of these programs, which have to be of the same release. They share a
    /// PostgreSQL database with the first broker.
    #[must_use]
    pub fn replica_programs(mut self, programs: &[PathBuf]) -> Self {
        if !programs.is_empty() {
            self.own = true;
            self.postgres = true;
            self.replicas = 1 + programs.len();
            self.replica_programs = programs.to_vec();
        }
        self
    }

    /// Sets the port of the first broker's API, instead of a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Keeps all state in this folder, and continues from the state that it has. Nothing is shared
    /// then.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self.own = true;
        self
    }

    /// Sets a callback for progress lines, for a person who waits.
    #[must_use]
    pub fn steps(mut self, steps: fn(&str)) -> Self {
        self.steps = steps;
        self
    }

    /// Starts everything and waits until it is ready.
    ///
    /// # Errors
    /// A program is missing, or a part does not start; the message says which and why.
    pub async fn start(self) -> Result<World> {
        ensure!(self.replicas > 0, "a world needs at least one broker");
        ensure!(
            self.postgres || self.replicas == 1,
            "replicas share a database, which only PostgreSQL can be; add --postgres"
        );
        let scratch = match &self.folder {
            Some(folder) => Scratch::kept(folder)?,
            None => Scratch::new("world")?,
        };
        // Before a first build that takes minutes.
        machine::find("kubectl").context(prerequisites::NO_KUBECTL)?;
        if let Some(fault) = self.port.and_then(prerequisites::port_fault) {
            bail!("{fault}");
        }
        (self.steps)("building tenant-broker and kubectl-tenant, starting the control plane");
        let (binaries, cluster, database) = tokio::try_join!(
            self.binaries(scratch.path()),
            self.cluster(scratch.path()),
            self.store(scratch.path())
        )?;
        (self.steps)("giving the broker its rights");
        let admin = Kubectl::new(&scratch.folder("operator")?, cluster.admin_kubeconfig(), None)?;
        let broker = Kubectl::new(&scratch.folder("operator")?, cluster.broker_kubeconfig(), None)?;
        cluster.install(&binaries.tenant_broker(), &admin, &broker).await?;
        let proxy = if self.fault_proxy {
            Some(FaultProxy::start(&cluster, scratch.path()).await?)
        } else {
            None
        };
        let node = if self.node {
            (self.steps)("starting a node");
            Some(Node::start(&cluster, &scratch.path().join("node")).await?)
        } else {
            None
        };
        let mut world = World {
            brokers: Vec::new(),
            proxy,
            node,
            database,
            cluster,
            binaries,
            tls: self.tls,
            scratch,
        };
        let settings = self.common_settings(&world)?;
        for number in 1..=self.replicas {
            (self.steps)(&match self.replicas {
                1 => "starting the broker".to_owned(),
                all => format!("starting broker {number} of {all}"),
            });
            let broker = self.broker(&world, number, settings.clone())?;
            broker.start().await?;
            world.brokers.push(broker);
        }
        Ok(world)
    }

    async fn binaries(&self, folder: &Path) -> Result<Arc<Binaries>> {
        let is_kept = self.folder.is_some();
        if !is_kept && self.broker_program.is_none() && self.profile == Profile::own() {
            return Binaries::shared().await;
        }
        let (folder, broker) = (folder.join("bin"), self.broker_program.as_deref());
        Binaries::build(self.profile, Some(&folder), broker).await.map(Arc::new)
    }

    async fn cluster(&self, folder: &Path) -> Result<Arc<ControlPlane>> {
        let mut options = self.control_plane.clone();
        if !self.own {
            return ControlPlane::shared(&options).await;
        }
        options.folder = Some(folder.join("control-plane"));
        ControlPlane::start(options).await.map(Arc::new)
    }

    async fn store(&self, folder: &Path) -> Result<Option<PostgresStore>> {
        if !self.postgres {
            return Ok(None);
        }
        if self.folder.is_some() {
            let server = Arc::new(Postgres::start_in(&folder.join("postgres")).await?);
            let url = server.kept_database("tenant_broker").await?;
            return Ok(Some(PostgresStore { url, _database: None, server }));
        }
        let server =
            if self.own { Arc::new(Postgres::start().await?) } else { Postgres::shared().await? };
        let database = server.database("tenant_broker").await?;
        Ok(Some(PostgresStore { url: database.url().clone(), _database: Some(database), server }))
    }

    /// Returns the settings that all brokers share.
    fn common_settings(&self, world: &World) -> Result<Settings> {
        let mut settings = self.settings.clone();
        let folder = world.scratch.path();
        let text = |path: &Path| path.display().to_string();
        let kubeconfig = match &world.proxy {
            Some(proxy) => proxy.kubeconfig(),
            None => world.cluster.broker_kubeconfig(),
        };
        settings.set("cluster.kubeconfig", text(kubeconfig));
        settings.set("cluster.server", as_setting(world.cluster.url()));
        if let Some(store) = &world.database {
            settings.set("database.url", store.url.as_str());
            let key = folder.join("issuer-key.pem");
            if !key.exists() {
                write_private(&key, authority::signing_key()?.0)?;
            }
            settings.set("issuer.signing_key_files", text(&key));
        }
        if let Some(ca_file) = world.broker_ca_file() {
            let authority = world.cluster.authority();
            let identity = authority.server("tenant-broker")?;
            let (certificate, key) = (folder.join("broker.crt"), folder.join("broker.key"));
            write_private(&certificate, identity.certificate)?;
            write_private(&key, identity.key)?;
            write_private(&ca_file, authority.certificate())?;
            settings.set("tls.cert_file", text(&certificate));
            settings.set("tls.key_file", text(&key));
        }
        Ok(settings)
    }

    fn broker(&self, world: &World, number: usize, mut settings: Settings) -> Result<Broker> {
        let port = self.port.filter(|_| number == 1);
        if let Some(first) = world.brokers.first()
            && settings.text("public_url").is_none()
        {
            settings.set("public_url", as_setting(&first.public_url()?));
        }
        let name = format!("broker-{number}");
        let folder = world.scratch.folder(&name)?;
        let program = self
            .replica_programs
            .get(number.wrapping_sub(2))
            .cloned()
            .unwrap_or_else(|| world.binaries.tenant_broker());
        Broker::new(program, folder, &name, settings, port)
    }
}

/// Formats a URL as people write it: without the slash that [`Url`] appends.
fn as_setting(url: &Url) -> String {
    url.as_str().trim_end_matches('/').to_owned()
}

impl ControlPlane {
    /// Grants the broker's identity its rights, once for each control plane.
    async fn install(&self, program: &Path, admin: &Kubectl, broker: &Kubectl) -> Result<()> {
        self.installed
            .get_or_try_init(|| {
                broker::install(program, BROKER_USER, &self.install_settings, admin, broker)
            })
            .await
            .context("give the broker its rights in the cluster")?;
        Ok(())
    }
}
