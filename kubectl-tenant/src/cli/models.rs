//! Arguments of `models`.

use std::time::Duration;

use clap::{Args, Subcommand};
use tenant_shared::{DISTRIBUTION_NAME, is_dns_label};

use super::options::OutputArgs;
use crate::output::Format;

/// Maximum time that a command waits for Llama Stack.
const MAX_WAIT: Duration = Duration::from_hours(1);

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Models {
    #[command(subcommand)]
    pub(crate) action: Option<ModelsAction>,
    #[command(flatten)]
    pub(crate) listed: ListModels,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelsAction {
    /// List the models that KServe serves (the default)
    List(ListModels),
    /// Install a Llama Stack that uses these models
    Install(InstallModels),
    /// Show the phase of the Llama Stack
    Status(InNamespace),
    /// Delete the Llama Stack
    Delete(DeleteDistribution),
}

/// Flag of a command for one namespace.
#[derive(Debug, Args)]
pub(crate) struct NamespaceFlag {
    /// Namespace [default: that of your workspace]
    #[arg(short, long, value_name = "NAME", value_parser = dns_label)]
    pub(crate) namespace: Option<String>,
}

/// Flags of a command that shows data of one namespace.
#[derive(Debug, Args)]
pub(crate) struct InNamespace {
    #[command(flatten)]
    pub(crate) namespace: NamespaceFlag,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ListModels {
    #[command(flatten)]
    pub(crate) namespace: NamespaceFlag,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: ListFormat,
}

/// Output format of a list of models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ListFormat {
    /// Columns for people; may change.
    #[default]
    Table,
    /// More columns.
    Wide,
    /// One name a line, as the arguments of `models install`.
    Name,
    /// JSON with the fields of the broker's HTTP API; fields are added, never renamed.
    Json,
    /// The same as YAML.
    Yaml,
}

impl ListFormat {
    /// The format of the data; that of a table if columns or names are printed.
    pub(crate) fn of_data(self) -> Format {
        match self {
            Self::Table | Self::Wide | Self::Name => Format::Table,
            Self::Json => Format::Json,
            Self::Yaml => Format::Yaml,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct InstallModels {
    /// Names of models in the namespace
    #[arg(value_name = "MODEL", required = true, value_parser = object_name)]
    pub(crate) models: Vec<String>,
    /// Wait until Llama Stack is ready, at most this long, such as 5m or 90s
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) place: InNamespace,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteDistribution {
    /// Name of the LlamaStackDistribution
    #[arg(default_value = DISTRIBUTION_NAME, value_parser = object_name)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: InNamespace,
}

fn dns_label(text: &str) -> Result<String, String> {
    if is_dns_label(text) {
        Ok(text.to_owned())
    } else {
        Err("the name of a namespace has 1 to 63 lower case letters, digits and dashes, and begins \
             and ends with a letter or digit"
            .to_owned())
    }
}

/// Parses the name of an object: a DNS subdomain (RFC 1123).
fn object_name(text: &str) -> Result<String, String> {
    if text.len() <= 253 && text.split('.').all(is_dns_label) {
        Ok(text.to_owned())
    } else {
        Err("a name has lower case letters, digits, dashes and dots, 253 at most".to_owned())
    }
}

/// Parses a duration: a number with the unit `s`, `m` or `h`; seconds without one.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.find(|char: char| !char.is_ascii_digit()) {
        Some(end) => text.split_at(end),
        None => (text, "s"),
    };
    let factor = match unit {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        _ => None,
    };
    let seconds = number.parse::<u64>().ok().zip(factor).and_then(|(n, it)| n.checked_mul(it));
    match seconds.map(Duration::from_secs) {
        Some(wait) if wait <= MAX_WAIT => Ok(wait),
        _ => Err("write a number with s, m or h, such as 5m; 1h at most".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_unit() {
        for (text, seconds) in [("5m", 300), ("90s", 90), ("45", 45), ("1h", 3600), ("0s", 0)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "m", "5 m", "5d", "-1s", "1.5m", "2h", "99999999999999999999h", "5ms"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_name_of_a_model_is_a_dns_subdomain() {
        for name in ["granite", "granite-3.1", "2024-01-01"] {
            assert_eq!(object_name(name).as_deref(), Ok(name));
        }
        for name in ["", "Granite", "a_b", "a..b", ".a", "a/b", "--wait"] {
            assert!(object_name(name).is_err(), "{name}");
        }
    }
}
