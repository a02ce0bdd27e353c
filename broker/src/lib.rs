//! The broker.
pub mod audit;
pub mod clock;
pub mod db;
pub mod problem;
pub mod secret;
pub mod telemetry;
pub mod throttle;
