//! Building blocks that know nothing of users, workspaces and clusters.

pub mod certificate;
pub mod clock;
pub mod db;
mod drain;
mod error_chain;
pub mod lease;
pub(crate) mod paging;
pub mod rate_limit;
pub mod reload;
pub mod request_context;
pub mod secret;
pub mod signing;
pub mod telemetry;
pub mod throttle;

pub(crate) use drain::drain;
pub use error_chain::error_chain;
