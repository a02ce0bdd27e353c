//! Long-lived streams of a person: a watch, a followed log, a command, a forwarded port.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::kubectl::Kubectl;
use crate::node::{ECHO_PORT, Node};
use crate::process::Captured;

/// Time limit of every step that is no stream.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// One stream of each kind, opened by kubectl in one pod and the namespace of its context.
#[derive(Debug)]
pub struct OpenStreams {
    kubectl: Kubectl,
    watch: Captured,
    logs: Captured,
    exec: Captured,
    forward: Captured,
    connection: TcpStream,
}

/// The end time of each stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamEnds {
    /// `get configmaps -w`.
    pub watch: Instant,
    /// `logs -f`.
    pub logs: Instant,
    /// `exec`.
    pub exec: Instant,
    /// A connection through `port-forward`.
    pub forward: Instant,
}

impl StreamEnds {
    /// Returns all end times with the stream's name.
    pub fn all(&self) -> [(&'static str, Instant); 4] {
        [
            ("watch", self.watch),
            ("logs -f", self.logs),
            ("exec", self.exec),
            ("port-forward", self.forward),
        ]
    }
}

impl OpenStreams {
    /// Opens the streams, and returns when data has come through each. The command of `exec` prints
    /// again after `silent`. `word` is as for [`OpenStreams::still_work`]. All pods of a node have
    /// the same log, so `logs -f` shows the lines of other tests too.
    ///
    /// # Errors
    /// A stream ends, or no data comes through.
    pub async fn open(
        kubectl: &Kubectl,
        node: &Node,
        pod: &str,
        silent: Duration,
        word: &str,
    ) -> Result<Self> {
        let watch = kubectl.spawn(["get", "configmaps", "-w", "-o", "name"])?;
        let logs = kubectl.spawn(["logs", "-f", "--tail=0", pod])?;
        let talk = format!("echo here; sleep {}; echo there; sleep 3600", silent.as_secs());
        let exec = kubectl.spawn(["exec", pod, "--", "sh", "-c", &talk])?;
        let (forward, port) = forward(kubectl, pod, ECHO_PORT).await?;
        let connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .await
            .context("connect to the forwarded port")?;
        exec.until_stdout("exec to say something", STEP_TIMEOUT, |said| said.contains("here"))
            .await?;
        let mut streams = Self { kubectl: kubectl.clone(), watch, logs, exec, forward, connection };
        streams.logs_follow(node).await?;
        streams.still_work(node, word).await?;
        Ok(streams)
    }

    /// `logs --tail=0` omits lines from before it was attached.
    async fn logs_follow(&self, node: &Node) -> Result<()> {
        let start = Instant::now();
        while !self.logs.stdout()?.contains("following") {
            ensure!(
                start.elapsed() < STEP_TIMEOUT,
                "logs -f shows nothing: {}",
                self.logs.stderr()?
            );
            node.log("following")?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Sends new data through each stream. `word` is part of names, so it must be lower case and
    /// new.
    ///
    /// # Errors
    /// A stream has ended, or no data comes through.
    pub async fn still_work(&mut self, node: &Node, word: &str) -> Result<()> {
        let name = format!("seen-{word}");
        self.kubectl.run(["create", "configmap", &name]).await?.success()?;
        self.watch.until_stdout("the watch", STEP_TIMEOUT, |said| said.contains(&name)).await?;
        node.log(word)?;
        self.logs.until_stdout("logs -f", STEP_TIMEOUT, |said| said.contains(word)).await?;
        ensure!(self.exec.process().status().is_none(), "exec ended: {}", self.exec.stderr()?);
        self.connection.write_all(word.as_bytes()).await.context("write to the forwarded port")?;
        let mut back = vec![0; word.len()];
        tokio::time::timeout(STEP_TIMEOUT, self.connection.read_exact(&mut back))
            .await
            .context("nothing comes back through the forwarded port")?
            .context("read from the forwarded port")?;
        ensure!(back == word.as_bytes(), "something else comes back through the forwarded port");
        Ok(())
    }

    /// Waits until the command of `exec` has printed again.
    ///
    /// # Errors
    /// The command ended, or prints nothing.
    pub async fn exec_speaks(&self) -> Result<()> {
        self.exec.until_stdout("exec", STEP_TIMEOUT, |said| said.contains("there")).await?;
        Ok(())
    }

    /// Waits until all streams have ended, at most for `limit`.
    ///
    /// # Errors
    /// A stream is still open.
    pub async fn end(self, limit: Duration) -> Result<StreamEnds> {
        let Self { watch, logs, exec, forward, mut connection, .. } = self;
        let closed = async {
            let mut rest = [0; 64];
            while !matches!(connection.read(&mut rest).await, Ok(0) | Err(_)) {}
            Instant::now()
        };
        let all = async { tokio::join!(ended(&watch), ended(&logs), ended(&exec), closed) };
        let (watch_end, logs_end, exec_end, forward_end) =
            tokio::time::timeout(limit, all).await.with_context(|| {
                let still = [&watch, &logs, &exec, &forward];
                let still: Vec<_> = still.map(|one| one.process().status()).into();
                format!("after {limit:?} not all streams have ended: {still:?}")
            })?;
        Ok(StreamEnds { watch: watch_end, logs: logs_end, exec: exec_end, forward: forward_end })
    }
}

async fn ended(stream: &Captured) -> Instant {
    stream.process().wait().await;
    Instant::now()
}

/// Creates a pod on the node in the namespace of this kubectl's context, and waits until it runs.
///
/// # Errors
/// kubectl fails.
pub async fn make_pod(kubectl: &Kubectl, node: &Node, pod: &str) -> Result<()> {
    let object = node.pod(pod).to_string();
    let made =
        kubectl.run_with_input(["apply", "-o", "json", "-f", "-"], object).await?.success()?;
    let made: Pod = serde_json::from_str(&made.stdout).context("read the pod")?;
    let is_bound = made.spec.is_some_and(|spec| spec.node_name.is_some());
    if !is_bound {
        node.bind(&made.metadata.namespace.unwrap_or_default(), pod).await?;
    }
    let ready = ["wait", "--for=condition=Ready", "--timeout=30s", "pod", pod];
    kubectl.run(ready).await?.success()?;
    Ok(())
}

/// Forwards a free port of loopback to this port of a pod.
///
/// # Errors
/// kubectl ends.
pub async fn forward(kubectl: &Kubectl, pod: &str, port: u16) -> Result<(Captured, u16)> {
    let forward = kubectl.spawn(["port-forward", &format!("pod/{pod}"), &format!(":{port}")])?;
    let said = forward
        .until_stdout("a forwarded port", STEP_TIMEOUT, |said| local(said).is_some())
        .await?;
    let local = local(&said).context("kubectl names no port")?;
    Ok((forward, local))
}

/// Parses the port in `Forwarding from 127.0.0.1:PORT -> 7`.
fn local(said: &str) -> Option<u16> {
    let (_, rest) = said.split_once("127.0.0.1:")?;
    rest.split_whitespace().next()?.parse().ok()
}
