//! In-process rate limits on unauthenticated requests. They apply before the database, so a refusal
//! costs neither a transaction nor a row. [`crate::base::throttle`] limits the requests that pass, across
//! replicas.
//!
//! Each replica counts on its own. A client is an address ([`ClientNetwork`]), as the trusted
//! proxies report it ([`crate::http::TrustedProxies`]).

mod client_network;
mod gcra;
mod in_flight;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

pub(crate) use self::gcra::{ExceededLimit, GcraLimiter};
pub use self::{
    client_network::ClientNetwork,
    gcra::Quota,
    in_flight::{InFlightLimiter, InFlightSlot},
};
use crate::base::telemetry::Metrics;

/// Burst of one client, in seconds of its rate: a sign-in takes six requests.
const CLIENT_BURST_SECONDS: u32 = 10;
/// Burst of all clients together, in seconds of their rate.
const TOTAL_BURST_SECONDS: u32 = 3;
/// Maximum number of request bodies of unauthenticated clients that are read concurrently; each has
/// at most 64 KiB.
const MAX_BODIES: usize = 512;
/// Maximum number of these bodies for one client, because a slow client may take long to send one.
const MAX_BODIES_PER_CLIENT: usize = 32;
/// Maximum number of bodies of refused gateway requests that are read and discarded concurrently.
const MAX_DISCARDED_BODIES: usize = 256;

/// Values of the label `limit` of refused requests in metrics.
pub const LIMITS: [&str; 7] = [
    REQUESTS_PER_ADDRESS,
    REQUESTS,
    REQUESTS_AT_ONCE,
    BODIES_AT_ONCE,
    DISCARDED_BODIES_AT_ONCE,
    CONNECTIONS_PER_ADDRESS,
    RESPONSES_AT_ONCE,
];
/// The label of connections that are closed because their address has too many.
pub const CONNECTIONS_PER_ADDRESS: &str = "connections_per_address";
/// The label of requests that are refused because too many responses of the broker are not sent
/// completely.
pub const RESPONSES_AT_ONCE: &str = "responses_at_once";
const REQUESTS_PER_ADDRESS: &str = "requests_per_address";
const REQUESTS: &str = "requests";
const REQUESTS_AT_ONCE: &str = "requests_at_once";
const BODIES_AT_ONCE: &str = "bodies_at_once";
const DISCARDED_BODIES_AT_ONCE: &str = "discarded_bodies_at_once";

/// A rate limit refused the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimited {
    /// Seconds until the next request may pass, at least 1 (`Retry-After`).
    pub retry_after: u64,
}

/// Rate limits on unauthenticated requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitSettings {
    /// Requests per second of one client.
    pub per_client: u32,
    /// Requests per second of all clients.
    pub total: u32,
    /// Requests in flight of all clients; half of them may come from one client.
    pub at_once: u32,
}

/// The rate limiter for unauthenticated requests. Clones share the counts.
#[derive(Clone, Debug)]
pub struct RateLimiter(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    rate: GcraLimiter,
    requests: Arc<InFlightLimiter>,
    bodies: Arc<InFlightLimiter>,
    discarded: Arc<InFlightLimiter>,
    metrics: Metrics,
}

/// Permission of an unauthenticated request to use the database, until this is dropped.
#[derive(Debug)]
pub struct AdmittedRequest {
    limits: RateLimiter,
    client: ClientNetwork,
    _slot: InFlightSlot,
}

/// Permission to read a request body, until this is dropped.
#[derive(Debug)]
pub struct BodySlot(#[expect(dead_code, reason = "held, not read")] InFlightSlot);

impl AdmittedRequest {
    /// Refunds the request, because it proved who sent it.
    pub fn authenticated(self) {
        self.limits.0.rate.refund(self.client);
    }
}

impl RateLimiter {
    /// A limiter with no requests counted yet.
    pub fn new(settings: RateLimitSettings, metrics: Metrics) -> Self {
        let quota = |per_second: u32, seconds: u32| Quota {
            per_second,
            burst: per_second.saturating_mul(seconds),
        };
        let client = quota(settings.per_client, CLIENT_BURST_SECONDS);
        let total = quota(settings.total, TOTAL_BURST_SECONDS);
        let bounded = |max: usize| InFlightLimiter::new(max, max.div_ceil(2));
        Self(Arc::new(Inner {
            rate: GcraLimiter::new(client, total, Instant::now()),
            requests: bounded(settings.at_once as usize),
            bodies: InFlightLimiter::new(MAX_BODIES, MAX_BODIES_PER_CLIENT),
            discarded: bounded(MAX_DISCARDED_BODIES),
            metrics,
        }))
    }

    /// Admits the current request to the database.
    ///
    /// # Errors
    /// Its client, or all clients together, exceeded the rate or the number in flight.
    pub fn admit(&self) -> Result<AdmittedRequest, RateLimited> {
        let client = ClientNetwork::current();
        let slot = self
            .0
            .requests
            .try_acquire(client)
            .ok_or_else(|| self.refused(REQUESTS_AT_ONCE, Duration::ZERO))?;
        self.0.rate.check(client, Instant::now()).map_err(|refused| match refused {
            ExceededLimit::Client(wait) => self.refused(REQUESTS_PER_ADDRESS, wait),
            ExceededLimit::Total(wait) => self.refused(REQUESTS, wait),
        })?;
        Ok(AdmittedRequest { limits: self.clone(), client, _slot: slot })
    }

    /// Permits the body of the current request to be read into memory.
    ///
    /// # Errors
    /// Too many bodies are being read.
    pub fn read_body(&self) -> Result<BodySlot, RateLimited> {
        let slot = self.0.bodies.try_acquire(ClientNetwork::current());
        slot.map(BodySlot).ok_or_else(|| self.refused(BODIES_AT_ONCE, Duration::ZERO))
    }

    /// Permits the body of this client's refused request to be read and discarded; `None` if too
    /// many are being read.
    pub fn discard_body(&self, client: ClientNetwork) -> Option<BodySlot> {
        let slot = self.0.discarded.try_acquire(client).map(BodySlot);
        if slot.is_none() {
            self.0.metrics.unauthenticated_refused(DISCARDED_BODIES_AT_ONCE);
        }
        slot
    }

    fn refused(&self, limit: &'static str, wait: Duration) -> RateLimited {
        self.0.metrics.unauthenticated_refused(limit);
        RateLimited { retry_after: wait.as_secs() + 1 }
    }
}

impl RateLimitSettings {
    /// No limits, for commands that serve no requests.
    pub const NONE: Self = Self { per_client: u32::MAX, total: u32::MAX, at_once: u32::MAX };
}
