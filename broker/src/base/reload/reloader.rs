//! The loops that read the files again.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::task::JoinSet;

use super::{FileSource, Reloaded, watched_source::WatchedSource};
use crate::base::{
    clock::{Clock, ticks},
    telemetry::Metrics,
};

/// Interval of polls. A change is in use after two of them. Each reads a few kilobytes, which the
/// operating system has in memory.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time after which a poll that has not ended is reported. Programs and checks have shorter
/// timeouts, so it waits for a file system.
const SLOW_POLL: Duration = Duration::from_mins(1);
/// Time until a source whose poll panicked is polled again.
const PANIC_BACKOFF: Duration = Duration::from_secs(30);

/// Polls one source.
type Poll = Box<dyn FnMut() + Send>;

/// Loads values from files, and loads them again when the files change. Clones share the list of
/// sources.
#[derive(Clone)]
pub struct Reloader {
    sources: Arc<Mutex<Vec<PolledSource>>>,
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
        Self { sources: Arc::default(), clock, metrics }
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
        let (mut watched, value) = WatchedSource::load(name, source, clock, metrics)?;
        let poll: Poll = Box::new(move || watched.poll());
        let source = PolledSource { name: name.into(), poll: Arc::new(Mutex::new(poll)) };
        self.sources().push(source);
        Ok(value)
    }

    /// Polls all sources that were loaded before, forever. Each has a loop of its own, because a
    /// file system or a program can hang.
    pub async fn run(self) {
        let mut loops = JoinSet::new();
        for source in self.registered() {
            loops.spawn(source.run());
        }
        // They do not end.
        while loops.join_next().await.is_some() {}
    }

    /// Polls all sources once, one after the other.
    pub async fn poll(&self) {
        for source in self.registered() {
            source.poll().await;
        }
    }

    fn registered(&self) -> Vec<PolledSource> {
        self.sources().clone()
    }

    fn sources(&self) -> MutexGuard<'_, Vec<PolledSource>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A registered source.
#[derive(Clone)]
struct PolledSource {
    name: Arc<str>,
    poll: Arc<Mutex<Poll>>,
}

impl PolledSource {
    /// Polls forever, also after a panic.
    async fn run(self) {
        let mut ticks = ticks(POLL_INTERVAL);
        loop {
            ticks.tick().await;
            if !self.poll().await {
                tokio::time::sleep(PANIC_BACKOFF).await;
            }
        }
    }

    /// Polls once. Returns whether the poll ended without a panic.
    async fn poll(&self) -> bool {
        let poll = Arc::clone(&self.poll);
        // On a thread of its own, because reading can block, for example on a network file system.
        let mut polling = tokio::task::spawn_blocking(move || {
            let mut poll = poll.lock().unwrap_or_else(PoisonError::into_inner);
            (*poll)();
        });
        let ended = if let Ok(ended) = tokio::time::timeout(SLOW_POLL, &mut polling).await {
            ended
        } else {
            tracing::error!(
                file = %self.name,
                "reading files again takes longer than a minute; their file system may hang"
            );
            polling.await
        };
        if let Err(error) = &ended {
            tracing::error!(file = %self.name, %error, "reading changed files again failed");
        }
        ended.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        os::unix::fs::symlink,
        path::{Path, PathBuf},
        process::Command,
    };

    use jiff::Timestamp;
    use secrecy::ExposeSecret as _;

    use super::*;
    use crate::base::reload::{FileError, Files, Loaded};

    const NOW: &str = "2026-01-02T00:00:00Z";
    /// Limit for the uses of a changed file. It takes two seconds.
    const TIMEOUT: Duration = Duration::from_secs(20);

    /// A text file; the text `panic` makes the source panic.
    struct Text(PathBuf);

    impl FileSource for Text {
        type Value = String;
        type Error = FileError;

        const ADVICE: &'static str = "write the file";

        fn load(&self, files: &mut Files) -> Result<Loaded<String>, FileError> {
            let text = files.read_text(&self.0)?.expose_secret().to_owned();
            assert_ne!(text, "panic");
            Ok(Loaded::without_end(text))
        }
    }

    /// Waits until a value is this text.
    async fn until_it_is(value: &Reloaded<String>, text: &str) {
        let waiting = async {
            while *value.get() != text {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, waiting).await.expect(text);
    }

    /// The time of the last poll of these files.
    fn polled_at(metrics: &Metrics, file: &str) -> Option<i64> {
        let prefix = format!("tenant_broker_file_polled_timestamp_seconds{{file=\"{file}\"}} ");
        metrics.render().lines().find_map(|line| line.strip_prefix(&prefix)?.parse().ok())
    }

    /// A reloader with the sources `bad` and `good`, whose files are in the folder.
    fn two_sources(
        folder: &Path,
        clock: Clock,
        metrics: &Metrics,
    ) -> (Reloader, Reloaded<String>, Reloaded<String>) {
        let reloader = Reloader::new(clock, metrics.clone());
        let [bad, good] = ["bad", "good"].map(|name| {
            let path = folder.join(name);
            fs::write(&path, "old").unwrap();
            reloader.load(name, Text(path)).unwrap()
        });
        (reloader, bad, good)
    }

    /// A pipe in the place of a file, so that opening the file waits for a writer. When it is
    /// dropped, the file has the text `new`, and a reader that waited gets an empty text.
    struct PipeAsFile {
        path: PathBuf,
        pipe: PathBuf,
    }

    impl PipeAsFile {
        fn in_place_of(path: PathBuf) -> Self {
            let pipe = path.with_extension("pipe");
            assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            fs::remove_file(&path).unwrap();
            symlink(&pipe, &path).unwrap();
            Self { path, pipe }
        }
    }

    impl Drop for PipeAsFile {
        fn drop(&mut self) {
            // A reader that waits would keep a failed test from ending.
            let _ = fs::remove_file(&self.path);
            let _ = fs::write(&self.path, "new");
            let _ = File::options().read(true).write(true).open(&self.pipe);
        }
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_to_its_end_stops_no_other_source() {
        let folder = tempfile::tempdir().unwrap();
        let metrics = Metrics::default();
        let (reloader, bad, good) = two_sources(folder.path(), Clock::system(), &metrics);
        let pipe = PipeAsFile::in_place_of(folder.path().join("bad"));
        let running = tokio::spawn(reloader.run());
        for text in ["new", "newer"] {
            fs::write(folder.path().join("good"), text).unwrap();
            until_it_is(&good, text).await;
        }
        assert_eq!(*bad.get(), "old");

        // The source continues when the file does.
        drop(pipe);
        until_it_is(&bad, "new").await;
        running.abort();
    }

    #[tokio::test]
    async fn a_source_that_panics_is_polled_again_and_stops_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let metrics = Metrics::default();
        let start: Timestamp = NOW.parse().unwrap();
        let clock = Clock::manual(start);
        let (reloader, bad, good) = two_sources(folder.path(), clock.clone(), &metrics);
        let poll_twice = async || {
            reloader.poll().await;
            reloader.poll().await;
        };
        clock.advance(5_000);
        fs::write(folder.path().join("bad"), "panic").unwrap();
        fs::write(folder.path().join("good"), "new").unwrap();
        poll_twice().await;
        assert_eq!((bad.get().as_str(), good.get().as_str()), ("old", "new"));
        let after = start.as_second() + 5;
        assert_eq!(polled_at(&metrics, "good"), Some(after));
        assert_eq!(polled_at(&metrics, "bad"), Some(start.as_second()), "no poll was completed");

        fs::write(folder.path().join("bad"), "new").unwrap();
        poll_twice().await;
        assert_eq!(*bad.get(), "new");
        assert_eq!(polled_at(&metrics, "bad"), Some(after));
    }
}
