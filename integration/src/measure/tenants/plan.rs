//! The extent of the measurement, and its results.

use std::time::Duration;

use super::population::Size;
use crate::measure::figure::{Figure, Timing};

/// The extent of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct TenantPlan {
    /// Number of tenants and namespaces.
    pub size: Size,
    /// Pairs of creations, and of lists of all namespaces.
    pub requests: usize,
    /// Pairs of requests that take a few milliseconds.
    pub cheap_requests: usize,
    /// Suspended tenants.
    pub suspensions: usize,
    /// New members.
    pub members: usize,
    /// Runs with nothing to do.
    pub runs: usize,
    /// Times that an owner is added.
    pub owners: usize,
    /// Changes of each kind that watches of namespaces show.
    pub watches: usize,
    /// Starts of the broker without and with tenants.
    pub restarts: usize,
    /// Turns of requests without a pause.
    pub turns: usize,
    /// Length of one turn.
    pub turn: Duration,
    /// Profiles of the API server with and without the policies for tenants.
    pub profiles: usize,
    /// Length of a profile, in whole seconds.
    pub profile: Duration,
}

/// The results.
#[derive(Debug, Default)]
pub struct Measured {
    /// Figures with their baselines.
    pub figures: Vec<Figure>,
    /// Figures without a baseline.
    pub timings: Vec<Timing>,
}

impl Measured {
    pub(super) fn add(&mut self, other: Self) {
        self.figures.extend(other.figures);
        self.timings.extend(other.timings);
    }
}
