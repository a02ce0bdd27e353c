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

/// A source and its current value.
pub(super) struct Watched<S: FileSource> {
    name: String,
    source: S,
    value: watch::Sender<Arc<S::Value>>,
    /// The contents that were decided on last: they are in use, or were refused.
    decided: Files,
    /// Other contents, which one poll has read.
    unsettled: Option<Files>,
    refused: Option<Refusal>,
    end: Option<End>,
    clock: Clock,
    metrics: Metrics,
}

/// The refusal of the decided contents.
struct Refusal {
    reason: String,
    polls: u32,
}

/// The end of the current value.
struct End {
    at: Timestamp,
    next_notice_ms: i64,
}

impl<S: FileSource> Watched<S> {
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
        let (sender, value) = Reloaded::channel(value);
        let mut watched = Self {
            name: name.to_owned(),
            source,
            value: sender,
            decided: files,
            unsettled: None,
            refused: None,
            end: None,
            clock,
            metrics,
        };
        watched.record_in_use(validity);
        Ok((watched, value))
    }

    /// Looks at the files. It reports the end of the current value, too.
    pub(super) fn poll(&mut self) {
        self.report_end();
        let is_changed = !self.decided.are_unchanged();
        let is_retry = self.is_retry_due();
        if !is_changed && !is_retry {
            self.unsettled = None;
            return;
        }
        let mut files = Files::default();
        let loaded = self.source.load(&mut files);
        let is_settled = self.unsettled.as_ref() == Some(&files);
        // A retry may read more files than the attempt before, which failed early.
        if !is_settled && (is_changed || files != self.decided) {
            self.unsettled = Some(files);
            return;
        }
        self.unsettled = None;
        self.decided = files;
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
        let value = Arc::new(loaded.value);
        let replaced = self.value.send_replace(Arc::clone(&value));
        self.source.in_use(&value, Some(&replaced));
        self.refused = None;
        self.metrics.file_reload(&self.name, true);
        self.record_in_use(loaded.validity);
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
        self.refused = Some(Refusal { reason, polls: 0 });
    }

    /// Records that the current value was loaded now.
    fn record_in_use(&mut self, validity: Option<Validity>) {
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
