//! Requests to etcd itself, over its socket (the JSON gateway of etcd's gRPC API, v3).

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::UnixStream;

use super::ControlPlane;

/// Name of etcd's socket in the folder of the control plane.
const SOCKET: &str = "etcd:0";
/// Size limit of a response in bytes.
const MAX_BYTES: usize = 1 << 20;

impl ControlPlane {
    /// Raises or disarms the alarm `NOSPACE`. While it is raised etcd refuses writes and allows
    /// deletions, as it does when its quota is used up.
    ///
    /// # Errors
    /// etcd refuses.
    pub async fn etcd_alarm(&self, raised: bool) -> Result<()> {
        let status = self.ask_etcd("/v3/maintenance/status", &json!({})).await?;
        let member = status["header"]["member_id"].clone();
        let action = if raised { "ACTIVATE" } else { "DEACTIVATE" };
        let alarm = json!({"action": action, "memberID": member, "alarm": "NOSPACE"});
        self.ask_etcd("/v3/maintenance/alarm", &alarm).await.map(drop)
    }

    /// Deletes the history of all objects up to now. The API server then answers a watch from an earlier
    /// version with 410, unless it still has the events in its watch cache (`--watch-cache`).
    ///
    /// # Errors
    /// etcd refuses.
    pub async fn compact_etcd(&self) -> Result<()> {
        let status = self.ask_etcd("/v3/maintenance/status", &json!({})).await?;
        let revision = status["header"]["revision"].clone();
        let compaction = json!({"revision": revision, "physical": true});
        self.ask_etcd("/v3/kv/compaction", &compaction).await.map(drop)
    }

    async fn ask_etcd(&self, path: &str, body: &Value) -> Result<Value> {
        let socket = self.folder().join(SOCKET);
        let stream = UnixStream::connect(&socket).await.context("connect to etcd")?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let request = http::Request::post(path)
            .header(http::header::HOST, "etcd")
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::new(hyper::body::Bytes::from(body.to_string())))?;
        let answer = async {
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_BYTES).collect().await;
            let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
            ensure!(
                status.is_success(),
                "etcd answers {status}: {}",
                String::from_utf8_lossy(&body)
            );
            serde_json::from_slice(&body).context("read etcd's answer")
        };
        tokio::select! {
            answer = answer => answer,
            ended = connection => {
                ended?;
                anyhow::bail!("etcd closed the connection")
            }
        }
    }
}
