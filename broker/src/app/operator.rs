//! The listener for operators: health and metrics.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use poem::{
    Endpoint, EndpointExt as _, IntoResponse as _, Response, Route, get, handler, http::StatusCode,
    web::Data,
};

use crate::base::{db::Db, error_chain, telemetry::Metrics};

/// State that `/readyz` depends on.
#[derive(Clone, Debug)]
pub(super) struct Health {
    /// Readiness requires that the database answers.
    pub db: Db,
    /// Whether the broker is stopping.
    pub draining: Arc<AtomicBool>,
}

/// The routes `/healthz`, `/readyz` and `/metrics`.
pub(super) fn routes(health: Health, metrics: Metrics) -> impl Endpoint {
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
