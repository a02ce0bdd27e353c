//! Gauges of the broker's own health: readiness, database, and when its loops last succeeded.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

use super::registry::{CauseLabels, Registrar, register, register_seconds};

/// Label of a pool of database connections.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct PoolLabels {
    pub(super) share: &'static str,
}

/// Labels of the connections of a pool.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct ConnectionLabels {
    pub(super) share: &'static str,
    pub(super) state: &'static str,
}

#[derive(Debug)]
pub(super) struct HealthGauges {
    pub(super) ready: Gauge,
    pub(super) database_up: Gauge,
    pub(super) database_ping_seconds: Gauge<f64, AtomicU64>,
    pub(super) database_connections: Family<ConnectionLabels, Gauge>,
    pub(super) database_max_connections: Family<PoolLabels, Gauge>,
    pub(super) sweep_timestamp: Gauge,
    pub(super) audit_seal_timestamp: Gauge,
    pub(super) audit_seal_failures: Family<CauseLabels, Counter>,
}

impl HealthGauges {
    /// Registers the gauges.
    pub(super) fn new(registry: &mut Registrar) -> Self {
        Self {
            ready: register(registry, "ready", "1 if /readyz would answer 200 at this scrape"),
            database_up: register(
                registry,
                "database_up",
                "1 if the database answered within 2 seconds at this scrape",
            ),
            database_ping_seconds: register_seconds(
                registry,
                "database_ping",
                "Time of a statement at this scrape, with the wait for a connection",
                Gauge::default(),
            ),
            database_connections: register(
                registry,
                "database_connections",
                "Open connections to the database at this scrape; of SQLite also its one writer",
            ),
            database_max_connections: register(
                registry,
                "database_max_connections",
                "Limit of the connections to the database",
            ),
            sweep_timestamp: register_seconds(
                registry,
                "sweep_timestamp",
                "Unix time of the last round of the sweep of this broker, at first of its start",
                Gauge::default(),
            ),
            audit_seal_timestamp: register_seconds(
                registry,
                "audit_seal_timestamp",
                "Unix time at which all audit rows were last seen sealed, at first of the start",
                Gauge::default(),
            ),
            audit_seal_failures: register(
                registry,
                "audit_seal_failures",
                "Failed attempts to seal audit rows",
            ),
        }
    }
}
