//! `cargo measure policies`: what the admission policies cost the API server, and how soon a
//! suspension cuts a tenant off.

mod cost;
mod guarded;
mod load;
mod manifest;
mod profile;
mod suspension;

pub use cost::{Floor, Plan, cost};
pub use guarded::Guarded;
pub use suspension::latency;
