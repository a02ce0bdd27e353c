//! Settings of logs (`log.*`).

use super::{
    declaration::{Declaration, Setting},
    parse::from_str,
};
use crate::base::telemetry::{self, LogFormat};

pub(super) const LEVEL: Setting<String> = Setting::new(
    "log.level",
    "info",
    log_filter,
    "A level, or a filter such as tenant_broker=debug,kube=warn.",
);
pub(super) const FORMAT: Setting<LogFormat> =
    Setting::new("log.format", "text", from_str, "text or json.");
pub(super) const SETTINGS: &[&dyn Declaration] = &[&LEVEL, &FORMAT];

fn log_filter(text: &str) -> Result<String, String> {
    telemetry::log_filter(text).map(|_| text.to_owned())
}
