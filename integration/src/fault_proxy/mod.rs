//! A reverse proxy between the broker and the API server that fails on demand.
//!
//! It ends TLS with a certificate of the control plane's own CA and speaks to the API server as the
//! broker, so the broker notices nothing but the faults. Which request fails is decided by what the
//! request is and by counting, never by time. Every request opens a connection of its own upstream:
//! slower than a pool, and no request can change what happens to another. Upgrades (exec, attach,
//! port-forward) are not passed on.

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
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use url::Url;

pub use rule::{Fault, Rule, Seen};

use crate::control_plane::{BROKER_USER, ControlPlane};
use crate::kubeconfig;
use forward::Upstream;

/// The proxy. It runs on the runtime that it was started on and ends when it is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    url: Url,
    kubeconfig: PathBuf,
    shared: Arc<Shared>,
    /// The task that accepts connections and owns them; none while the proxy is down.
    serving: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

/// What every connection needs.
struct Shared {
    acceptor: TlsAcceptor,
    upstream: Upstream,
    rules: Mutex<Vec<Arc<Rule>>>,
    seen: Mutex<Vec<Seen>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl FaultProxy {
    /// A proxy in front of this control plane, without faults yet. The kubeconfig that leads the
    /// broker through it is written into `folder`.
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
        });
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("find a free port")?;
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

    /// Its address, `https://127.0.0.1:PORT/`.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The broker's kubeconfig, with this proxy as the server.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Adds a rule. Every rule that fires on a request has its effect, in the order of adding, up
    /// to the first that ends the request. The rule that comes back tells how often it fired.
    pub fn add(&self, rule: Rule) -> Arc<Rule> {
        let rule = Arc::new(rule);
        lock(&self.shared.rules).push(Arc::clone(&rule));
        rule
    }

    /// Takes all rules away.
    pub fn clear(&self) {
        lock(&self.shared.rules).clear();
    }

    /// All requests so far, the first one first, those included that never went upstream.
    pub fn requests(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }

    /// How many requests so far satisfy this.
    pub fn count(&self, when: impl Fn(&Seen) -> bool) -> usize {
        lock(&self.shared.seen).iter().filter(|seen| when(seen)).count()
    }

    /// Refuses connections and cuts the open ones, as a server does that is gone.
    pub async fn down(&self) {
        if let Some(serving) = self.serving.lock().await.take() {
            serving.abort();
            // It has closed its port and connections when it has ended; it ends by being aborted.
            let _ = serving.await;
        }
    }

    /// Comes back on the same port after [`FaultProxy::down`].
    ///
    /// # Errors
    /// Somebody took the port meanwhile.
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
    /// Writes the request down and says which rules fire on it.
    fn note<B>(&self, request: &hyper::Request<B>) -> (Seen, Vec<Arc<Rule>>) {
        let mut all = lock(&self.seen);
        let seen = Seen::new(all.len() + 1, request);
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
        let Ok((stream, _)) = listener.accept().await else { continue };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            // A client that breaks off is its own affair; a cut of ours ends here as well.
            let Ok(stream) = shared.acceptor.accept(stream).await else { return };
            let service = service_fn(|request| forward::handle(Arc::clone(&shared), request));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
