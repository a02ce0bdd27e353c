//! Logs to stderr.

use std::str::FromStr;

use tracing_subscriber::{EnvFilter, layer::SubscriberExt as _, util::SubscriberInitExt as _};

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("text or json".to_owned()),
        }
    }
}

/// Parses a log filter such as `info` or `tenant_broker=debug,kube=warn`.
///
/// # Errors
/// The text is not a filter.
pub fn log_filter(text: &str) -> Result<EnvFilter, String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    // A single word that is not a level would be taken as the name of a module, and silence
    // everything.
    let single_word = !text.contains(['=', ',', '[']);
    if single_word && !LEVELS.contains(&text.to_lowercase().as_str()) {
        return Err(format!("one of {}, or a filter", LEVELS.join(", ")));
    }
    EnvFilter::try_new(text).map_err(|error| error.to_string())
}

/// Starts logging to stderr, once per process.
pub fn start_logging(filter: EnvFilter, format: LogFormat) {
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    // A second call (in tests) finds logging already started, which is fine.
    let _ = match format {
        LogFormat::Text => registry.with(layer.with_ansi(false)).try_init(),
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init(),
    };
}
