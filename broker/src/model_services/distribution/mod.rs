//! `LlamaStackDistribution` (`llamastack.io/v1alpha1`) and its ConfigMap.

mod desired;
mod model;
mod run_yaml;
mod view;

pub use desired::DistributionSettings;
