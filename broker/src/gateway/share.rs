//! A tenant's fair share of the gateway: how often, how much at once, how fast. Each replica counts for
//! itself. One that asks for more is told when to come back; nobody else waits for it.

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

use super::{
    path::Kind,
    usage::{Usage, Verb},
};
use crate::{config::GatewayLimits, problem::Failure};

/// So many seconds' worth of requests may come at once: kubectl reads all API groups when it starts.
const BURST_SECONDS: u32 = 4;
/// How long a refused request is kept waiting, so that a loop without a pause costs the others little.
const REFUSAL_TAKES: Duration = Duration::from_millis(100);

/// What a tenant has too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    /// Requests a second; it may come back after this time.
    Rate(Duration),
    /// Requests at once.
    AtOnce,
    /// Watches and other streams.
    Streams,
}

impl Excess {
    /// Its name in metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Rate(_) => "rate",
            Self::AtOnce => "at_once",
            Self::Streams => "streams",
        }
    }

    /// Answers after a moment.
    pub(super) async fn refusal(self, limits: &GatewayLimits) -> Failure {
        tokio::time::sleep(REFUSAL_TAKES).await;
        let (text, seconds) = match self {
            Self::Rate(wait) => (
                format!("more than {} requests a second", limits.requests_per_second),
                wait.as_secs() + 1,
            ),
            Self::AtOnce => (format!("more than {} requests at once", limits.requests_at_once), 1),
            Self::Streams => (
                format!(
                    "more than {} watches, logs -f, exec and port-forward at once; end some",
                    limits.streams
                ),
                10,
            ),
        };
        Failure::new(Code::RateLimited, format!("{text}: the limit of the workspace's tier"))
            .retry_after(seconds)
    }
}

/// One tenant's share.
#[derive(Debug)]
pub(super) struct Share {
    /// What it may.
    pub(super) limits: GatewayLimits,
    rate: DefaultDirectRateLimiter,
    at_once: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    pace: Pace,
    /// What it did since that was last written down.
    pub(super) usage: Usage,
}

impl Share {
    fn new(limits: GatewayLimits) -> Self {
        let count = |count: u32| NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
        let rate = Quota::per_second(count(limits.requests_per_second))
            .allow_burst(count(limits.requests_per_second.saturating_mul(BURST_SECONDS)));
        Self {
            rate: RateLimiter::direct(rate),
            at_once: Arc::new(Semaphore::new(limits.requests_at_once as usize)),
            streams: Arc::new(Semaphore::new(limits.streams as usize)),
            pace: Pace::new(limits.bytes_per_second),
            usage: Usage::default(),
            limits,
        }
    }

    /// A place for a request, until it is dropped.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn enter(&self, kind: Kind) -> Result<OwnedSemaphorePermit, Excess> {
        use governor::clock::Clock as _;
        self.rate.check().map_err(|not_until| {
            Excess::Rate(not_until.wait_time_from(governor::clock::DefaultClock::default().now()))
        })?;
        let (places, excess) = if kind.is_stream() {
            (&self.streams, Excess::Streams)
        } else {
            (&self.at_once, Excess::AtOnce)
        };
        Arc::clone(places).try_acquire_owned().map_err(|_| excess)
    }

    /// Counts bytes, and says how long to wait until more may flow.
    pub(super) fn flow(&self, verb: Verb, direction: Direction, bytes: usize) -> Option<Duration> {
        self.usage.bytes(verb, direction, bytes as u64);
        self.pace.take(bytes as u64)
    }
}

/// Which way bytes flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the client.
    Up,
    /// From the API server.
    Down,
}

/// A tenant's share as one request uses it.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    pub(super) share: Arc<Share>,
    pub(super) verb: Verb,
}

/// Bytes of one request in one direction: counted, and held up where the tenant has had its share.
#[derive(Debug)]
pub(super) struct Flow {
    meter: Meter,
    direction: Direction,
    bytes: Arc<AtomicU64>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Flow {
    /// Bytes in this direction, counted there too.
    pub(super) fn new(meter: Meter, direction: Direction, bytes: Arc<AtomicU64>) -> Self {
        Self { meter, direction, bytes, pause: None }
    }

    /// Ready when more may flow.
    pub(super) fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(context));
            self.pause = None;
        }
        Poll::Ready(())
    }

    /// This part of a body flowed.
    pub(super) fn carried<E>(&mut self, frame: Option<&Result<Frame<Bytes>, E>>) {
        if let Some(Ok(frame)) = frame
            && let Some(data) = frame.data_ref()
        {
            self.flowed(data.len());
        }
    }

    /// So many flowed.
    pub(super) fn flowed(&mut self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let wait = self.meter.share.flow(self.meter.verb, self.direction, bytes);
        self.pause = wait.map(|wait| Box::pin(tokio::time::sleep(wait)));
    }
}

/// A rate of bytes, with one second's worth at once (GCRA).
#[derive(Debug)]
struct Pace {
    per_second: u64,
    began: Instant,
    /// Until when what has flowed is paid for, in nanoseconds since it began.
    paid: AtomicU64,
}

impl Pace {
    fn new(per_second: u64) -> Self {
        Self { per_second: per_second.max(1), began: Instant::now(), paid: AtomicU64::new(0) }
    }

    fn take(&self, bytes: u64) -> Option<Duration> {
        const SECOND: u64 = 1_000_000_000;
        let now = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let cost = u128::from(bytes) * u128::from(SECOND) / u128::from(self.per_second);
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        let pay = |paid: u64| Some(paid.max(now).saturating_add(cost));
        let before = self.paid.fetch_update(Ordering::AcqRel, Ordering::Acquire, pay);
        let paid = before.map_or(now, |paid| paid.max(now)).saturating_add(cost);
        let ahead = paid.saturating_sub(now);
        (ahead > SECOND).then(|| Duration::from_nanos(ahead - SECOND))
    }
}

/// The shares of those who were here lately. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares(Arc<Mutex<HashMap<Uuid, Arc<Share>>>>);

impl Shares {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Uuid, Arc<Share>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The share of a workspace.
    pub(super) fn of(&self, workspace: Uuid, limits: impl FnOnce() -> GatewayLimits) -> Arc<Share> {
        let mut shares = self.lock();
        Arc::clone(shares.entry(workspace).or_insert_with(|| Arc::new(Share::new(limits()))))
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<(Uuid, Arc<Share>)> {
        self.lock().iter().map(|(id, share)| (*id, Arc::clone(share))).collect()
    }

    /// Forgets those that nobody uses and that have nothing to be written down.
    pub(super) fn purge(&self) {
        self.lock().retain(|_, share| Arc::strong_count(share) > 1 || !share.usage.is_empty());
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
    fn a_share_is_a_rate_a_number_and_streams_of_their_own() {
        let share = Share::new(LIMITS);
        let calls: Vec<_> = (0..3).map(|_| share.enter(Kind::Call).unwrap()).collect();
        assert_eq!(share.enter(Kind::Call).unwrap_err(), Excess::AtOnce);
        let watch = share.enter(Kind::Watch).unwrap();
        assert_eq!(share.enter(Kind::Session).unwrap_err(), Excess::Streams);
        drop((calls, watch));
        for _ in 0..2 {
            drop(share.enter(Kind::Call).unwrap());
        }
        // Eight at once, for four seconds.
        let Err(Excess::Rate(wait)) = share.enter(Kind::Call) else { panic!("the ninth") };
        assert!(wait <= Duration::from_millis(500), "{wait:?}");
    }

    #[test]
    fn more_bytes_than_a_seconds_worth_have_to_wait() {
        let pace = Pace::new(1000);
        assert_eq!(pace.take(900), None);
        let wait = pace.take(2100).unwrap();
        assert!((Duration::from_millis(1900)..=Duration::from_secs(2)).contains(&wait), "{wait:?}");
        assert!(Pace::new(0).take(u64::MAX).is_some(), "no division by zero, no overflow");
    }

    #[test]
    fn a_share_is_kept_while_it_is_used_or_owes_a_row() {
        let (shares, id) = (Shares::default(), Uuid::from_u128(1));
        let share = shares.of(id, || LIMITS);
        shares.purge();
        assert!(Arc::ptr_eq(&share, &shares.of(id, || LIMITS)));
        share.usage.request(Verb::Get);
        drop(share);
        shares.purge();
        assert_eq!(shares.all().len(), 1);
        for (_, share) in shares.all() {
            share.usage.take();
        }
        shares.purge();
        assert_eq!(shares.all().len(), 0);
    }
}
