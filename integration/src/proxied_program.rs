//! A program in a pod that the API server reaches by the subresource `proxy` of pods.
//!
//! No container runs. The API server dials the addresses of pods through this program, which is its
//! egress proxy (`EgressSelectorConfiguration`) and responds to each request itself, byte for byte
//! as a test defines. It listens on a Unix socket, because the API server dials no pod on loopback.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use crate::kubectl::Kubectl;
use crate::scratch::Scratch;

/// Size limit of a request in bytes.
const MAX_REQUEST_BYTES: usize = 64 * 1024;
/// The address that a pod claims; no server listens there.
const POD_IP: &str = "10.64.0.1";

/// The function that maps a request to its response, both as on the wire. The connection ends after
/// it.
pub type Responder = fn(request: &str) -> Vec<u8>;

/// The program. It serves until the test's runtime ends.
#[derive(Debug)]
pub struct ProxiedProgram {
    config: PathBuf,
}

impl ProxiedProgram {
    /// Starts the program.
    ///
    /// # Errors
    /// Its socket or its configuration cannot be made.
    pub fn start(answer: Responder) -> Result<Self> {
        let files = Scratch::new("egress")?;
        let socket = files.path().join("socket");
        let listener = UnixListener::bind(&socket).context("listen")?;
        let config = json!({
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [{
                "name": "cluster",
                "connection": {
                    "proxyProtocol": "HTTPConnect",
                    // Over TCP the API server accepts no proxy without TLS.
                    "transport": {"uds": {"udsName": socket}},
                },
            }],
        });
        let file = files.path().join("egress.yaml");
        std::fs::write(&file, config.to_string())
            .context("write the configuration of the API server's egress")?;
        tokio::spawn(async move {
            // The socket exists as long as the program listens.
            let _files = files;
            while let Ok((connection, _)) = listener.accept().await {
                // The test handles a client that disconnects.
                tokio::spawn(async move { drop(serve(connection, answer).await) });
            }
        });
        Ok(Self { config: file })
    }

    /// Returns the API server's flag that makes it dial pods through this program.
    pub fn apiserver_flag(&self) -> String {
        format!("--egress-selector-config-file={}", self.config.display())
    }

    /// Creates a pod, in the namespace of the tenant's kubectl, whose port 80 is the program.
    ///
    /// # Errors
    /// kubectl fails.
    pub async fn pod(&self, admin: &Kubectl, namespace: &str, name: &str) -> Result<()> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "main", "image": "registry.k8s.io/pause"}]},
        });
        let create = ["create", "-n", namespace, "-f", "-"];
        admin.run_with_input(create, pod.to_string()).await?.success()?;
        let status: Value = json!({"status": {
            "phase": "Running", "podIP": POD_IP, "podIPs": [{"ip": POD_IP}],
        }});
        let patch = status.to_string();
        let args = ["patch", "-n", namespace, "pod", name, "--subresource=status", "-p", &patch];
        admin.run(args).await?.success()?;
        Ok(())
    }
}

/// Serves one connection: the API server's `CONNECT`, then a request for the pod.
async fn serve(mut connection: UnixStream, answer: Responder) -> Result<()> {
    read_until(&mut connection, Vec::new(), |bytes| bytes.ends_with(b"\r\n\r\n")).await?;
    connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    let head = read_until(&mut connection, Vec::new(), |bytes| bytes.ends_with(b"\r\n\r\n"));
    let mut request = head.await?;
    let head = request.len();
    if String::from_utf8_lossy(&request).to_lowercase().contains("transfer-encoding: chunked") {
        let is_whole = |bytes: &[u8]| {
            let body = String::from_utf8_lossy(&bytes[head..]);
            body.contains("\r\n0\r\n") && body.ends_with("\r\n\r\n")
        };
        request = read_until(&mut connection, request, is_whole).await?;
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    connection.write_all(&answer(&request)).await?;
    connection.shutdown().await?;
    // Closing while bytes of the client are unread would reset the connection.
    let mut rest = [0; 4096];
    while connection.read(&mut rest).await? > 0 {}
    Ok(())
}

/// Reads until the data is complete, and no further.
async fn read_until(
    connection: &mut UnixStream,
    mut bytes: Vec<u8>,
    is_whole: impl Fn(&[u8]) -> bool,
) -> Result<Vec<u8>> {
    while !is_whole(&bytes) {
        ensure!(bytes.len() < MAX_REQUEST_BYTES, "the request is too long");
        bytes.push(connection.read_u8().await?);
    }
    Ok(bytes)
}
