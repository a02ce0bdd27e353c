//! The listener for operators: health and metrics.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use poem::{
    Endpoint, EndpointExt as _, IntoResponse as _, Response, Route, get, handler, http::StatusCode,
    web::Data,
};

use crate::{db::Db, problem::chain, telemetry::Metrics};

/// What readiness depends on.
#[derive(Clone, Debug)]
pub struct Health {
    /// Has to answer.
    pub db: Db,
    /// Whether the broker is stopping.
    pub draining: Arc<AtomicBool>,
}

/// The operators' pages.
pub fn routes(health: Health, metrics: Metrics) -> impl Endpoint {
    Route::new()
        .at("/healthz", get(healthz))
        .at("/readyz", get(readyz))
        .at("/metrics", get(render_metrics))
        .data(health)
        .data(metrics)
}

/// The process runs.
#[handler]
fn healthz() -> &'static str {
    "ok\n"
}

/// The broker can answer requests.
#[handler]
async fn readyz(health: Data<&Health>) -> Response {
    let why = if health.draining.load(Ordering::SeqCst) {
        "the broker is stopping\n"
    } else if let Err(error) = health.db.ping().await {
        tracing::warn!(error = chain(&error), "not ready: the database fails");
        "the database does not answer\n"
    } else {
        return "ok\n".into_response();
    };
    Response::builder().status(StatusCode::SERVICE_UNAVAILABLE).body(why)
}

#[handler]
#[expect(
    clippy::unused_async,
    reason = "an async handler takes its data by value, as poem gives it"
)]
async fn render_metrics(metrics: Data<&Metrics>) -> Response {
    Response::builder()
        .content_type("application/openmetrics-text; version=1.0.0; charset=utf-8")
        .body(metrics.render())
}
