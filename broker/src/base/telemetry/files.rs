//! Metrics of files that are read again when they change.

use jiff::Timestamp;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

use super::registry::{Registrar, register, register_seconds};

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

    /// Counts an attempt to use changed files.
    pub(super) fn reload(&self, file: &str, is_used: bool) {
        let [used, refused] = OUTCOMES;
        let outcome = if is_used { used } else { refused };
        self.reloads.get_or_create(&ReloadLabels { file: file.to_owned(), outcome }).inc();
        self.current.get_or_create(&labels(file)).set(is_used.into());
    }

    /// Records when the contents of files came into use.
    pub(super) fn loaded(&self, file: &str, at: Timestamp) {
        for outcome in OUTCOMES {
            drop(self.reloads.get_or_create(&ReloadLabels { file: file.to_owned(), outcome }));
        }
        self.current.get_or_create(&labels(file)).set(1);
        self.loaded_timestamp.get_or_create(&labels(file)).set(at.as_second());
    }

    /// Records when a poll of files ended.
    pub(super) fn polled(&self, file: &str, at: Timestamp) {
        self.polled_timestamp.get_or_create(&labels(file)).set(at.as_second());
    }

    /// Sets the end of a certificate or token; `None` if it has no end.
    pub(super) fn expiry(&self, file: &str, at: Option<Timestamp>) {
        match at {
            Some(at) => {
                self.expiry_timestamp.get_or_create(&labels(file)).set(at.as_second());
            }
            None => {
                self.expiry_timestamp.remove(&labels(file));
            }
        }
    }
}

fn labels(file: &str) -> FileLabels {
    FileLabels { file: file.to_owned() }
}
