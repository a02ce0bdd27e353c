//! Counts of the gateway.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Unit,
};

use super::registry::{CauseLabels, Registrar, register};

/// Label of the kind of a request.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct KindLabels {
    pub(super) kind: &'static str,
}

/// Label of the direction of bytes.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DirectionLabels {
    direction: &'static str,
}

#[derive(Debug)]
pub(super) struct GatewayCounts {
    pub(super) in_flight: Family<KindLabels, Gauge>,
    /// The counters of the two directions, because each frame of a body is counted, and a lookup in
    /// the family takes longer than that.
    pub(super) bytes_up: Counter,
    pub(super) bytes_down: Counter,
    pub(super) upstream_errors: Family<CauseLabels, Counter>,
}

impl GatewayCounts {
    /// Registers the metrics of the gateway.
    pub(super) fn new(registry: &mut Registrar) -> Self {
        let bytes = Family::<DirectionLabels, Counter>::default();
        registry.add(
            "gateway_transferred",
            "Bytes of bodies and tunnels: up from clients, down from the API server",
            Some(Unit::Bytes),
            bytes.clone(),
        );
        let counter = |direction| bytes.get_or_create_owned(&DirectionLabels { direction });
        Self {
            in_flight: register(
                registry,
                "gateway_requests_in_flight",
                "Requests and streams of the gateway in flight at this scrape",
            ),
            bytes_up: counter("up"),
            bytes_down: counter("down"),
            upstream_errors: register(
                registry,
                "gateway_upstream_errors",
                "Requests of the gateway that the API server did not answer, or not completely",
            ),
        }
    }
}
