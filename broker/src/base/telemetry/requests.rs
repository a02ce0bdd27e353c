//! Counts of requests, audited actions and TokenRequests.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
};

use super::{
    registry::{OutcomeLabels, Registrar, register, register_seconds},
    status_label::StatusLabel,
};

/// Labels of a request; the values of each are a closed set.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct RequestLabels {
    pub(super) method: &'static str,
    pub(super) area: &'static str,
    pub(super) status: StatusLabel,
}

/// Label of the part of the service that serves a request.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct AreaLabels {
    pub(super) area: &'static str,
}

/// Labels of an audited action.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct ActionLabels {
    pub(super) action: &'static str,
    pub(super) outcome: &'static str,
}

/// Labels of a rate limit.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct LimitLabels {
    pub(super) limit: &'static str,
}

#[derive(Debug)]
pub(super) struct RequestCounts {
    pub(super) unauthenticated_refused: Family<LimitLabels, Counter>,
    pub(super) throttled: Family<LimitLabels, Counter>,
    pub(super) answered: Family<RequestLabels, Counter>,
    pub(super) seconds: Family<AreaLabels, Histogram>,
    pub(super) actions: Family<ActionLabels, Counter>,
    pub(super) token_requests: Family<OutcomeLabels, Counter>,
    pub(super) token_request_seconds: Histogram,
}

impl RequestCounts {
    /// Registers the metrics.
    pub(super) fn new(registry: &mut Registrar) -> Self {
        Self {
            unauthenticated_refused: register(
                registry,
                "unauthenticated_refused",
                "Unauthenticated requests that were refused before the database",
            ),
            throttled: register(
                registry,
                "gateway_throttled",
                "Requests that the gateway refused because a tenant exceeded a limit",
            ),
            answered: register(registry, "requests", "Requests by area, method and status"),
            seconds: register_seconds(
                registry,
                "request_duration",
                "Time from a request to the beginning of its response",
                Family::new_with_constructor(request_histogram as fn() -> Histogram),
            ),
            actions: register(registry, "actions", "Audited actions by outcome"),
            token_requests: register(
                registry,
                "token_requests",
                "TokenRequests at the Kubernetes API by outcome",
            ),
            token_request_seconds: register_seconds(
                registry,
                "token_request_duration",
                "Time of an answered TokenRequest at the Kubernetes API",
                Histogram::new(exponential_buckets(0.000_5, 2.0, 14)),
            ),
        }
    }
}

/// Buckets from 0.5 ms to 16 s.
fn request_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_5, 2.0, 16))
}
