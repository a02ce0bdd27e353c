//! A simulated node of the cluster, so that pods run and `logs`, `exec`, `attach` and
//! `port-forward` work: KWOK, which simulates the kubelet and its containers.
//!
//! No container is started. A command in a pod runs on this machine; the log of a pod is what
//! [`Node::log`] writes. Three things differ from a real kubelet: the end of standard input never
//! reaches a command of `exec`, an exit code other than 0 is reported as 1, and `attach` only
//! reads.
//!
//! Its port, which the API server calls without authentication, is on loopback but open to every
//! user of the machine while a test runs, and it executes what it receives: as `nobody` if the
//! tests run as root, else as the user who runs the tests.

mod config;
mod program;

use std::fs::{OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::control_plane::{ControlPlane, client};
use crate::machine;
use crate::port;
use crate::probe::{self, Probe};
use crate::process::{Process, Program};
use crate::scratch::{Scratch, private_folder, write_private};

/// A port of every pod that echoes its input.
pub const ECHO_PORT: u16 = 7;
/// A port of every pod that reads to the end and then responds with the number of bytes, as text.
pub const COUNT_PORT: u16 = 9;
/// Flags that the API server needs to find and trust the node.
pub const APISERVER_FLAGS: [&str; 2] =
    ["--kubelet-certificate-authority=ca.crt", "--kubelet-preferred-address-types=InternalIP"];

/// Time limit until the node is ready; it needs a second or two.
const READY_TIMEOUT: Duration = Duration::from_mins(1);
/// Number of attempts with another port.
const MAX_PORT_ATTEMPTS: u32 = 5;

/// Number of nodes that were started, because worlds share a control plane.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// The node. It ends when the value is dropped; its object stays in the control plane.
#[derive(Debug)]
pub struct Node {
    name: String,
    process: Process,
    /// Kubeconfig of an administrator.
    admin: PathBuf,
    log: PathBuf,
    files: Scratch,
}

impl Node {
    /// Creates the node in this control plane, with its files in `folder`, and waits until it is
    /// ready.
    ///
    /// # Errors
    /// KWOK is missing and cannot be built, or it does not start.
    pub async fn start(cluster: &ControlPlane, folder: &Path) -> Result<Self> {
        let program = program::find().await?;
        private_folder(folder)?;
        let serving = cluster.authority().server("kubelet")?;
        write_private(&folder.join("kubelet.crt"), serving.certificate)?;
        write_private(&folder.join("kubelet.key"), serving.key)?;
        let log = folder.join("containers.log");
        std::fs::write(&log, "").context("make the log of the containers")?;
        let account = machine::unprivileged_account()?;
        write_private(&folder.join("kwok.yaml"), config::text(&log, account))?;
        let files = Scratch::new("containers")?;
        let programs = files.path().join("bin");
        std::fs::create_dir(&programs).context("make a folder for containers' programs")?;
        allow(&programs, 0o755)?;
        // Only we can move `bin` away.
        allow(files.path(), 0o1777)?;
        let ours = std::env::var_os("PATH").unwrap_or_default();
        let search = std::iter::once(programs).chain(std::env::split_paths(&ours));
        let search = std::env::join_paths(search).context("the search path of containers")?;
        let admin = cluster.admin_kubeconfig().to_owned();
        let name = format!("node-{}", 1 + STARTED.fetch_add(1, Ordering::Relaxed));
        let nodes: Api<NodeObject> = Api::all(cluster.admin().await?);
        for _ in 0..MAX_PORT_ATTEMPTS {
            let port = port::free()?;
            let process = Program::new(&program)
                .arg("--config=kwok.yaml")
                .arg("--kubeconfig")
                .arg(cluster.admin_kubeconfig())
                .arg(format!("--manage-single-node={name}"))
                .args(["--node-ip=127.0.0.1", &format!("--node-port={port}")])
                .arg(format!("--server-address=127.0.0.1:{port}"))
                // Otherwise controllers consider the node dead.
                .arg("--node-lease-duration-seconds=40")
                .args(["--tls-cert-file=kubelet.crt", "--tls-private-key-file=kubelet.key"])
                .without_env("KUBECONFIG")
                .env("PATH", &search)
                .in_folder(folder)
                .spawn_logged(&folder.join("kwok.log"))?;
            match ready(&name, &process, &nodes, port).await {
                Ok(()) => return Ok(Self { name, process, admin, log, files }),
                Err(_) if process.status().is_some() && port::is_taken(&process.log_tail(20)) => {}
                Err(error) => return Err(error),
            }
        }
        bail!("every port that was free was taken before KWOK could listen on it")
    }

    /// Returns a pod of this name, for `kubectl apply`. It runs once [`Node::bind`] has bound it to
    /// the node, because a tenant's pod may not name its node.
    pub fn pod(&self, name: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "main", "image": "registry.k8s.io/pause"}]},
        })
    }

    /// Binds a pod to the node, as a scheduler does.
    ///
    /// # Errors
    /// The API server refuses, for example because the pod is bound already.
    pub async fn bind(&self, namespace: &str, pod: &str) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(client(&self.admin).await?, namespace);
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.name}});
        let _: Value = pods
            .create_subresource("binding", pod, &PostParams::default(), &binding)
            .await
            .with_context(|| format!("bind the pod {pod} to the node"))?;
        Ok(())
    }

    /// Appends this line to the log of all pods.
    ///
    /// # Errors
    /// The log file cannot be written.
    pub fn log(&self, line: &str) -> Result<()> {
        let mut file =
            OpenOptions::new().append(true).open(&self.log).context("open the containers' log")?;
        // The log format of container runtimes (CRI): time, stream, full line. The time is not
        // read.
        let line = format!("2026-01-01T00:00:00.000000000Z stdout F {line}\n");
        file.write_all(line.as_bytes()).context("write the containers' log")
    }

    /// A folder that commands of `exec` may write to.
    pub fn files(&self) -> &Path {
        self.files.path()
    }

    /// Installs a shell script that commands of `exec` find before any other program of its name.
    ///
    /// # Errors
    /// The script cannot be written.
    pub fn program(&self, name: &str, script: &str) -> Result<()> {
        let file = self.files.path().join("bin").join(name);
        std::fs::write(&file, script).context("write a program of containers")?;
        allow(&file, 0o755)
    }

    /// The process of KWOK.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

/// Grants the account of containers access.
fn allow(path: &Path, mode: u32) -> Result<()> {
    std::fs::set_permissions(path, Permissions::from_mode(mode))
        .with_context(|| format!("let containers use {}", path.display()))
}

/// Waits until the server listens and the node is ready. The Node object is created only once KWOK
/// runs to handle it.
async fn ready(name: &str, process: &Process, nodes: &Api<NodeObject>, port: u16) -> Result<()> {
    probe::until("KWOK to listen", READY_TIMEOUT, || async {
        process.still_running()?;
        Ok(match tokio::net::TcpStream::connect((std::net::Ipv4Addr::LOCALHOST, port)).await {
            Ok(_) => Probe::Ready(()),
            Err(error) => Probe::NotYet(error.to_string()),
        })
    })
    .await
    .with_context(|| process.log_tail(20))?;
    let object = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    match nodes.create(&PostParams::default(), &object).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => return Err(error).context("make the node"),
    }
    probe::until("the node to be ready", READY_TIMEOUT, || async {
        process.still_running()?;
        let status = nodes.get(name).await.context("read the node")?.status.unwrap_or_default();
        let endpoint = status.daemon_endpoints.and_then(|all| all.kubelet_endpoint);
        Ok(if endpoint.is_some_and(|endpoint| endpoint.port == i32::from(port)) {
            Probe::Ready(())
        } else {
            Probe::NotYet("it names no port".to_owned())
        })
    })
    .await
    .with_context(|| process.log_tail(20))
}
