//! Rate limits of each tenant: requests per second, concurrent requests and streams, and bytes per
//! second. Each replica counts for itself. A tenant above a limit is refused with `Retry-After`;
//! other tenants are not affected.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::Bytes;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use http_body::Frame;
use tenant_shared::Code;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Sleep,
};
use uuid::Uuid;

use super::usage::{Direction, UsageCounters, Verb};
use crate::{
    base::telemetry::Metrics, gateway::kubernetes_api::path::Kind, http::ApiError,
    tier::GatewayLimits,
};

/// The burst, in seconds of the request rate. It is large because kubectl reads all API groups when
/// it starts.
const BURST_SECONDS: u32 = 4;
/// Delay before a refusal, so that a client that retries in a loop costs other tenants little.
const REFUSAL_DELAY: Duration = Duration::from_millis(100);

/// Value of the label `limit` for lists and watches with the broker's own credential.
pub(in crate::gateway) const BROKER_READS: &str = "own_reads";
/// Values of the label `limit` of refused requests in metrics.
pub const LIMITS: [&str; 4] = ["rate", "at_once", "streams", BROKER_READS];

/// The limit that a request exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitExceeded {
    /// Requests per second; a retry may succeed after this time.
    Rate(Duration),
    /// Concurrent requests.
    Concurrency,
    /// Concurrent watches and other streams.
    Streams,
}

impl LimitExceeded {
    /// The value of the label in metrics: one of [`LIMITS`].
    pub(in crate::gateway) fn as_str(self) -> &'static str {
        let [rate, concurrency, streams, _] = LIMITS;
        match self {
            Self::Rate(_) => rate,
            Self::Concurrency => concurrency,
            Self::Streams => streams,
        }
    }

    /// The error for the client, after [`REFUSAL_DELAY`].
    pub(in crate::gateway) async fn delayed_error(self, limits: &GatewayLimits) -> ApiError {
        tokio::time::sleep(REFUSAL_DELAY).await;
        let (text, seconds) = match self {
            Self::Rate(wait) => (
                format!("more than {} requests a second", limits.requests_per_second),
                wait.as_secs() + 1,
            ),
            Self::Concurrency => {
                (format!("more than {} requests at once", limits.requests_at_once), 1)
            }
            Self::Streams => (
                format!(
                    "more than {} watches, logs -f, exec and port-forward at once; end some",
                    limits.streams
                ),
                10,
            ),
        };
        ApiError::new(Code::RateLimited, format!("{text}: the limit of the workspace's tier"))
            .retry_after(seconds)
    }
}

/// The limiter of one tenant.
#[derive(Debug)]
pub(crate) struct TenantLimiter {
    /// The limits of the tenant's tier.
    pub(in crate::gateway) limits: GatewayLimits,
    rate: DefaultDirectRateLimiter,
    concurrency: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    byte_rate: ByteRateLimiter,
    /// Usage that is not yet flushed to the database.
    pub(in crate::gateway) usage: UsageCounters,
}

impl TenantLimiter {
    /// A limiter with these limits.
    pub(crate) fn new(limits: GatewayLimits) -> Self {
        let count = |count: u32| NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
        let rate = Quota::per_second(count(limits.requests_per_second))
            .allow_burst(count(limits.requests_per_second.saturating_mul(BURST_SECONDS)));
        Self {
            rate: RateLimiter::direct(rate),
            concurrency: Arc::new(Semaphore::new(limits.requests_at_once as usize)),
            streams: Arc::new(Semaphore::new(limits.streams as usize)),
            byte_rate: ByteRateLimiter::new(limits.bytes_per_second),
            usage: UsageCounters::default(),
            limits,
        }
    }

    /// A permit for a request that is no stream, which lasts until it is dropped.
    ///
    /// # Errors
    /// A limit is exceeded.
    pub(crate) fn acquire_call(&self) -> Result<OwnedSemaphorePermit, LimitExceeded> {
        self.acquire(Kind::Call)
    }

    /// A permit for a request, which lasts until it is dropped.
    ///
    /// # Errors
    /// A limit is exceeded.
    pub(in crate::gateway) fn acquire(
        &self,
        kind: Kind,
    ) -> Result<OwnedSemaphorePermit, LimitExceeded> {
        use governor::clock::Clock as _;
        self.rate.check().map_err(|not_until| {
            LimitExceeded::Rate(
                not_until.wait_time_from(governor::clock::DefaultClock::default().now()),
            )
        })?;
        let (semaphore, exceeded) = if kind.is_stream() {
            (&self.streams, LimitExceeded::Streams)
        } else {
            (&self.concurrency, LimitExceeded::Concurrency)
        };
        Arc::clone(semaphore).try_acquire_owned().map_err(|_| exceeded)
    }

    /// Counts received bytes that are no tenant's usage.
    pub(crate) fn consume_bytes(&self, bytes: usize) {
        self.byte_rate.consume(bytes as u64);
    }

    /// How long to wait before more bytes may be transferred.
    pub(crate) fn byte_rate_delay(&self) -> Option<Duration> {
        self.byte_rate.consume(0)
    }

    /// Counts bytes; returns how long to wait before more may be transferred.
    pub(in crate::gateway) fn count_bytes(
        &self,
        verb: Verb,
        direction: Direction,
        bytes: usize,
    ) -> Option<Duration> {
        self.usage.count_bytes(verb, direction, bytes as u64);
        self.byte_rate.consume(bytes as u64)
    }
}

/// The limiter of a tenant and the verb that a request is counted under.
#[derive(Clone, Debug)]
pub(in crate::gateway) struct UsageMeter {
    pub(in crate::gateway) limiter: Arc<TenantLimiter>,
    pub(in crate::gateway) verb: Verb,
}

/// Counts the bytes of one request in one direction, and delays them if the tenant exceeds its byte
/// rate.
#[derive(Debug)]
pub(in crate::gateway) struct BodyMeter {
    usage: UsageMeter,
    direction: Direction,
    bytes: Arc<AtomicU64>,
    metrics: Metrics,
    delay: Option<Pin<Box<Sleep>>>,
}

impl BodyMeter {
    /// A meter that adds the bytes to `bytes` and to the metrics as well.
    pub(in crate::gateway) fn new(
        usage: UsageMeter,
        direction: Direction,
        bytes: Arc<AtomicU64>,
        metrics: Metrics,
    ) -> Self {
        Self { usage, direction, bytes, metrics, delay: None }
    }

    /// Ready when more bytes may be transferred.
    pub(in crate::gateway) fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(delay) = &mut self.delay {
            ready!(delay.as_mut().poll(context));
            self.delay = None;
        }
        Poll::Ready(())
    }

    /// Records a frame of a body.
    pub(in crate::gateway) fn record_frame<E>(&mut self, frame: Option<&Result<Frame<Bytes>, E>>) {
        if let Some(Ok(frame)) = frame
            && let Some(data) = frame.data_ref()
        {
            self.record_bytes(data.len());
        }
    }

    /// Records transferred bytes.
    pub(in crate::gateway) fn record_bytes(&mut self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        match self.direction {
            Direction::Up => self.metrics.gateway_bytes_up(bytes as u64),
            Direction::Down => self.metrics.gateway_bytes_down(bytes as u64),
        }
        let wait = self.usage.limiter.count_bytes(self.usage.verb, self.direction, bytes);
        self.delay = wait.map(|wait| Box::pin(tokio::time::sleep(wait)));
    }
}

/// Rate limiter for bytes with a burst of one second (generic cell rate algorithm, GCRA).
#[derive(Debug)]
struct ByteRateLimiter {
    per_second: u64,
    started_at: Instant,
    /// Theoretical arrival time, in nanoseconds since `started_at`.
    arrival_ns: AtomicU64,
}

impl ByteRateLimiter {
    fn new(per_second: u64) -> Self {
        Self {
            per_second: per_second.max(1),
            started_at: Instant::now(),
            arrival_ns: AtomicU64::new(0),
        }
    }

    fn consume(&self, bytes: u64) -> Option<Duration> {
        const SECOND: u64 = 1_000_000_000;
        let now = u64::try_from(self.started_at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let cost = u128::from(bytes) * u128::from(SECOND) / u128::from(self.per_second);
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        let advance = |arrival_ns: u64| Some(arrival_ns.max(now).saturating_add(cost));
        let before = self.arrival_ns.fetch_update(Ordering::AcqRel, Ordering::Acquire, advance);
        let arrival_ns = before.map_or(now, |arrival_ns| arrival_ns.max(now)).saturating_add(cost);
        let ahead = arrival_ns.saturating_sub(now);
        (ahead > SECOND).then(|| Duration::from_nanos(ahead - SECOND))
    }
}

/// The limiters of recently active tenants, by workspace. Clones share them.
#[derive(Clone, Debug, Default)]
pub(in crate::gateway) struct TenantLimiters(Arc<Mutex<HashMap<Uuid, Arc<TenantLimiter>>>>);

impl TenantLimiters {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Uuid, Arc<TenantLimiter>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limiter of a workspace.
    pub(in crate::gateway) fn get_or_create(
        &self,
        workspace: Uuid,
        limits: impl FnOnce() -> GatewayLimits,
    ) -> Arc<TenantLimiter> {
        let mut limiters = self.lock();
        Arc::clone(
            limiters.entry(workspace).or_insert_with(|| Arc::new(TenantLimiter::new(limits()))),
        )
    }

    /// All limiters with the ids of their workspaces.
    pub(in crate::gateway) fn all(&self) -> Vec<(Uuid, Arc<TenantLimiter>)> {
        self.lock().iter().map(|(id, limiter)| (*id, Arc::clone(limiter))).collect()
    }

    /// Evicts limiters that are not in use and have no unflushed usage.
    pub(in crate::gateway) fn evict_unused(&self) {
        self.lock()
            .retain(|_, limiter| Arc::strong_count(limiter) > 1 || !limiter.usage.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: GatewayLimits = GatewayLimits {
        requests_per_second: 2,
        requests_at_once: 3,
        streams: 1,
        bytes_per_second: 1000,
    };

    #[test]
    fn requests_concurrency_and_streams_have_separate_limits() {
        let limiter = TenantLimiter::new(LIMITS);
        let calls: Vec<_> = (0..3).map(|_| limiter.acquire(Kind::Call).unwrap()).collect();
        assert_eq!(limiter.acquire(Kind::Call).unwrap_err(), LimitExceeded::Concurrency);
        let watch = limiter.acquire(Kind::Watch).unwrap();
        assert_eq!(limiter.acquire(Kind::Session).unwrap_err(), LimitExceeded::Streams);
        drop((calls, watch));
        for _ in 0..2 {
            drop(limiter.acquire(Kind::Call).unwrap());
        }
        // The burst is eight: two a second for four seconds.
        let Err(LimitExceeded::Rate(wait)) = limiter.acquire(Kind::Call) else {
            panic!("the ninth")
        };
        assert!(wait <= Duration::from_millis(500), "{wait:?}");
    }

    #[test]
    fn more_bytes_than_one_seconds_burst_are_delayed() {
        let limiter = ByteRateLimiter::new(1000);
        assert_eq!(limiter.consume(900), None);
        let wait = limiter.consume(2100).unwrap();
        assert!((Duration::from_millis(1900)..=Duration::from_secs(2)).contains(&wait), "{wait:?}");
        assert!(
            ByteRateLimiter::new(0).consume(u64::MAX).is_some(),
            "no division by zero, no overflow"
        );
    }

    #[test]
    fn a_limiter_is_kept_while_it_is_in_use_or_has_unflushed_usage() {
        let (limiters, id) = (TenantLimiters::default(), Uuid::from_u128(1));
        let limiter = limiters.get_or_create(id, || LIMITS);
        limiters.evict_unused();
        assert!(Arc::ptr_eq(&limiter, &limiters.get_or_create(id, || LIMITS)));
        limiter.usage.count_request(Verb::Get);
        drop(limiter);
        limiters.evict_unused();
        assert_eq!(limiters.all().len(), 1);
        for (_, limiter) in limiters.all() {
            limiter.usage.take();
        }
        limiters.evict_unused();
        assert_eq!(limiters.all().len(), 0);
    }
}
