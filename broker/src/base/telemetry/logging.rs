//! Logs to stderr.

use std::{io, str::FromStr};

use tenant_shared::{escape_json, is_terminal_unsafe};
use tracing::Metadata;
use tracing_subscriber::{
    EnvFilter, filter::filter_fn, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

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
    let registry =
        tracing_subscriber::registry().with(filter).with(filter_fn(|it| !may_have_secret(it)));
    let layer = tracing_subscriber::fmt::layer().with_writer(|| EscapedLines(io::stderr()));
    // A second call (in tests) finds logging already started, which is fine.
    let _ = match format {
        LogFormat::Text => registry.with(layer.with_ansi(false)).try_init(),
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init(),
    };
}

/// Writes each event as one line without characters that a terminal obeys, because messages of
/// others, such as those of the API server, are values of fields. The layer writes an event with one
/// call. In JSON format the escapes keep the values.
struct EscapedLines<W>(W);

impl<W: io::Write> io::Write for EscapedLines<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        // Nearly all events, and each request has one.
        if event.strip_suffix(b"\n").unwrap_or(event).iter().all(|byte| matches!(byte, b' '..=b'~'))
        {
            self.0.write_all(event)?;
            return Ok(event.len());
        }
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        if line.contains(is_terminal_unsafe) {
            // A line feed would begin a line that looks like another event.
            let mut escaped = escape_json(line).replace('\n', "\\n");
            escaped.push_str(&text[line.len()..]);
            self.0.write_all(escaped.as_bytes())?;
        } else {
            self.0.write_all(event)?;
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Whether a message of a library may contain a secret, so that it is not logged at any level: lines
/// of the file `.pgpass`, values of parameters of database URLs, and whole responses of the API
/// server that the Kubernetes client cannot parse.
fn may_have_secret(metadata: &Metadata<'_>) -> bool {
    let has_field = |name: &str| metadata.fields().field(name).is_some();
    match metadata.target() {
        "kube_client::client" => true,
        target if target.starts_with("sqlx_postgres::options") => {
            has_field("line") || has_field("value")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Log;

    #[test]
    fn messages_of_libraries_with_secrets_are_not_logged_at_any_level() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::registry()
            .with(log_filter("trace,sqlx_postgres=trace,kube_client::client=trace").unwrap())
            .with(filter_fn(|it| !may_have_secret(it)))
            .with(tracing_subscriber::fmt::layer().with_writer(move || writer.clone()));
        tracing::subscriber::with_default(subscriber, || {
            let secret = "hunter2";
            tracing::warn!(target: "sqlx_postgres::options::pgpass", line = secret, "malformed");
            tracing::warn!(target: "sqlx_postgres::options::parse", value = secret, "unknown");
            tracing::warn!(target: "kube_client::client", "{secret}");
            tracing::warn!(target: "sqlx_postgres::options::pgpass", path = "p", "cannot open");
            tracing::debug!(target: "kube_client::client::builder", "requesting");
        });
        let text = log.text();
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains("cannot open") && text.contains("requesting"), "{text}");
    }

    #[test]
    fn a_value_cannot_control_the_terminal_or_begin_a_line() {
        let value = "denied\u{1b}[2J\u{9b}31m\u{202e}\nERROR forged";
        let log_of = |is_json: bool| {
            let log = Log::default();
            let writer = log.clone();
            let layer = tracing_subscriber::fmt::layer()
                .with_ansi(false)
                .with_writer(move || EscapedLines(writer.clone()));
            let event = || tracing::warn!(error = %value, "it failed");
            if is_json {
                let subscriber = tracing_subscriber::registry().with(layer.json());
                tracing::subscriber::with_default(subscriber, event);
            } else {
                let subscriber = tracing_subscriber::registry().with(layer);
                tracing::subscriber::with_default(subscriber, event);
            }
            log.text()
        };
        for text in [log_of(true), log_of(false)] {
            let line = text.strip_suffix('\n').unwrap();
            assert!(!line.contains(is_terminal_unsafe), "{line:?}");
            assert!(line.contains("\\u202e") && line.contains("\\nERROR forged"), "{line:?}");
        }
        let event: serde_json::Value = serde_json::from_str(&log_of(true)).unwrap();
        assert_eq!(event["fields"]["error"], value);
    }
}
