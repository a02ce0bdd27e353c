//! Tests of sources whose files are replaced in different ways.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use integration::mounted_secret::MountedSecret;
use jiff::{SignedDuration, Timestamp};
use secrecy::ExposeSecret as _;
use tempfile::TempDir;

use super::{watched_source::WatchedSource, *};
use crate::{
    base::{certificate::Validity, clock::Clock, telemetry::Metrics},
    testing::Log,
};

/// Two files that must have the same text, which ends with a full stop and a line break.
struct Pair {
    paths: [PathBuf; 2],
    validity: Arc<Mutex<Option<Validity>>>,
    /// Whether the check of a new text succeeds.
    accepts: Arc<AtomicBool>,
}

#[derive(Debug, thiserror::Error)]
enum PairError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("a text is not complete")]
    Incomplete,
    #[error("the texts differ")]
    Mismatch,
    #[error("the text is not accepted")]
    NotAccepted,
}

impl FileSource for Pair {
    type Value = String;
    type Error = PairError;

    const ADVICE: &'static str = "write both files";

    fn load(&self, files: &mut Files) -> Result<Loaded<String>, PairError> {
        let [one, other] = self.paths.each_ref().map(|path| files.read_text(path));
        let (one, other) = (one?, other?);
        if !one.expose_secret().ends_with('.') || !other.expose_secret().ends_with('.') {
            return Err(PairError::Incomplete);
        }
        if one.expose_secret() != other.expose_secret() {
            return Err(PairError::Mismatch);
        }
        let validity = *self.validity.lock().unwrap();
        Ok(Loaded { value: one.expose_secret().to_owned(), validity })
    }

    fn check(&self, _value: &String) -> Result<(), PairError> {
        let accepts = self.accepts.load(Ordering::SeqCst);
        if accepts { Ok(()) } else { Err(PairError::NotAccepted) }
    }
}

/// A watched pair with the text "old.".
struct Fixture {
    folder: TempDir,
    clock: Clock,
    metrics: Metrics,
    validity: Arc<Mutex<Option<Validity>>>,
    accepts: Arc<AtomicBool>,
    watched: WatchedSource<Pair>,
    value: Reloaded<String>,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["one", "other"].map(|name| folder.path().join(name));
        for path in &paths {
            fs::write(path, "old.\n").unwrap();
        }
        Self::at(folder, paths, None)
    }

    fn with_validity(validity: Validity) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one");
        fs::write(&path, "old.\n").unwrap();
        Self::at(folder, [path.clone(), path], Some(validity))
    }

    fn at(folder: TempDir, paths: [PathBuf; 2], validity: Option<Validity>) -> Self {
        let clock = Clock::manual(NOW.parse().unwrap());
        let metrics = Metrics::default();
        let validity = Arc::new(Mutex::new(validity));
        let accepts = Arc::new(AtomicBool::new(true));
        let source = Pair { paths, validity: Arc::clone(&validity), accepts: Arc::clone(&accepts) };
        let loaded = WatchedSource::load("pair", source, clock.clone(), metrics.clone());
        let (watched, value) = loaded.unwrap();
        Self { folder, clock, metrics, validity, accepts, watched, value }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn write_both(&self, text: &str) {
        self.write("one", text);
        self.write("other", text);
    }

    fn polled(&mut self, times: u32) -> String {
        for _ in 0..times {
            self.watched.poll();
        }
        (*self.value.get()).clone()
    }

    /// The value of a metric with this name and these labels.
    fn metric(&self, name: &str) -> Option<i64> {
        let text = self.metrics.render();
        let prefix = format!("tenant_broker_{name} ");
        text.lines().find_map(|line| line.strip_prefix(&prefix)?.parse().ok())
    }

    fn reloads(&self, outcome: &str) -> i64 {
        let name = format!("file_reloads_total{{file=\"pair\",outcome=\"{outcome}\"}}");
        self.metric(&name).expect("the counter starts at 0")
    }
}

const NOW: &str = "2026-01-02T00:00:00Z";

#[test]
fn changed_files_are_used_after_two_polls() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.polled(3), "old.");
    fixture.write_both("new.\n");
    assert_eq!(fixture.polled(1), "old.");
    assert_eq!(fixture.polled(1), "new.");
    fixture.clock.advance(5_000);
    assert_eq!(fixture.polled(3), "new.");
    assert_eq!((fixture.reloads("ok"), fixture.reloads("refused")), (1, 0));
    let loaded = fixture.metric("file_loaded_timestamp_seconds{file=\"pair\"}");
    assert_eq!(loaded, Some(NOW.parse::<Timestamp>().unwrap().as_second()));
}

#[test]
fn a_mounted_secret_is_read_again_when_its_link_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    let secret = MountedSecret::new(&secret, &[("one", "old.\n"), ("other", "old.\n")]).unwrap();
    let paths = ["one", "other"].map(|name| secret.path(name));
    let mut fixture = Fixture::at(folder, paths, None);
    for text in ["new.\n", "newer.\n", "old.\n"] {
        secret.replace(&[("one", text), ("other", text)]).unwrap();
        assert_eq!(fixture.polled(2), text.trim());
    }
    assert_eq!((fixture.reloads("ok"), fixture.reloads("refused")), (3, 0));
    // A link that leads nowhere for a moment is no change.
    secret.replace(&[]).unwrap();
    assert_eq!(fixture.polled(1), "old.");
    secret.replace(&[("one", "old.\n"), ("other", "old.\n")]).unwrap();
    assert_eq!(fixture.polled(3), "old.");
    assert_eq!((fixture.reloads("ok"), fixture.reloads("refused")), (3, 0));
}

#[test]
fn only_the_content_decides_whether_a_file_has_changed() {
    let mut fixture = Fixture::new();
    // Written again, also as another file with another time.
    fixture.write_both("old.\n");
    assert_eq!(fixture.polled(3), "old.");
    assert_eq!(fixture.reloads("ok"), 0);
    // Another content of the same size at the same time.
    let paths = ["one", "other"].map(|name| fixture.folder.path().join(name));
    let times = paths.each_ref().map(|path| fs::metadata(path).unwrap().modified().unwrap());
    fixture.write_both("new.\n");
    for (path, time) in paths.iter().zip(times) {
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }
    assert_eq!(fixture.polled(2), "new.");
}

#[test]
fn files_that_are_being_written_are_not_refused() {
    let mut fixture = Fixture::new();
    for text in ["n", "new", "new."] {
        fixture.write("one", text);
        assert_eq!(fixture.polled(1), "old.");
    }
    fixture.write("other", "");
    assert_eq!(fixture.polled(1), "old.");
    fixture.write("other", "new.");
    assert_eq!(fixture.polled(1), "old.");
    assert_eq!(fixture.polled(1), "new.");
    assert_eq!((fixture.reloads("ok"), fixture.reloads("refused")), (1, 0));
}

#[test]
fn unusable_files_are_refused_once_and_the_good_value_stays() {
    let mut fixture = Fixture::new();
    let current = |fixture: &Fixture| fixture.metric("file_current{file=\"pair\"}");
    assert_eq!(current(&fixture), Some(1));
    let too_large = "x".repeat(MAX_FILE_BYTES + 1);
    for (refused, text) in (1..).zip(["new", "", "\n", &*too_large]) {
        fixture.write("one", text);
        assert_eq!(fixture.polled(10), "old.");
        assert_eq!((fixture.reloads("refused"), current(&fixture)), (refused, Some(0)));
    }
    fixture.write("one", "other.");
    assert_eq!(fixture.polled(2), "old.");
    fs::remove_file(fixture.folder.path().join("one")).unwrap();
    assert_eq!(fixture.polled(2), "old.");
    fs::write(fixture.folder.path().join("one"), [0xff, b'.']).unwrap();
    assert_eq!(fixture.polled(2), "old.");
    assert_eq!((fixture.reloads("ok"), fixture.reloads("refused")), (0, 7));
    fixture.write_both("new.");
    assert_eq!(fixture.polled(2), "new.");
    assert_eq!((fixture.reloads("ok"), current(&fixture)), (1, Some(1)));
}

#[test]
fn a_value_that_fails_its_check_is_tried_again() {
    let mut fixture = Fixture::new();
    fixture.accepts.store(false, Ordering::SeqCst);
    fixture.write_both("new.");
    assert_eq!(fixture.polled(100), "old.");
    assert_eq!(fixture.reloads("refused"), 1, "the same reason is reported once");
    fixture.accepts.store(true, Ordering::SeqCst);
    assert_eq!(fixture.polled(30), "new.");
    assert_eq!((fixture.reloads("ok"), fixture.reloads("refused")), (1, 1));
}

/// A file that cannot be read for a reason that is not in the file.
struct Unavailable {
    path: PathBuf,
    is_available: Arc<AtomicBool>,
}

impl FileSource for Unavailable {
    type Value = String;
    type Error = PairError;

    const ADVICE: &'static str = "wait";

    fn load(&self, files: &mut Files) -> Result<Loaded<String>, PairError> {
        if !self.is_available.load(Ordering::SeqCst) {
            return Err(PairError::NotAccepted);
        }
        Ok(Loaded::without_end(files.read_text(&self.path)?.expose_secret().to_owned()))
    }
}

#[test]
fn a_source_that_fails_before_it_reads_its_files_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "old").unwrap();
    let is_available = Arc::new(AtomicBool::new(true));
    let source = Unavailable { path: path.clone(), is_available: Arc::clone(&is_available) };
    let loaded = WatchedSource::load("file", source, Clock::system(), Metrics::default());
    let (mut watched, value) = loaded.unwrap();
    let mut polled = |times: u32| {
        (0..times).for_each(|_| watched.poll());
        (*value.get()).clone()
    };
    is_available.store(false, Ordering::SeqCst);
    fs::write(&path, "new").unwrap();
    assert_eq!(polled(10), "old");
    is_available.store(true, Ordering::SeqCst);
    assert_eq!(polled(32), "new");
}

#[test]
fn a_credential_that_has_ended_or_not_begun_replaces_no_other() {
    let now: Timestamp = NOW.parse().unwrap();
    let hours = |hours: i64| now + SignedDuration::from_hours(hours);
    let mut fixture = Fixture::with_validity(Validity { from: hours(-1), until: hours(1) });
    let end =
        |fixture: &Fixture| fixture.metric("credential_expiry_timestamp_seconds{file=\"pair\"}");
    assert_eq!(end(&fixture), Some(hours(1).as_second()));
    for (from, until) in [(-2, -1), (-2, 0), (1, 2)] {
        let validity = Validity { from: hours(from), until: hours(until) };
        *fixture.validity.lock().unwrap() = Some(validity);
        fixture.write("one", &format!("{from} to {until}."));
        assert_eq!(fixture.polled(2), "old.");
    }
    assert_eq!((fixture.reloads("ok"), fixture.reloads("refused")), (0, 3));
    // It begins to be valid while it waits.
    fixture.clock.advance(3_600_000);
    assert_eq!(fixture.polled(30), "1 to 2.");
    assert_eq!(end(&fixture), Some(hours(2).as_second()));
    *fixture.validity.lock().unwrap() = None;
    fixture.write("one", "without an end.");
    assert_eq!(fixture.polled(2), "without an end.");
    assert_eq!(end(&fixture), None);
}

#[test]
fn warnings_begin_an_eighth_of_the_validity_before_the_end() {
    const DAY_MS: i64 = 24 * 60 * 60 * 1000;
    let now: Timestamp = NOW.parse().unwrap();
    let until = now + SignedDuration::from_hours(80 * 24);
    let mut fixture = Fixture::with_validity(Validity { from: now, until });
    // The level of each line, for polls at this interval.
    let mut levels = |polls: u32, interval_ms: i64| {
        let log = Log::of(|| {
            for _ in 0..polls {
                fixture.clock.advance(interval_ms);
                fixture.watched.poll();
            }
        });
        assert!(log.lines().all(|line| line.contains("file=pair")), "{log}");
        let level = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
        log.lines().map(level).collect::<Vec<_>>()
    };
    assert!(levels(69, DAY_MS).is_empty());
    // Ten days before the end: once a day, however often it is polled.
    assert_eq!(levels(36, DAY_MS / 4), ["WARN"; 9]);
    assert_eq!(levels(96, DAY_MS / 96), ["WARN"; 1]);
    // The last day: once an hour.
    assert_eq!(levels(23 * 4, DAY_MS / 96), ["WARN"; 23]);
    assert_eq!(levels(8, DAY_MS / 96), ["ERROR"; 2]);
}

#[test]
fn a_refusal_is_logged_with_its_reason_and_the_next_step() {
    let mut fixture = Fixture::new();
    let log = Log::of(|| {
        fixture.write("other", "new.");
        fixture.polled(20);
    });
    assert_eq!(log.lines().count(), 1, "{log}");
    for part in ["WARN", "file=pair", "the texts differ", "write both files"] {
        assert!(log.contains(part), "{part} is not in {log}");
    }
    let log = Log::of(|| {
        fixture.write("one", "new.");
        fixture.polled(20);
    });
    assert!(log.contains("INFO") && log.lines().count() == 1, "{log}");
}

#[test]
fn a_pipe_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::write(pipe, "text")
    });
    let mut files = Files::default();
    assert_eq!(files.read_text(&pipe).unwrap().expose_secret(), "text");
    writer.join().unwrap().unwrap();
    // Otherwise it waits for a writer.
    assert!(files.are_unchanged());
}

#[test]
fn the_error_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let error = |path: &Path| Files::default().read(path).map(drop).unwrap_err();
    let missing = error(&folder.path().join("missing"));
    assert!(matches!(missing, FileError::Unreadable { .. }));
    assert!(missing.to_string().contains("missing: No such file"), "{missing}");
    let directory = error(folder.path());
    assert!(matches!(directory, FileError::Unreadable { .. }), "{directory}");
    let empty = folder.path().join("empty");
    fs::write(&empty, "").unwrap();
    assert!(error(&empty).to_string().ends_with("empty is empty"));
}

#[tokio::test]
async fn the_reloader_polls_all_of_its_sources() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one");
    fs::write(&path, "old.").unwrap();
    let reloader = Reloader::new(Clock::system(), Metrics::default());
    let source = || Pair {
        paths: [path.clone(), path.clone()],
        validity: Arc::default(),
        accepts: Arc::new(AtomicBool::new(true)),
    };
    let (one, other) =
        (reloader.load("one", source()).unwrap(), reloader.load("other", source()).unwrap());
    let running = tokio::spawn(reloader.run());
    fs::write(&path, "new.").unwrap();
    let both_are_new = async {
        while [&one, &other].map(|value| (*value.get()).clone()) != ["new.", "new."] {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), both_are_new).await.unwrap();
    running.abort();
    assert_eq!(*Reloaded::fixed(1).get(), 1);
    fs::write(&path, "").unwrap();
    let reloader = Reloader::new(Clock::system(), Metrics::default());
    assert!(reloader.load("one", source()).is_err(), "there is no value before");
}
