//! `cargo measure policies`: cost of the admission policies for the API server, and latency of a
//! suspension.

mod cost;
mod load;
mod manifest;
mod marker;
mod profile;
mod suspension;
mod testbed;

pub(super) use cost::shares;
pub use cost::{Baseline, Plan, cost};
pub use suspension::latency;
pub use testbed::{PolicyTestbed, manifest};
