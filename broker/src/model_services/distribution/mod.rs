//! The Llama Stack of a namespace: a `LlamaStackDistribution` (`llamastack.io/v1alpha1`) and its
//! ConfigMap.

mod conflict;
mod delete;
mod desired;
mod failed;
mod in_flight;
mod install;
mod model;
mod objects;
mod record;
mod request;
mod resolve;
mod run_yaml;
mod status;
mod view;
mod write;

pub use desired::DistributionSettings;
pub(super) use in_flight::ChangesInFlight;
pub(super) use request::name_to_delete;
