//! Settings as text with their origin, before they mean anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
    str::FromStr,
};

use super::KEYS;

/// Prefix of the environment's names.
const ENVIRONMENT_PREFIX: &str = "TENANT_BROKER_";

/// A value and where it came from.
#[derive(Clone)]
struct Value {
    text: String,
    origin: String,
}

/// What is wrong with a configuration: one line for each fault, never a value that may be secret.
#[derive(Debug, Default)]
pub struct Faults(Vec<String>);

impl Faults {
    /// Nothing, if there is none.
    pub(super) fn none_or(faults: Vec<String>) -> Result<(), Self> {
        if faults.is_empty() { Ok(()) } else { Err(Self(faults)) }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        let faults = if count == 1 { "a fault".to_owned() } else { format!("{count} faults") };
        write!(f, "the configuration has {faults}:")?;
        self.0.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

impl std::error::Error for Faults {}

/// All that was set, by dotted key; collects faults while it is read.
#[derive(Default)]
pub struct Settings {
    values: BTreeMap<String, Value>,
    read: BTreeSet<String>,
    faults: Vec<String>,
}

impl Settings {
    /// Collects settings of a file (its name and text), of the environment and of the command line
    /// (`key=value`).
    ///
    /// # Errors
    /// The file is not TOML. An argument that is not `key=value` is a fault on record.
    pub fn load(
        file: Option<(&str, &str)>,
        environment: impl Iterator<Item = (String, String)>,
        arguments: &[String],
    ) -> Result<Self, Faults> {
        let mut settings = Self::default();
        if let Some((name, text)) = file {
            match text.parse::<toml::Table>() {
                Ok(table) => settings.flatten("", &toml::Value::Table(table), name),
                Err(error) => {
                    // The parser's own text quotes the line, which may hold a password.
                    let line = error.span().map_or(1, |span| {
                        text.get(..span.start).unwrap_or_default().lines().count().max(1)
                    });
                    // Nothing in the file can be believed, so the rest would mislead.
                    return Err(Faults(vec![format!("{name}:{line}: {}", error.message())]));
                }
            }
        }
        for (name, text) in environment {
            if let Some(key) = name.strip_prefix(ENVIRONMENT_PREFIX) {
                let key = key.to_lowercase().replace("__", ".");
                settings.set(key, text, name);
            }
        }
        for argument in arguments {
            match argument.split_once('=') {
                Some((key, text)) => settings.set(key.to_owned(), text.to_owned(), "--set".into()),
                None => settings.faults.push(format!("--set {argument}: write key=value")),
            }
        }
        Ok(settings)
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

    /// Puts a fault of a key on record.
    pub fn fault(&mut self, key: &str, why: &str) {
        let origin = self.values.get(key).map(|value| format!(" ({})", value.origin));
        self.faults.push(format!("{key}{}: {why}", origin.unwrap_or_default()));
    }

    /// The text of a key, if it is set and not empty.
    pub fn given(&mut self, key: &str) -> Option<String> {
        self.read.insert(key.to_owned());
        self.values.get(key).map(|value| value.text.clone()).filter(|text| !text.is_empty())
    }

    /// The text of a key, or its default in [`KEYS`].
    pub fn text(&mut self, key: &str) -> String {
        self.given(key).unwrap_or_else(|| {
            KEYS.iter().find(|(name, ..)| *name == key).map_or("", |(_, text, _)| text).to_owned()
        })
    }

    /// A path, if it is set.
    pub fn path(&mut self, key: &str) -> Option<PathBuf> {
        self.given(key).map(PathBuf::from)
    }

    /// A value of a type; `None` with a fault on record if it is not one.
    pub fn parsed<T: FromStr<Err: fmt::Display>>(&mut self, key: &str) -> Option<T> {
        let text = self.text(key);
        text.parse().map_err(|error: T::Err| self.fault(key, &error.to_string())).ok()
    }

    /// A whole number within bounds; the lower bound with a fault on record if it is not.
    pub fn within(&mut self, key: &str, least: u32, most: u32) -> u32 {
        match self.text(key).parse() {
            Ok(number) if (least..=most).contains(&number) => number,
            _ => {
                self.fault(key, &format!("a whole number from {least} to {most}"));
                least
            }
        }
    }

    /// Names below a table, such as the tiers below `tiers`.
    pub fn names_below(&self, table: &str) -> BTreeSet<String> {
        self.values
            .keys()
            .filter_map(|key| key.strip_prefix(table)?.strip_prefix('.')?.split_once('.'))
            .map(|(name, _)| name.to_owned())
            .collect()
    }

    /// Whole keys below a table, without its name.
    pub fn keys_below(&self, table: &str) -> Vec<String> {
        let rest = |key: &String| Some(key.strip_prefix(table)?.strip_prefix('.')?.to_owned());
        self.values.keys().filter_map(rest).collect()
    }

    /// Ends the reading: what nobody read is unknown.
    ///
    /// # Errors
    /// All faults on record.
    pub fn finish(mut self) -> Result<(), Faults> {
        for (key, value) in &self.values {
            if !self.read.contains(key) {
                self.faults.push(format!(
                    "{key} ({}): no such setting; docs/configuration.md lists them",
                    value.origin
                ));
            }
        }
        Faults::none_or(self.faults)
    }
}

fn plain(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
