//! One source with its current value: decides when its files have changed and what is used.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;

use super::{FileSource, Files, Loaded, Reloaded};
use crate::base::{certificate::Validity, clock::Clock, error_chain, telemetry::Metrics};

/// Polls between two attempts to use the same refused contents: about half a minute.
const POLLS_BETWEEN_RETRIES: u32 = 30;

const HOUR_MS: i64 = 60 * 60 * 1000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// A warning begins when this part of the validity is left, which is after the usual times of
/// renewal: two thirds of the validity for certificates, four fifths for tokens of pods.
const WARNING_PART: i64 = 8;
/// Maximum time from the first warning to the end.
const MAX_WARNING_MS: i64 = 30 * DAY_MS;
/// Time before its end at which a value is loaded again although no file has changed.
const RENEWAL_MS: i64 = 60 * 1000;
/// Time between two attempts to renew a value. A program may print the credential that is in use
/// until shortly before its end, because it keeps that in a cache.
const RENEWAL_RETRY_MS: i64 = 5 * 1000;

/// A source and its current value.
pub(super) struct WatchedSource<S: FileSource> {
    name: String,
    source: S,
    value: watch::Sender<Arc<S::Value>>,
    /// The contents that were decided on last: they are in use, or were refused.
    last_decided: Files,
    /// Other contents, which one poll has read.
    candidate: Option<Files>,
    refused: Option<RefusedContents>,
    end: Option<End>,
    renewal: Option<Renewal>,
    clock: Clock,
    metrics: Metrics,
}

/// The refusal of the decided contents.
struct RefusedContents {
    reason: String,
    polls: u32,
}

/// The end of the current value.
struct End {
    at: Timestamp,
    next_notice_ms: i64,
}

/// The end of a current value that is loaded again although its files do not change.
struct Renewal {
    ends_at: Timestamp,
    next_attempt_ms: i64,
    is_end_reported: bool,
}

impl<S: FileSource> WatchedSource<S> {
    /// Loads the first value.
    pub(super) fn load(
        name: &str,
        source: S,
        clock: Clock,
        metrics: Metrics,
    ) -> Result<(Self, Reloaded<S::Value>), S::Error> {
        let mut files = Files::default();
        let Loaded { value, validity } = source.load(&mut files)?;
        source.in_use(&value, None);
        let ends_at = source.ends_at(&value);
        let (sender, value) = Reloaded::channel(value);
        let mut watched = Self {
            name: name.to_owned(),
            source,
            value: sender,
            last_decided: files,
            candidate: None,
            refused: None,
            end: None,
            renewal: None,
            clock,
            metrics,
        };
        watched.record_in_use(validity, ends_at);
        watched.record_poll();
        Ok((watched, value))
    }

    /// Reads the files, and renews a value that ends. It reports the end of the current value,
    /// too.
    pub(super) fn poll(&mut self) {
        self.report_end();
        self.check_files();
        self.record_poll();
    }

    fn check_files(&mut self) {
        let is_changed = !self.last_decided.are_unchanged();
        let is_retry = self.is_retry_due();
        let is_renewal = self.is_renewal_due();
        if !is_changed && !is_retry && !is_renewal {
            self.candidate = None;
            return;
        }
        let mut files = Files::default();
        let loaded = self.source.load(&mut files);
        let is_stable = self.candidate.as_ref() == Some(&files);
        // A retry may read more files than the attempt before, which failed early.
        if !is_stable && (is_changed || files != self.last_decided) {
            self.candidate = Some(files);
            return;
        }
        self.candidate = None;
        if !is_changed && !is_retry && self.is_in_use(&loaded) {
            self.report_no_successor();
            return;
        }
        self.last_decided = files;
        match self.check(loaded) {
            Ok(loaded) => self.replace(loaded),
            Err(reason) => self.refuse(reason, is_changed),
        }
    }

    /// Counts a poll after a refusal; returns whether the contents are to be tried again.
    fn is_retry_due(&mut self) -> bool {
        let Some(refusal) = &mut self.refused else { return false };
        refusal.polls += 1;
        refusal.polls >= POLLS_BETWEEN_RETRIES
    }

    /// Whether the current value ends soon and is to be loaded again.
    fn is_renewal_due(&mut self) -> bool {
        let now_ms = self.clock.now_ms();
        let Some(renewal) = &mut self.renewal else { return false };
        let is_due = renewal.next_attempt_ms <= now_ms;
        if is_due {
            renewal.next_attempt_ms = now_ms.saturating_add(RENEWAL_RETRY_MS);
        }
        is_due
    }

    /// Whether this is the current value again: it ends at the same time.
    fn is_in_use(&self, loaded: &Result<Loaded<S::Value>, S::Error>) -> bool {
        let Some(renewal) = &self.renewal else { return false };
        loaded.as_ref().is_ok_and(|it| self.source.ends_at(&it.value) == Some(renewal.ends_at))
    }

    /// Reports once that the value that was loaded after the end of the current one is the same.
    fn report_no_successor(&mut self) {
        let now = self.clock.now();
        let Some(renewal) = &mut self.renewal else { return };
        if renewal.ends_at <= now && !renewal.is_end_reported {
            renewal.is_end_reported = true;
            self.metrics.file_reload(&self.name, false);
            tracing::warn!(
                file = %self.name, ends_at = %renewal.ends_at, advice = S::ADVICE,
                "a value ended, and was not replaced by a new one"
            );
        }
    }

    /// Checks a value that is to replace the current one. The error is the reason to refuse it.
    fn check(
        &self,
        loaded: Result<Loaded<S::Value>, S::Error>,
    ) -> Result<Loaded<S::Value>, String> {
        let loaded = loaded.map_err(|error| error_chain(&error))?;
        if let Some(Validity { from, until }) = loaded.validity {
            let now = self.clock.now();
            if until <= now {
                return Err(format!("it was valid until {until}"));
            }
            if from > now {
                return Err(format!("it is not valid before {from}"));
            }
        }
        self.source.check(&loaded.value).map_err(|error| error_chain(&error))?;
        Ok(loaded)
    }

    fn replace(&mut self, loaded: Loaded<S::Value>) {
        let ends_at = self.source.ends_at(&loaded.value);
        let value = Arc::new(loaded.value);
        let replaced = self.value.send_replace(Arc::clone(&value));
        self.source.in_use(&value, Some(&replaced));
        self.refused = None;
        self.metrics.file_reload(&self.name, true);
        self.record_in_use(loaded.validity, ends_at);
        tracing::info!(file = %self.name, "changed files were read again and are in use");
    }

    /// Keeps the current value. A retry that fails for the same reason is not reported again.
    fn refuse(&mut self, reason: String, is_changed: bool) {
        let is_known = self.refused.as_ref().is_some_and(|refusal| refusal.reason == reason);
        if is_changed || !is_known {
            self.metrics.file_reload(&self.name, false);
            tracing::warn!(
                file = %self.name, error = reason, advice = S::ADVICE,
                "changed files cannot be used; what was read before stays in use"
            );
        }
        self.refused = Some(RefusedContents { reason, polls: 0 });
    }

    /// Records that a poll has ended.
    fn record_poll(&self) {
        self.metrics.file_polled(&self.name, self.clock.now());
    }

    /// Records that the current value was loaded now. `ends_at` is the end of a value that is
    /// renewed.
    fn record_in_use(&mut self, validity: Option<Validity>, ends_at: Option<Timestamp>) {
        self.renewal = ends_at.map(|ends_at| {
            let next_attempt_ms = ends_at.as_millisecond().saturating_sub(RENEWAL_MS);
            Renewal { ends_at, next_attempt_ms, is_end_reported: false }
        });
        self.metrics.file_loaded(&self.name, self.clock.now());
        self.metrics.credential_expiry(&self.name, validity.map(|it| it.until));
        self.end = validity.map(|Validity { from, until }| {
            let (from_ms, until_ms) = (from.as_millisecond(), until.as_millisecond());
            let warning_ms = (until_ms.saturating_sub(from_ms) / WARNING_PART).min(MAX_WARNING_MS);
            End { at: until, next_notice_ms: until_ms.saturating_sub(warning_ms) }
        });
    }

    /// Reports that the current value ends soon or has ended: every day, and every hour from a day
    /// before the end.
    fn report_end(&mut self) {
        let now_ms = self.clock.now_ms();
        let Some(end) = &mut self.end else { return };
        if now_ms < end.next_notice_ms {
            return;
        }
        let left_ms = end.at.as_millisecond() - now_ms;
        if left_ms > 0 {
            tracing::warn!(
                file = %self.name, ends_at = %end.at, advice = S::ADVICE,
                "a certificate or token ends soon"
            );
        } else {
            tracing::error!(
                file = %self.name, ends_at = %end.at, advice = S::ADVICE,
                "a certificate or token has ended"
            );
        }
        end.next_notice_ms = now_ms + if left_ms > DAY_MS { DAY_MS } else { HOUR_MS };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    };

    use jiff::SignedDuration;

    use super::*;

    const NOW: &str = "2026-01-02T00:00:00Z";

    /// A credential that a program prints: its number is in no file, and its end is.
    #[derive(Clone)]
    struct ProgramCredential {
        ends_at: Arc<Mutex<Timestamp>>,
        runs: Arc<AtomicU32>,
        accepts: Arc<AtomicBool>,
    }

    #[derive(Debug, thiserror::Error)]
    #[error("the credential is not accepted")]
    struct NotAccepted;

    impl FileSource for ProgramCredential {
        type Value = (u32, Timestamp);
        type Error = NotAccepted;

        const ADVICE: &'static str = "mend the program";

        fn load(&self, _files: &mut Files) -> Result<Loaded<Self::Value>, NotAccepted> {
            let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
            Ok(Loaded::without_end((run, *self.ends_at.lock().unwrap())))
        }

        fn check(&self, _value: &Self::Value) -> Result<(), NotAccepted> {
            if self.accepts.load(Ordering::SeqCst) { Ok(()) } else { Err(NotAccepted) }
        }

        fn ends_at(&self, value: &Self::Value) -> Option<Timestamp> {
            Some(value.1)
        }
    }

    #[test]
    fn a_value_with_an_end_of_its_own_is_renewed_before_it_ends_and_checked() {
        let start: Timestamp = NOW.parse().unwrap();
        let minutes = |count: i64| start + SignedDuration::from_mins(count);
        let clock = Clock::manual(start);
        let source = ProgramCredential {
            ends_at: Arc::new(Mutex::new(minutes(15))),
            runs: Arc::default(),
            accepts: Arc::new(AtomicBool::new(true)),
        };
        let loaded =
            WatchedSource::load("program", source.clone(), clock.clone(), Metrics::default());
        let (mut watched, value) = loaded.unwrap();
        let mut polled_after = |seconds: u32| {
            for _ in 0..seconds {
                clock.advance(1_000);
                watched.poll();
            }
            value.get().0
        };
        assert_eq!(polled_after(14 * 60 - 1), 1);
        assert_eq!(source.runs.load(Ordering::SeqCst), 1, "it ends in more than a minute");
        // The program prints the same credential: it is asked every five seconds.
        assert_eq!(polled_after(11), 1);
        assert_eq!(source.runs.load(Ordering::SeqCst), 4);
        // A credential of somebody else.
        *source.ends_at.lock().unwrap() = minutes(30);
        source.accepts.store(false, Ordering::SeqCst);
        assert_eq!(polled_after(10), 1, "the credential before stays in use");
        source.accepts.store(true, Ordering::SeqCst);
        assert!(polled_after(5) > 1);
        let runs = source.runs.load(Ordering::SeqCst);
        assert_eq!(polled_after(10 * 60), runs);
        assert_eq!(source.runs.load(Ordering::SeqCst), runs, "it ends in more than a minute");
        assert_eq!(value.get().1, minutes(30));
    }
}
