//! Metrics of files that are read again when they change.

use jiff::Timestamp;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

use super::{
    counts::{register, register_seconds},
    metrics::Metrics,
    registry::Registrar,
};

/// Values of the label `outcome`: the contents came into use, or were refused.
const OUTCOMES: [&str; 2] = ["ok", "refused"];

/// Label of files that are used together.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FileLabels {
    file: String,
}

/// Labels of an attempt to use changed files.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReloadLabels {
    file: String,
    outcome: &'static str,
}

#[derive(Debug)]
pub(super) struct FileMetrics {
    reloads: Family<ReloadLabels, Counter>,
    current: Family<FileLabels, Gauge>,
    loaded_timestamp: Family<FileLabels, Gauge>,
    polled_timestamp: Family<FileLabels, Gauge>,
    expiry_timestamp: Family<FileLabels, Gauge>,
}

impl FileMetrics {
    /// Registers the metrics.
    pub(super) fn new(registry: &mut Registrar) -> Self {
        Self {
            reloads: register(
                registry,
                "file_reloads",
                "Attempts to use files that changed while the broker ran",
            ),
            current: register(
                registry,
                "file_current",
                "1 if the broker uses what the files contain, 0 if it refused that",
            ),
            loaded_timestamp: register_seconds(
                registry,
                "file_loaded_timestamp",
                "Unix time at which the contents in use were read",
                Family::default(),
            ),
            polled_timestamp: register_seconds(
                registry,
                "file_polled_timestamp",
                "Unix time of the last completed comparison of the files with the contents in use",
                Family::default(),
            ),
            expiry_timestamp: register_seconds(
                registry,
                "credential_expiry_timestamp",
                "Unix time at which the certificate or token in use ends; no sample without an end",
                Family::default(),
            ),
        }
    }
}

impl Metrics {
    /// Counts an attempt to use changed files, which have the name of their setting.
    pub fn file_reload(&self, file: &str, is_used: bool) {
        let files = &self.0.files;
        let [used, refused] = OUTCOMES;
        let outcome = if is_used { used } else { refused };
        files.reloads.get_or_create(&ReloadLabels { file: file.to_owned(), outcome }).inc();
        files.current.get_or_create(&labels(file)).set(is_used.into());
    }

    /// Records when the contents of these files came into use. With the first contents the counters
    /// start at 0.
    pub fn file_loaded(&self, file: &str, at: Timestamp) {
        let files = &self.0.files;
        for outcome in OUTCOMES {
            drop(files.reloads.get_or_create(&ReloadLabels { file: file.to_owned(), outcome }));
        }
        files.current.get_or_create(&labels(file)).set(1);
        files.loaded_timestamp.get_or_create(&labels(file)).set(at.as_second());
    }

    /// Records when a poll of these files ended.
    pub fn file_polled(&self, file: &str, at: Timestamp) {
        self.0.files.polled_timestamp.get_or_create(&labels(file)).set(at.as_second());
    }

    /// Sets the end of the certificate or token of these files; `None` if they have no end.
    pub fn credential_expiry(&self, file: &str, at: Option<Timestamp>) {
        let ends = &self.0.files.expiry_timestamp;
        match at {
            Some(at) => {
                ends.get_or_create(&labels(file)).set(at.as_second());
            }
            None => {
                ends.remove(&labels(file));
            }
        }
    }
}

fn labels(file: &str) -> FileLabels {
    FileLabels { file: file.to_owned() }
}
