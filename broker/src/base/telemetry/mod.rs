//! Telemetry: logs and Prometheus metrics.
//!
//! Log levels: `error` needs an operator; `warn` may need one; `info` is one line per request and
//! per change of state; `debug` and `trace` add the messages of libraries. No level may contain a
//! token, a password or a session secret.

mod counts;
mod files;
mod gateway;
mod health;
mod label_values;
mod logging;
mod metrics;
mod process;
mod reference;
mod registry;
mod requests;
mod status_label;
mod tenants;
mod workspaces;

pub use self::{
    label_values::LabelValues,
    logging::{LogFormat, log_filter, start_logging},
    metrics::{Metrics, SweepOutcome},
    reference::reference,
};
