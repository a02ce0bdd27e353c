//! Limits in this process on what unauthenticated requests cost: they come before the database, so a
//! refusal costs neither a transaction nor a row. [`crate::throttle`] counts what passes, across
//! replicas.
//!
//! Each replica counts for itself. A client is an address ([`Client`]), seen through the trusted
//! proxies ([`crate::proxy`]).

mod client;
mod in_flight;
mod rate;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

pub use self::{client::Client, rate::Quota};
use self::{
    in_flight::{InFlight, Place},
    rate::{Rate, Refused},
};
use crate::telemetry::Metrics;

/// So many seconds' worth of a client's requests may come at once: a sign-in is six of them.
const CLIENT_BURST_SECONDS: u32 = 10;
/// The same for all clients together.
const TOTAL_BURST_SECONDS: u32 = 3;
/// Request bodies of unauthenticated clients that are read at once; each is 64 KiB at most.
const MAX_BODIES: usize = 512;
/// So many of them of one client, because a body may take its time to arrive.
const MAX_BODIES_OF_CLIENT: usize = 32;
/// Bodies of refused requests of the gateway that are read at once, and dropped.
const MAX_DISCARDED_BODIES: usize = 256;

/// Too many: a client may come back after so many seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany {
    /// Seconds until the next request may pass, at least 1.
    pub retry_after: u64,
}

/// What an unauthenticated client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Requests a second of one client.
    pub per_client: u32,
    /// Requests a second of all clients.
    pub total: u32,
    /// Requests under way at once of all clients; half of them of one client.
    pub at_once: u32,
}

/// The limits. Clones share the counts.
#[derive(Clone, Debug)]
pub struct RateLimits(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    rate: Rate,
    requests: Arc<InFlight>,
    bodies: Arc<InFlight>,
    discarded: Arc<InFlight>,
    metrics: Metrics,
}

/// An unauthenticated request that may use the database, until this is dropped.
#[derive(Debug)]
pub struct Admitted {
    limits: RateLimits,
    client: Client,
    _place: Place,
}

/// A body that may be read, until this is dropped.
#[derive(Debug)]
pub struct ReadsBody(#[expect(dead_code, reason = "held, not read")] Place);

impl Admitted {
    /// The request proved who sent it, so it does not count.
    pub fn authenticated(self) {
        self.limits.0.rate.give_back(self.client);
    }
}

impl RateLimits {
    /// Limits that nobody has used yet.
    pub fn new(settings: Settings, metrics: Metrics) -> Self {
        let quota = |per_second: u32, seconds: u32| Quota {
            per_second,
            burst: per_second.saturating_mul(seconds),
        };
        let client = quota(settings.per_client, CLIENT_BURST_SECONDS);
        let total = quota(settings.total, TOTAL_BURST_SECONDS);
        let bounded = |most: usize| InFlight::new(most, most.div_ceil(2));
        Self(Arc::new(Inner {
            rate: Rate::new(client, total, Instant::now()),
            requests: bounded(settings.at_once as usize),
            bodies: InFlight::new(MAX_BODIES, MAX_BODIES_OF_CLIENT),
            discarded: bounded(MAX_DISCARDED_BODIES),
            metrics,
        }))
    }

    /// Admits the request under way to the database.
    ///
    /// # Errors
    /// Its client, or all clients together, sent too many.
    pub fn admit(&self) -> Result<Admitted, TooMany> {
        let client = Client::of_request();
        let place = self
            .0
            .requests
            .enter(client)
            .ok_or_else(|| self.refused("requests_at_once", Duration::ZERO))?;
        self.0.rate.take(client, Instant::now()).map_err(|refused| match refused {
            Refused::Client(wait) => self.refused("requests_per_address", wait),
            Refused::Total(wait) => self.refused("requests", wait),
        })?;
        Ok(Admitted { limits: self.clone(), client, _place: place })
    }

    /// Lets the body of the request under way be read into memory.
    ///
    /// # Errors
    /// Too many are being read.
    pub fn read_body(&self) -> Result<ReadsBody, TooMany> {
        let place = self.0.bodies.enter(Client::of_request());
        place.map(ReadsBody).ok_or_else(|| self.refused("bodies_at_once", Duration::ZERO))
    }

    /// Lets the body of this client's refused request be read and dropped; `None` if too many are.
    pub fn discard_body(&self, client: Client) -> Option<ReadsBody> {
        let place = self.0.discarded.enter(client).map(ReadsBody);
        if place.is_none() {
            self.0.metrics.unauthenticated_refused("discarded_bodies_at_once");
        }
        place
    }

    fn refused(&self, limit: &'static str, wait: Duration) -> TooMany {
        self.0.metrics.unauthenticated_refused(limit);
        TooMany { retry_after: wait.as_secs() + 1 }
    }
}

impl Settings {
    /// No limit, for commands that nobody sends requests to.
    pub const NONE: Self = Self { per_client: u32::MAX, total: u32::MAX, at_once: u32::MAX };
}
