//! What `cargo measure` measures, and how: each figure beside its floor, the two interleaved in one
//! run, so that a machine whose speed drifts moves both.

pub mod figure;
pub mod flood;
pub mod gateway;
pub mod issuance;
pub mod plugin;
pub mod policies;
pub mod process_memory;
pub mod process_time;
pub mod startup;
