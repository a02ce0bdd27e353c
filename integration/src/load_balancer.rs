//! A load balancer of TCP connections in front of replicas: in turn, and at another replica if one
//! refuses the connection. It retries nothing else, so a request that a replica does not answer
//! fails at the client.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::broker::Broker;

/// A listening load balancer. It ends with the value, and its connections with it.
#[derive(Debug)]
pub struct LoadBalancer {
    port: u16,
    replicas: Arc<Mutex<Vec<SocketAddr>>>,
    redirected: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl LoadBalancer {
    /// Listens on a free port of 127.0.0.1. It closes connections until it has replicas.
    ///
    /// # Errors
    /// The system has no free port.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.context("find a port for the load balancer")?;
        let port = listener.local_addr().context("find a port for the load balancer")?.port();
        let (replicas, redirected) = (Arc::<Mutex<Vec<SocketAddr>>>::default(), Arc::default());
        let task = tokio::spawn(run(listener, Arc::clone(&replicas), Arc::clone(&redirected)));
        Ok(Self { port, replicas, redirected, task })
    }

    /// The port that clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Number of connections that went to another replica, because one refused them.
    pub fn redirected(&self) -> usize {
        self.redirected.load(Ordering::Relaxed)
    }

    /// Forwards connections to these brokers from now on.
    ///
    /// # Errors
    /// A broker has no address.
    pub fn forward_to(&self, brokers: &[Broker]) -> Result<()> {
        let mut addresses = Vec::new();
        for broker in brokers {
            let port = broker.url()?.port().context("a broker without a port")?;
            addresses.push(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        }
        *self.replicas.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
        Ok(())
    }
}

impl Drop for LoadBalancer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(
    listener: TcpListener,
    replicas: Arc<Mutex<Vec<SocketAddr>>>,
    redirected: Arc<AtomicUsize>,
) {
    let mut connections = JoinSet::new();
    let mut turn = 0;
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let mut order = replicas.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !order.is_empty() {
            let first = turn % order.len();
            order.rotate_left(first);
        }
        turn += 1;
        connections.spawn(forward(client, order, Arc::clone(&redirected)));
    }
}

/// Connects the client to the first replica that accepts, until either end closes.
async fn forward(mut client: TcpStream, order: Vec<SocketAddr>, redirected: Arc<AtomicUsize>) {
    for (index, replica) in order.into_iter().enumerate() {
        let Ok(mut server) = TcpStream::connect(replica).await else { continue };
        if index > 0 {
            redirected.fetch_add(1, Ordering::Relaxed);
        }
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        let _ = copy_bidirectional(&mut client, &mut server).await;
        return;
    }
}
