//! Registration of metrics, with a list of what was registered, and their rendering.

use prometheus_client::{
    collector::Collector,
    encoding::{
        EncodeLabelSet,
        text::{encode_eof, encode_registry},
    },
    metrics::{MetricType, TypedMetric},
    registry::{Metric, Registry, Unit},
};

/// Labels of an outcome.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct OutcomeLabels {
    pub(super) outcome: &'static str,
}

/// Label of the cause of a failure.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct CauseLabels {
    pub(super) cause: &'static str,
}

/// A registered metric.
#[derive(Debug)]
pub(super) struct Descriptor {
    /// Name with prefix and unit, without the suffix that the type adds to samples.
    name: String,
    pub(super) kind: MetricType,
    /// The unit; empty if there is none.
    pub(super) unit: String,
    pub(super) help: String,
}

impl Descriptor {
    /// The name in queries. The samples of a histogram have the suffixes `_bucket`, `_sum` and
    /// `_count` in addition.
    pub(super) fn query_name(&self) -> String {
        match self.kind {
            MetricType::Counter => format!("{}_total", self.name),
            MetricType::Info => format!("{}_info", self.name),
            _ => self.name.clone(),
        }
    }

    /// The name of one of its samples.
    pub(super) fn sample_name(&self) -> String {
        match self.kind {
            MetricType::Histogram => format!("{}_count", self.name),
            _ => self.query_name(),
        }
    }
}

/// A registry to which metrics are added.
#[derive(Debug)]
pub(super) struct Registrar {
    prefix: &'static str,
    registry: Registry,
    descriptors: Vec<Descriptor>,
}

impl Registrar {
    /// A registry of metrics whose names begin with this prefix and an underscore.
    pub(super) fn with_prefix(prefix: &'static str) -> Self {
        Self { prefix, registry: Registry::with_prefix(prefix), descriptors: Vec::new() }
    }

    /// Registers a metric with this name, without prefix and unit.
    pub(super) fn add<M: Metric + TypedMetric>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        metric: M,
    ) {
        self.describe(name, help, unit.as_ref(), M::TYPE);
        match unit {
            Some(unit) => self.registry.register_with_unit(name, help, unit, metric),
            None => self.registry.register(name, help, metric),
        }
    }

    /// Adds a metric to the list that a collector exports.
    pub(super) fn describe(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        kind: MetricType,
    ) {
        let unit = unit.map(|unit| unit.as_str().to_owned()).unwrap_or_default();
        let suffix = if unit.is_empty() { String::new() } else { format!("_{unit}") };
        let name = format!("{}_{name}{suffix}", self.prefix);
        self.descriptors.push(Descriptor { name, kind, unit, help: help.to_owned() });
    }

    /// Registers a collector; [`Registrar::describe`] adds its metrics to the list.
    pub(super) fn add_collector(&mut self, collector: impl Collector) {
        self.registry.register_collector(Box::new(collector));
    }
}

/// Registers a new metric with this name, without the prefix, and this help text.
pub(super) fn register<M: Metric + TypedMetric + Clone + Default>(
    registry: &mut Registrar,
    name: &str,
    help: &str,
) -> M {
    let metric = M::default();
    registry.add(name, help, None, metric.clone());
    metric
}

/// Registers this metric like [`register`], with the unit seconds.
pub(super) fn register_seconds<M: Metric + TypedMetric + Clone>(
    registry: &mut Registrar,
    name: &str,
    help: &str,
    metric: M,
) -> M {
    registry.add(name, help, Some(Unit::Seconds), metric.clone());
    metric
}

/// All registries, in the order of `/metrics`.
#[derive(Debug)]
pub(super) struct Exposition {
    registries: Vec<Registry>,
    descriptors: Vec<Descriptor>,
}

impl Exposition {
    /// The metrics of these registries.
    pub(super) fn new(registrars: [Registrar; 2]) -> Self {
        let (mut registries, mut descriptors) = (Vec::new(), Vec::new());
        for registrar in registrars {
            registries.push(registrar.registry);
            descriptors.extend(registrar.descriptors);
        }
        Self { registries, descriptors }
    }

    /// All metrics.
    pub(super) fn descriptors(&self) -> &[Descriptor] {
        &self.descriptors
    }

    /// Renders all samples in the `OpenMetrics` text format.
    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        for registry in &self.registries {
            let _ = encode_registry(&mut text, registry);
        }
        let _ = encode_eof(&mut text);
        text
    }
}
