//! The measurements of `cargo measure`: each figure is compared with its baseline, and the two are
//! interleaved in one run, so that a machine whose speed drifts affects both.

mod alternation;
pub mod figure;
pub mod flood;
pub mod gateway;
pub mod issuance;
pub mod models;
mod objects;
pub mod plugin;
pub mod policies;
pub mod process_memory;
pub mod process_time;
mod raw;
pub mod startup;
mod tenant_requests;
pub mod tenants;
