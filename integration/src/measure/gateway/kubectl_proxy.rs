//! `kubectl proxy`, the plainest comparable proxy: no TLS and no authentication of its clients.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use url::Url;

use crate::control_plane::ControlPlane;
use crate::kubectl::Kubectl;
use crate::port;
use crate::probe::{self, Probe};
use crate::process::Process;
use crate::scratch::{private_folder, write_private};

const READY_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_PORT_ATTEMPTS: u32 = 5;

/// The command line of `kubectl proxy`.
#[derive(Clone, Debug)]
pub(super) struct KubectlProxy {
    folder: PathBuf,
    kubectl: Kubectl,
}

/// A running `kubectl proxy`.
#[derive(Debug)]
pub(super) struct Running {
    process: Process,
    pub(super) url: Url,
}

impl KubectlProxy {
    /// Prepares one that connects to the API server with this token.
    pub(super) fn new(cluster: &ControlPlane, token: &str, folder: &Path) -> Result<Self> {
        private_folder(folder)?;
        let kubeconfig = folder.join("kubeconfig");
        let document = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "measured", "cluster": {
                "server": cluster.url().as_str().trim_end_matches('/'),
                "certificate-authority-data": STANDARD.encode(cluster.authority().certificate()),
            }}],
            "users": [{"name": "measured", "user": {"token": token}}],
            "contexts": [{"name": "measured",
                "context": {"cluster": "measured", "user": "measured"}}],
            "current-context": "measured",
        });
        write_private(&kubeconfig, document.to_string())?;
        let kubectl = Kubectl::new(folder, &kubeconfig, None)?;
        Ok(Self { folder: folder.to_owned(), kubectl })
    }

    /// Starts it and waits until it listens.
    pub(super) async fn start(&self) -> Result<Running> {
        for _ in 0..MAX_PORT_ATTEMPTS {
            let port = port::free()?;
            let process = self
                .kubectl
                .command(["proxy", "--port", &port.to_string()])
                .spawn_logged(&self.folder.join("proxy.log"))?;
            let listens = probe::until("kubectl proxy to listen", READY_TIMEOUT, || async {
                process.still_running()?;
                let connected = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
                Ok(match connected {
                    Ok(_) => Probe::Ready(()),
                    Err(error) => Probe::NotYet(error.to_string()),
                })
            });
            let listens = listens.await.with_context(|| process.log_tail(20));
            if listens.is_err() && port::is_taken(&process.log_tail(20)) {
                continue;
            }
            listens?;
            return Ok(Running { process, url: format!("http://127.0.0.1:{port}/").parse()? });
        }
        bail!("every port that was free was taken before kubectl proxy could listen on it")
    }
}

impl Running {
    /// Returns the process id.
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }
}
