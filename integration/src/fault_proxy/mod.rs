//! A reverse proxy between the broker and the API server that injects faults on demand.
//!
//! It terminates TLS with a certificate of the control plane's own CA and authenticates to the API
//! server as the broker, so the broker notices nothing but the faults. The request's properties and
//! a count decide which request fails, never the time. Every request opens a connection of its own
//! upstream: this is slower than a pool, but no request can affect another one. Upgrades (exec,
//! attach, port-forward) are not forwarded.

mod forward;
mod rule;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use url::Url;

pub use rule::{Fault, RecordedRequest, Rule};

use crate::control_plane::{BROKER_USER, ControlPlane};
use crate::{kubeconfig, port};
use forward::Upstream;
pub(crate) use forward::acceptor;

/// The proxy. It runs on the runtime that it was started on and ends when it is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    url: Url,
    kubeconfig: PathBuf,
    shared: Arc<Shared>,
    /// The task that accepts connections and owns them; `None` while the proxy is down.
    serving: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

/// The state that all connections share.
struct Shared {
    acceptor: TlsAcceptor,
    upstream: Upstream,
    rules: Mutex<Vec<Arc<Rule>>>,
    seen: Mutex<Vec<RecordedRequest>>,
    cut: Notify,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl FaultProxy {
    /// Starts a proxy in front of this control plane, without faults. Writes the kubeconfig that
    /// leads the broker through it into `folder`.
    ///
    /// # Errors
    /// No port is free, or the certificate or the kubeconfig cannot be made.
    pub async fn start(cluster: &ControlPlane, folder: &Path) -> Result<Self> {
        let authority = cluster.authority();
        let shared = Arc::new(Shared {
            acceptor: forward::acceptor(&authority.server("fault-proxy")?)?,
            upstream: Upstream::new(
                cluster.url(),
                authority.certificate(),
                cluster.broker_identity(),
            )?,
            rules: Mutex::default(),
            seen: Mutex::default(),
            cut: Notify::new(),
        });
        // It listens on the same port again after it was down.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port::free()?)).await;
        let listener = listener.context("listen on a free port")?;
        let address = listener.local_addr().context("read the proxy's address")?;
        let url: Url = format!("https://{address}/").parse().context("make the proxy's URL")?;
        let kubeconfig = folder.join("fault-proxy.kubeconfig");
        kubeconfig::write(
            &kubeconfig,
            &url,
            authority.certificate(),
            BROKER_USER,
            cluster.broker_identity(),
        )?;
        let serving = tokio::spawn(serve(listener, Arc::clone(&shared)));
        let serving = tokio::sync::Mutex::new(Some(serving));
        Ok(Self { address, url, kubeconfig, shared, serving })
    }

    /// URL of the proxy, `https://127.0.0.1:PORT/`.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The broker's kubeconfig, with this proxy as the server.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Adds a rule. Every rule that fires on a request has its effect, in the order in which they
    /// were added, up to the first that ends the request. The returned rule tells how often it
    /// fired.
    pub fn add(&self, rule: Rule) -> Arc<Rule> {
        let rule = Arc::new(rule);
        lock(&self.shared.rules).push(Arc::clone(&rule));
        rule
    }

    /// Removes all rules.
    pub fn clear(&self) {
        lock(&self.shared.rules).clear();
    }

    /// Returns all requests so far, oldest first, including those that never went upstream.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        lock(&self.shared.seen).clone()
    }

    /// Counts the requests so far that satisfy this condition.
    pub fn count(&self, when: impl Fn(&RecordedRequest) -> bool) -> usize {
        lock(&self.shared.seen).iter().filter(|seen| when(seen)).count()
    }

    /// Cuts the open connections soon, as a network that loses them. Clients can connect again at
    /// any time.
    pub fn cut(&self) {
        self.shared.cut.notify_one();
    }

    /// Refuses connections and cuts the open ones, as a server that is gone.
    pub async fn down(&self) {
        if let Some(serving) = self.serving.lock().await.take() {
            serving.abort();
            // The aborted task has closed its port and connections once it has ended.
            let _ = serving.await;
        }
    }

    /// Listens again on the same port after [`FaultProxy::down`].
    ///
    /// # Errors
    /// Another process took the port meanwhile.
    pub async fn up(&self) -> Result<()> {
        let mut serving = self.serving.lock().await;
        if serving.is_none() {
            let listener = TcpListener::bind(self.address)
                .await
                .with_context(|| format!("listen on {} again", self.address))?;
            *serving = Some(tokio::spawn(serve(listener, Arc::clone(&self.shared))));
        }
        Ok(())
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        if let Some(serving) = self.serving.get_mut() {
            serving.abort();
        }
    }
}

impl Shared {
    /// Records the request and returns the rules that fire on it.
    fn record<B>(&self, request: &hyper::Request<B>) -> (RecordedRequest, Vec<Arc<Rule>>) {
        let mut all = lock(&self.seen);
        let seen = RecordedRequest::new(all.len() + 1, request);
        all.push(seen.clone());
        drop(all);
        let rules = lock(&self.rules).iter().filter(|rule| rule.fires(&seen)).cloned().collect();
        (seen, rules)
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shared.cut.notified() => {
                connections.abort_all();
                continue;
            }
        };
        let Ok((stream, _)) = accepted else { continue };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            // A client that disconnects needs no error; a cut ends here as well.
            let Ok(stream) = shared.acceptor.accept(stream).await else { return };
            let service = service_fn(|request| forward::handle(Arc::clone(&shared), request));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
