//! The world of a test: a control plane, brokers and people.

mod builder;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use secrecy::SecretString;
use url::Url;
use uuid::Uuid;

pub use builder::WorldBuilder;

use crate::api::Api;
use crate::binaries::Binaries;
use crate::broker::Broker;
use crate::control_plane::ControlPlane;
use crate::fault_proxy::FaultProxy;
use crate::kubectl::Kubectl;
use crate::node::Node;
use crate::person::{BrokerAccess, Person};
use crate::postgres::{Database, Postgres};
use crate::process;
use crate::progress::print_message;
use crate::random;
use crate::scratch::Scratch;

/// A control plane with one broker, or several, and people.
///
/// The worlds of one process share the control plane and the PostgreSQL server unless a test asks
/// for its own. Each has its own database, brokers and people, and namespaces differ by user id.
/// Dropping a world ends its own parts. If a test panics, its files stay and the end of the
/// brokers' logs is printed.
#[derive(Debug)]
pub struct World {
    // Fields are in drop order.
    brokers: Vec<Broker>,
    proxy: Option<FaultProxy>,
    node: Option<Node>,
    database: Option<PostgresStore>,
    cluster: Arc<ControlPlane>,
    binaries: Arc<Binaries>,
    tls: bool,
    scratch: Scratch,
}

/// The PostgreSQL database of a world's brokers.
#[derive(Debug)]
struct PostgresStore {
    url: Url,
    /// Dropped with the world; `None` in a kept folder.
    _database: Option<Database>,
    server: Arc<Postgres>,
}

impl World {
    /// Returns a builder for one broker on SQLite with the shared control plane.
    pub fn builder() -> WorldBuilder {
        WorldBuilder::default()
    }

    /// The broker; with replicas the first one, whose URL is the public one.
    pub fn broker(&self) -> &Broker {
        // `WorldBuilder::start` creates at least one.
        &self.brokers[0]
    }

    /// All brokers.
    pub fn brokers(&self) -> &[Broker] {
        &self.brokers
    }

    /// The control plane.
    pub fn cluster(&self) -> &ControlPlane {
        &self.cluster
    }

    /// The proxy between the brokers and the API server.
    ///
    /// # Errors
    /// [`WorldBuilder::fault_proxy`] was not asked for.
    pub fn proxy(&self) -> Result<&FaultProxy> {
        self.proxy.as_ref().context("this world has no fault proxy; ask its builder for one")
    }

    /// The node that pods run on.
    ///
    /// # Errors
    /// [`WorldBuilder::node`] was not asked for.
    pub fn node(&self) -> Result<&Node> {
        self.node.as_ref().context("this world has no node; ask its builder for one")
    }

    /// The PostgreSQL server of the brokers, if they use one.
    ///
    /// # Errors
    /// [`WorldBuilder::postgres`] was not asked for.
    pub fn postgres(&self) -> Result<&Postgres> {
        let store = self.database.as_ref();
        Ok(&store.context("this world is on SQLite; ask its builder for PostgreSQL")?.server)
    }

    /// Returns the URL of the brokers' database: `postgres://…`, or `sqlite://…` of the one broker.
    ///
    /// # Errors
    /// The path cannot be part of a URL.
    pub fn database_url(&self) -> Result<Url> {
        if let Some(store) = &self.database {
            return Ok(store.url.clone());
        }
        let file = self.broker().state_dir().join("broker.db");
        format!("sqlite://{}", file.display()).parse().context("make the database's URL")
    }

    /// The freshly built programs.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// The folder with the brokers' configuration, state and logs, and the people's homes.
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// The CA file that people must trust to reach the broker, if it serves TLS.
    pub fn broker_ca_file(&self) -> Option<PathBuf> {
        self.tls.then(|| self.scratch.path().join("broker-ca.crt"))
    }

    /// Creates an account `NAME@example.com` with a random password, and a machine for its person.
    ///
    /// # Errors
    /// The broker refuses.
    pub async fn person(&self, name: &str) -> Result<Person> {
        self.new_person(name, false).await
    }

    /// Creates the same with the rights of an administrator of the broker.
    ///
    /// # Errors
    /// The broker refuses.
    pub async fn administrator(&self, name: &str) -> Result<Person> {
        self.new_person(name, true).await
    }

    async fn new_person(&self, name: &str, admin: bool) -> Result<Person> {
        let (email, password) = (format!("{name}@example.com"), random::hex(12)?);
        let id = self.broker().create_user(&email, &password, admin).await?;
        self.known_person(&email, password.into(), id)
    }

    /// Creates a machine for a person who has an account already.
    ///
    /// # Errors
    /// The home cannot be created.
    pub fn known_person(&self, email: &str, password: SecretString, id: Uuid) -> Result<Person> {
        let name = email.split('@').next().unwrap_or(email);
        let home = self.scratch.path().join("people").join(name);
        let binaries = Arc::clone(&self.binaries);
        Person::new(email, password, id, self.broker_access()?, home, binaries)
    }

    /// Returns the API of the broker without a session.
    ///
    /// # Errors
    /// The settings name no URL.
    pub fn anonymous_api(&self) -> Result<Api> {
        let access = self.broker_access()?;
        Api::anonymous(&access.url, access.authority.as_ref().map(|(pem, _)| pem.as_str()))
    }

    fn broker_access(&self) -> Result<BrokerAccess> {
        let authority = self
            .broker_ca_file()
            .map(|file| (self.cluster.authority().certificate().to_owned(), file));
        Ok(BrokerAccess { url: self.broker().public_url()?, authority })
    }

    /// Returns a kubectl with the rights of a cluster administrator, for setup and checks.
    ///
    /// # Errors
    /// There is no kubectl.
    pub fn admin_kubectl(&self) -> Result<Kubectl> {
        self.kubectl_with(self.cluster.admin_kubeconfig())
    }

    /// Returns a kubectl with the broker's own identity, past any fault proxy: what an attacker who
    /// stole it could do.
    ///
    /// # Errors
    /// There is no kubectl.
    pub fn broker_kubectl(&self) -> Result<Kubectl> {
        self.kubectl_with(self.cluster.broker_kubeconfig())
    }

    /// Returns a kubectl with another kubeconfig, in a home of its own.
    ///
    /// # Errors
    /// There is no kubectl.
    pub fn kubectl_with(&self, kubeconfig: &Path) -> Result<Kubectl> {
        Kubectl::new(&self.scratch.folder("operator")?, kubeconfig, Some(self.binaries.folder()))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for broker in &self.brokers {
                print_message(&process::log_tail(&broker.log_file(), 25));
            }
            self.cluster.keep_folder();
        }
    }
}
