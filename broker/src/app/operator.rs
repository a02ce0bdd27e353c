//! The listener for operators: health and metrics.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use poem::{
    Endpoint, EndpointExt as _, IntoResponse as _, Response, Route, Server, get, handler,
    http::StatusCode, listener::TcpAcceptor, web::Data,
};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

use crate::{
    base::{db::ConnectionPools, error_chain, telemetry::Metrics},
    gateway::Gateway,
};

/// How long a scrape waits for the database. It is shorter than Prometheus waits for a scrape (10
/// seconds by default), so that an outage of the database is not an outage of the metrics.
const SCRAPE_PING_TIMEOUT: Duration = Duration::from_secs(2);

/// The parts of the broker that the endpoints read.
#[derive(Clone, Debug)]
pub(super) struct OperatorState {
    /// Readiness requires that the database answers signed-in users.
    pub pools: ConnectionPools,
    /// Whether the broker is stopping.
    pub draining: Arc<AtomicBool>,
    /// Requests in flight.
    pub gateway: Gateway,
    /// The metrics of all parts.
    pub metrics: Metrics,
}

impl OperatorState {
    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Sets the gauges that are read at a scrape.
    async fn record_gauges(&self) {
        let started_at = Instant::now();
        let ping = tokio::time::timeout(SCRAPE_PING_TIMEOUT, self.pools.signed_in.ping()).await;
        let answered = matches!(ping, Ok(Ok(())));
        self.metrics.set_database_ping(answered, started_at.elapsed().as_secs_f64());
        self.metrics.set_ready(answered && !self.is_draining());
        for pool in self.pools.usage() {
            self.metrics.set_database_connections(pool.name, [pool.idle, pool.used], pool.limit);
        }
        self.gateway.record_gauges();
    }
}

/// How long requests in flight may take when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The server of the endpoints for operators. It stops after the broker's own server, so that
/// `/readyz` answers during the shutdown.
#[derive(Debug)]
pub(super) struct OperatorServer {
    stop: oneshot::Sender<()>,
    task: JoinHandle<io::Result<()>>,
}

impl OperatorServer {
    /// Serves on this listener.
    ///
    /// # Errors
    /// The listener cannot be registered with the runtime.
    pub(super) fn start(listener: TcpListener, state: OperatorState) -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let server = Server::new_with_acceptor(TcpAcceptor::from_tokio(listener)?);
        let task = tokio::spawn(server.run_with_graceful_shutdown(
            routes(state),
            async { drop(stopped.await) },
            Some(DRAIN_TIMEOUT),
        ));
        Ok(Self { stop, task })
    }

    /// Stops the server and waits for its end.
    pub(super) async fn stop(self) {
        drop(self.stop);
        let _ = self.task.await;
    }
}

/// The routes `/healthz`, `/readyz` and `/metrics`.
fn routes(state: OperatorState) -> impl Endpoint {
    Route::new()
        .at("/healthz", get(healthz))
        .at("/readyz", get(readyz))
        .at("/metrics", get(render_metrics))
        .data(state)
}

/// Liveness: the process runs.
#[handler]
fn healthz() -> &'static str {
    "ok\n"
}

/// Readiness: the broker is not stopping and the database answers.
#[handler]
async fn readyz(state: Data<&OperatorState>) -> Response {
    let reason = if state.is_draining() {
        "the broker is stopping\n"
    } else if let Err(error) = state.pools.signed_in.ping().await {
        tracing::warn!(error = error_chain(&error), "not ready: the database does not answer");
        "the database does not answer\n"
    } else {
        return "ok\n".into_response();
    };
    Response::builder().status(StatusCode::SERVICE_UNAVAILABLE).body(reason)
}

#[handler]
async fn render_metrics(state: Data<&OperatorState>) -> Response {
    state.record_gauges().await;
    Response::builder()
        .content_type("application/openmetrics-text; version=1.0.0; charset=utf-8")
        .body(state.metrics.render())
}
