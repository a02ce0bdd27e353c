//! Raw settings: texts with their origin, before they are validated.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::service_variables::is_service_variable;

/// Prefix of environment variables with settings.
const ENVIRONMENT_PREFIX: &str = "TENANT_BROKER_";

/// A text and its origin: the name of the file, of the environment variable, or `--set`.
#[derive(Clone)]
struct Value {
    text: String,
    origin: String,
}

/// The faults of a configuration: one line for each, never with a value that may be secret.
#[derive(Debug, Default)]
pub struct ConfigErrors(Vec<String>);

impl ConfigErrors {
    /// `Ok` if there are no faults.
    pub(super) fn into_result(faults: Vec<String>) -> Result<(), Self> {
        if faults.is_empty() { Ok(()) } else { Err(Self(faults)) }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        let faults = if count == 1 { "a fault".to_owned() } else { format!("{count} faults") };
        write!(f, "the configuration has {faults}:")?;
        self.0.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

impl std::error::Error for ConfigErrors {}

/// All settings by dotted key. Collects faults while it is read.
#[derive(Default)]
pub struct Settings {
    values: BTreeMap<String, Value>,
    read: BTreeSet<String>,
    faults: Vec<String>,
}

impl Settings {
    /// Collects settings of a file (its name and text), of the environment and of the command line
    /// (`key=value`). Variables that a kubelet sets for Services named `tenant-broker` or
    /// `tenant-broker-…` are ignored.
    ///
    /// # Errors
    /// The file is not TOML. An argument that is not `key=value` is recorded as a fault.
    pub fn load(
        file: Option<(&str, &str)>,
        environment: impl Iterator<Item = (String, String)>,
        arguments: &[String],
    ) -> Result<Self, ConfigErrors> {
        let mut settings = Self::default();
        if let Some((name, text)) = file {
            match text.parse::<toml::Table>() {
                Ok(table) => settings.flatten("", &toml::Value::Table(table), name),
                Err(error) => {
                    // The parser's own text quotes the line, which may hold a password.
                    let line = error.span().map_or(1, |span| {
                        text.get(..span.start).unwrap_or_default().lines().count().max(1)
                    });
                    // Further faults would mislead, because nothing of the file was read.
                    return Err(ConfigErrors(vec![format!("{name}:{line}: {}", error.message())]));
                }
            }
        }
        for (name, text) in environment {
            if let Some(key) = name.strip_prefix(ENVIRONMENT_PREFIX)
                && !is_service_variable(key, &text)
            {
                let key = key.to_lowercase().replace("__", ".");
                settings.set(key, text, name);
            }
        }
        for argument in arguments {
            match argument.split_once('=') {
                Some((key, text)) => settings.set(key.to_owned(), text.to_owned(), "--set".into()),
                None => settings.faults.push("--set without `=`: write key=value".into()),
            }
        }
        Ok(settings)
    }

    /// Whether the text of a file has settings: one that is empty or has comments only does not. A
    /// text that is not TOML does, and is a fault of [`Settings::load`].
    pub fn are_in(text: &str) -> bool {
        text.parse::<toml::Table>().map_or(true, |table| !table.is_empty())
    }

    fn set(&mut self, key: String, text: String, origin: String) {
        self.values.insert(key, Value { text, origin });
    }

    fn flatten(&mut self, key: &str, value: &toml::Value, origin: &str) {
        let text = match value {
            toml::Value::Table(table) => {
                for (name, value) in table {
                    let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                    self.flatten(&key, value, origin);
                }
                return;
            }
            toml::Value::Array(items) => {
                let items: Vec<String> = items.iter().map(plain).collect();
                items.join(",")
            }
            other => plain(other),
        };
        self.set(key.to_owned(), text, origin.to_owned());
    }

    /// Records a fault of a key.
    pub(super) fn fault(&mut self, key: &str, reason: &str) {
        let origin = self.values.get(key).map(|value| format!(" ({})", value.origin));
        self.faults.push(format!("{key}{}: {reason}", origin.unwrap_or_default()));
    }

    /// The text of a key, if it is set and not empty.
    pub(super) fn get_non_empty(&mut self, key: &str) -> Option<String> {
        self.read.insert(key.to_owned());
        self.values.get(key).map(|value| value.text.clone()).filter(|text| !text.is_empty())
    }

    /// Names of the tables below a table, such as the tiers below `tiers`.
    pub(super) fn names_below(&self, table: &str) -> BTreeSet<String> {
        self.values
            .keys()
            .filter_map(|key| key.strip_prefix(table)?.strip_prefix('.')?.split_once('.'))
            .map(|(name, _)| name.to_owned())
            .collect()
    }

    /// Keys below a table, without its prefix.
    pub(super) fn keys_below(&self, table: &str) -> Vec<String> {
        let rest = |key: &String| Some(key.strip_prefix(table)?.strip_prefix('.')?.to_owned());
        self.values.keys().filter_map(rest).collect()
    }

    /// The keys that were read so far, whether they are set or not.
    #[cfg(test)]
    pub(super) fn read_keys(&self) -> &BTreeSet<String> {
        &self.read
    }

    /// Ends the reading of some settings only, so that unknown keys are no faults.
    ///
    /// # Errors
    /// All recorded faults.
    pub(super) fn faults_so_far(self) -> Result<(), ConfigErrors> {
        ConfigErrors::into_result(self.faults)
    }

    /// Ends the reading. Keys that were not read are unknown settings.
    ///
    /// # Errors
    /// All recorded faults.
    pub(super) fn finish(mut self) -> Result<(), ConfigErrors> {
        for (key, value) in &self.values {
            if !self.read.contains(key) {
                self.faults.push(format!(
                    "{key} ({}): no such setting; docs/configuration.md lists them",
                    value.origin
                ));
            }
        }
        ConfigErrors::into_result(self.faults)
    }
}

fn plain(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
