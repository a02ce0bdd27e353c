//! The listener for operators: health and metrics.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use poem::{
    Endpoint, EndpointExt as _, IntoResponse as _, Response, Route, Server, get, handler,
    http::StatusCode, listener::TcpAcceptor, web::Data,
};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

use crate::base::{db::Db, error_chain, telemetry::Metrics};

/// State that `/readyz` depends on.
#[derive(Clone, Debug)]
pub(super) struct Health {
    /// Readiness requires that the database answers.
    pub db: Db,
    /// Whether the broker is stopping.
    pub draining: Arc<AtomicBool>,
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
    pub(super) fn start(
        listener: TcpListener,
        health: Health,
        metrics: Metrics,
    ) -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let server = Server::new_with_acceptor(TcpAcceptor::from_tokio(listener)?);
        let task = tokio::spawn(server.run_with_graceful_shutdown(
            routes(health, metrics),
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
fn routes(health: Health, metrics: Metrics) -> impl Endpoint {
    Route::new()
        .at("/healthz", get(healthz))
        .at("/readyz", get(readyz))
        .at("/metrics", get(render_metrics))
        .data(health)
        .data(metrics)
}

/// Liveness: the process runs.
#[handler]
fn healthz() -> &'static str {
    "ok\n"
}

/// Readiness: the broker is not stopping and the database answers.
#[handler]
async fn readyz(health: Data<&Health>) -> Response {
    let reason = if health.draining.load(Ordering::SeqCst) {
        "the broker is stopping\n"
    } else if let Err(error) = health.db.ping().await {
        tracing::warn!(error = error_chain(&error), "not ready: the database does not answer");
        "the database does not answer\n"
    } else {
        return "ok\n".into_response();
    };
    Response::builder().status(StatusCode::SERVICE_UNAVAILABLE).body(reason)
}

#[handler]
#[expect(
    clippy::unused_async,
    reason = "poem's `handler` passes `Data` by value to async functions only"
)]
async fn render_metrics(metrics: Data<&Metrics>) -> Response {
    Response::builder()
        .content_type("application/openmetrics-text; version=1.0.0; charset=utf-8")
        .body(metrics.render())
}
