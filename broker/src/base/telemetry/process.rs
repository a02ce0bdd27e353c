//! Metrics of the broker's process, with the names that Prometheus' client libraries share. Their
//! values are read at each scrape, from getrusage(2), getrlimit(2) and `/proc/self` (proc(5)).

use std::{fmt, fs, time::Duration};

use nix::sys::{
    resource::{Resource, UsageWho, getrlimit, getrusage},
    time::TimeValLike as _,
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{
        MetricType,
        counter::ConstCounter,
        gauge::{ConstGauge, Gauge},
    },
    registry::Unit,
};

use super::registry::Registrar;

/// A metric that is read at each scrape.
struct ProcessMetric {
    name: &'static str,
    unit: Option<Unit>,
    kind: MetricType,
    help: &'static str,
    /// Reads the value; `None` if the system does not tell it.
    read: fn() -> Option<f64>,
}

static METRICS: [ProcessMetric; 4] = [
    ProcessMetric {
        name: "cpu",
        unit: Some(Unit::Seconds),
        kind: MetricType::Counter,
        help: "CPU time of the broker, in user and kernel mode",
        read: cpu_seconds,
    },
    ProcessMetric {
        name: "resident_memory",
        unit: Some(Unit::Bytes),
        kind: MetricType::Gauge,
        help: "Resident memory of the broker (Linux)",
        read: resident_bytes,
    },
    ProcessMetric {
        name: "open_fds",
        unit: None,
        kind: MetricType::Gauge,
        help: "Open file descriptors of the broker, connections among them (Linux)",
        read: open_fds,
    },
    ProcessMetric {
        name: "max_fds",
        unit: None,
        kind: MetricType::Gauge,
        help: "Maximum number of file descriptors (RLIMIT_NOFILE); no sample without a limit",
        read: max_fds,
    },
];

/// Registers the metrics of the process. Returns the one that is not read: the time of its start.
pub(super) fn register(registrar: &mut Registrar) -> Gauge {
    let started_at: Gauge = Gauge::default();
    let help = "Unix time at which the broker started";
    registrar.add("start_time", help, Some(Unit::Seconds), started_at.clone());
    for metric in &METRICS {
        registrar.describe(metric.name, metric.help, metric.unit.as_ref(), metric.kind);
    }
    registrar.add_collector(ProcessCollector);
    started_at
}

/// Reads [`METRICS`].
#[derive(Debug)]
struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for metric in &METRICS {
            let Some(value) = (metric.read)() else { continue };
            // The registry adds the full stop to other help texts.
            let help = format!("{}.", metric.help);
            let unit = metric.unit.as_ref();
            let encoder = encoder.encode_descriptor(metric.name, &help, unit, metric.kind)?;
            match metric.kind {
                MetricType::Counter => ConstCounter::new(value).encode(encoder)?,
                _ => ConstGauge::new(value).encode(encoder)?,
            }
        }
        Ok(())
    }
}

fn cpu_seconds() -> Option<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let microseconds = (usage.user_time() + usage.system_time()).num_microseconds();
    Some(Duration::from_micros(u64::try_from(microseconds).ok()?).as_secs_f64())
}

fn resident_bytes() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    resident_kib(&status).map(|kib| kib * 1024.0)
}

/// Finds the resident set size in the text of `/proc/self/status`, in KiB.
fn resident_kib(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim_end().parse().ok()
}

fn open_fds() -> Option<f64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count();
    u32::try_from(count).ok().map(f64::from)
}

fn max_fds() -> Option<f64> {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    u32::try_from(soft).ok().map(f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_memory_is_read_with_its_unit_only() {
        let status = "Name:\ttenant-broker\nVmHWM:\t   9000 kB\nVmRSS:\t   8192 kB\nThreads:\t3\n";
        assert_eq!(resident_kib(status), Some(8192.0));
        assert_eq!(resident_kib("VmRSS:\t8192\n"), None);
        assert_eq!(resident_kib("Name:\tVmRSS: 1 kB\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn every_metric_of_a_running_process_has_a_value() {
        for metric in &METRICS {
            let value = (metric.read)();
            // A process may have no limit.
            assert!(value.is_some_and(|it| it > 0.0) || metric.name == "max_fds", "{value:?}");
        }
    }
}
