//! The loop that reads the files again.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{FileSource, Reloaded, watched::Watched};
use crate::base::{
    clock::{Clock, ticks},
    telemetry::Metrics,
};

/// Interval of polls. A change is in use after two of them. Each reads a few kilobytes, which the
/// operating system has in memory.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Polls one source.
type Poll = Box<dyn FnMut() + Send>;

/// Loads values from files, and loads them again when the files change. Clones share the list of
/// sources.
#[derive(Clone)]
pub struct Reloader {
    polls: Arc<Mutex<Vec<Poll>>>,
    clock: Clock,
    metrics: Metrics,
}

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reloader")
    }
}

impl Reloader {
    /// A reloader without sources. Values that it loads do not change until [`Reloader::run`].
    pub fn new(clock: Clock, metrics: Metrics) -> Self {
        Self { polls: Arc::default(), clock, metrics }
    }

    /// Loads a value for the first time, and registers its source. `name` is the setting with the
    /// files, for log and metrics.
    ///
    /// # Errors
    /// The value cannot be loaded.
    pub fn load<S: FileSource>(
        &self,
        name: &str,
        source: S,
    ) -> Result<Reloaded<S::Value>, S::Error> {
        let (clock, metrics) = (self.clock.clone(), self.metrics.clone());
        let (mut watched, value) = Watched::load(name, source, clock, metrics)?;
        let poll: Poll = Box::new(move || watched.poll());
        self.polls.lock().unwrap_or_else(PoisonError::into_inner).push(poll);
        Ok(value)
    }

    /// Polls all sources, forever.
    pub async fn run(self) {
        let mut ticks = ticks(POLL_INTERVAL);
        loop {
            ticks.tick().await;
            self.poll().await;
        }
    }

    /// Polls all sources once.
    pub async fn poll(&self) {
        let polls = Arc::clone(&self.polls);
        // On a thread of its own, because reading can block, for example on a network file system.
        let round = tokio::task::spawn_blocking(move || {
            for poll in polls.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
                poll();
            }
        });
        if let Err(error) = round.await {
            tracing::error!(%error, "reading changed files again failed");
        }
    }
}
