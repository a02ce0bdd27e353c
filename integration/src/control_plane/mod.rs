//! A real control plane: etcd, kube-apiserver and kube-controller-manager.

mod etcd;
pub(crate) mod prerequisites;
mod programs;
mod release;
mod shared;
mod start;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::OnceCell;
use url::Url;

pub use programs::{FoundProgram, Programs, SearchPlaces};
pub use release::kubernetes_version;
pub(crate) use release::linker_flags;

use crate::authority::{Authority, Identity};
use crate::process::Process;
use crate::scratch::Scratch;
use crate::{http_client, kubeconfig};

/// The Kubernetes user of the broker: the common name of its certificate.
pub const BROKER_USER: &str = "tenant-broker";

/// Options of a control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlPlaneOptions {
    /// More flags for kube-apiserver, for example `--service-account-max-token-expiration=1h`.
    pub apiserver_flags: Vec<String>,
    /// Users with a token, one a line as kube-apiserver reads them (`--token-auth-file`):
    /// `token,name,uid,"group1,group2"`.
    pub token_users: String,
    /// Runs every controller of Kubernetes, not only those that a workspace needs; start takes 5 s
    /// longer.
    pub every_controller: bool,
    /// Settings that `tenant-broker install` gets with `--set`, as `KEY=VALUE`. The control plane
    /// starts without the objects of `install`; a world applies them.
    pub installed: Vec<String>,
    /// A folder that keeps its state from one start to the next, instead of a temporary one.
    pub folder: Option<PathBuf>,
}

/// A running control plane on loopback, with RBAC on, its roles aggregated, ServiceAccount tokens
/// signed with ES256 and an audit log of level Metadata. It ends when the value is dropped.
#[derive(Debug)]
pub struct ControlPlane {
    // Fields are in drop order.
    controller_manager: Process,
    api_server: Process,
    etcd: Process,
    url: Url,
    authority: Authority,
    broker: Identity,
    admin_kubeconfig: PathBuf,
    broker_kubeconfig: PathBuf,
    /// [`ControlPlaneOptions::installed`].
    pub(crate) install_settings: Vec<String>,
    /// Set once the broker's identity has its rights.
    pub(crate) installed: OnceCell<()>,
    scratch: Scratch,
}

impl ControlPlane {
    /// Finds the programs and starts them; takes about 3 s, and 0.4 GB of memory while it runs.
    ///
    /// # Errors
    /// A program is missing, ends early or does not become ready; the end of its log is in the
    /// message.
    pub async fn start(options: ControlPlaneOptions) -> Result<Self> {
        let programs = Programs::find(&SearchPlaces::from_env()?).await?;
        start::start(&programs, options).await
    }

    /// Returns the control plane that the tests of one process share among those that ask for the
    /// same options; the first caller starts it. The one with the default options ends with the
    /// process, any other when nobody uses it any longer.
    ///
    /// # Errors
    /// As [`ControlPlane::start`]; the next caller tries again.
    pub async fn shared(options: &ControlPlaneOptions) -> Result<Arc<Self>> {
        shared::get(options).await
    }

    /// URL of the API server, `https://127.0.0.1:PORT/`.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Process id of kube-apiserver.
    pub fn api_server_pid(&self) -> u32 {
        self.api_server.pid()
    }

    /// Process id of etcd.
    pub fn etcd_pid(&self) -> u32 {
        self.etcd.pid()
    }

    /// The CA of the control plane.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Kubeconfig of a cluster administrator (group `system:masters`), for setup and checks.
    pub fn admin_kubeconfig(&self) -> &Path {
        &self.admin_kubeconfig
    }

    /// Kubeconfig of the broker's own identity, [`BROKER_USER`] without any group. It has the
    /// rights that `tenant-broker install` granted, and none before that.
    pub fn broker_kubeconfig(&self) -> &Path {
        &self.broker_kubeconfig
    }

    /// The broker's client certificate, for a proxy between the broker and the API server.
    pub fn broker_identity(&self) -> &Identity {
        &self.broker
    }

    /// Writes a kubeconfig for another user, with a client certificate, into `folder`.
    ///
    /// # Errors
    /// The certificate or the file cannot be made.
    pub fn kubeconfig_for(
        &self,
        user: &str,
        group: Option<&str>,
        folder: &Path,
    ) -> Result<PathBuf> {
        let file = folder.join(format!("{user}.kubeconfig"));
        let identity = self.authority.client(user, group)?;
        kubeconfig::write(&file, &self.url, self.authority.certificate(), user, &identity)?;
        Ok(file)
    }

    /// Returns a Kubernetes client with the rights of a cluster administrator.
    ///
    /// # Errors
    /// The kubeconfig cannot be read.
    pub async fn admin(&self) -> Result<kube::Client> {
        client(&self.admin_kubeconfig).await
    }

    /// Returns an HTTP/1.1 client with this client certificate, for requests without the work of a
    /// Kubernetes client.
    ///
    /// # Errors
    /// The identity is no certificate with its key.
    pub fn http_client(&self, identity: &Identity) -> Result<reqwest::Client> {
        let pem = format!("{}{}", identity.certificate, identity.key);
        http_client::builder(Some(self.authority.certificate()))?
            .identity(reqwest::Identity::from_pem(pem.as_bytes())?)
            .http1_only()
            .build()
            .context("build an HTTP client")
    }

    /// Reads the events of the API server's audit log so far whose JSON contains this text: one
    /// `audit.k8s.io/v1` Event for each request that has a response, level Metadata, stages
    /// `ResponseStarted`, `ResponseComplete` and `Panic`. The log has tens of MB, so only these
    /// lines are parsed.
    ///
    /// # Errors
    /// The log cannot be read. A line that is still being written is skipped.
    pub fn audit_events(&self, containing: &str) -> Result<Vec<serde_json::Value>> {
        let path = self.audit_log();
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("read the audit log {}", path.display()))?;
        let lines = text.lines().filter(|line| line.contains(containing));
        Ok(lines.filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// Path of the API server's audit log, one JSON object a line.
    pub fn audit_log(&self) -> PathBuf {
        self.scratch.path().join("audit.log")
    }

    /// The folder with its state and logs.
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Keeps the folder for inspection, because something failed.
    pub fn keep_folder(&self) {
        self.scratch.keep();
    }

    /// The processes, for faults such as SIGSTOP: API server, controller manager, etcd.
    pub fn processes(&self) -> [&Process; 3] {
        [&self.api_server, &self.controller_manager, &self.etcd]
    }
}

/// Returns a Kubernetes client for the current context of a kubeconfig file.
///
/// # Errors
/// The file cannot be read or used.
pub async fn client(kubeconfig: &Path) -> Result<kube::Client> {
    http_client::use_ring();
    let config = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("read {}", kubeconfig.display()))?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("use {}", kubeconfig.display()))?;
    kube::Client::try_from(config).context("make a Kubernetes client")
}
