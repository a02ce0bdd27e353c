//! Declarations of settings: key, default, parser and documentation of each in one place.
//!
//! A setting is read through its constant, so a misspelt or undeclared key does not compile. Each
//! section lists its constants in `SETTINGS`, which are rows of the reference page.

use std::path::PathBuf;

use secrecy::ExposeSecret as _;

use super::Settings;
use crate::base::reload::Files;

/// Converts the text of a setting. The error says what is expected; it has no secret in it.
pub(super) type Parser<T> = fn(&str) -> Result<T, String>;

/// The name of the table of the settings that are not fields of a named table.
pub(super) const ROOT: &str = "";

/// The behaviour of a setting that is not set, or empty.
enum Unset {
    /// The parser gets this text.
    Default(&'static str),
    /// The parser gets an empty text, and the section derives the value from other settings. The
    /// reference page shows this text.
    Derived(&'static str),
    /// It is a fault with this text, and the parser gets an empty text.
    Required(&'static str),
}

/// A setting with values of the type `T`.
pub(super) struct Setting<T> {
    /// The dotted key; that of a field is relative to its table.
    pub(super) key: &'static str,
    unset: Unset,
    parse: Parser<T>,
    doc: &'static str,
}

/// The part of a declaration that does not depend on the type of its values.
pub(super) trait Declaration {
    fn key(&self) -> &'static str;

    /// The documented default, or one for each default tier; empty if there is none.
    fn defaults(&self) -> Vec<&'static str>;

    fn doc(&self) -> &'static str;

    /// Parses the values for a setting that is not set.
    #[cfg(test)]
    fn check_defaults(&self) -> Result<(), String>;
}

impl<T> Setting<T> {
    pub(super) const fn new(
        key: &'static str,
        default: &'static str,
        parse: Parser<T>,
        doc: &'static str,
    ) -> Self {
        Self { key, unset: Unset::Default(default), parse, doc }
    }

    /// A setting whose default depends on other settings, as the text `default` documents.
    pub(super) const fn derived(
        key: &'static str,
        default: &'static str,
        parse: Parser<T>,
        doc: &'static str,
    ) -> Self {
        Self { key, unset: Unset::Derived(default), parse, doc }
    }

    /// A setting that has to be set; `missing` is the error text if it is not.
    pub(super) const fn required(
        key: &'static str,
        missing: &'static str,
        parse: Parser<T>,
        doc: &'static str,
    ) -> Self {
        Self { key, unset: Unset::Required(missing), parse, doc }
    }

    pub(super) fn read(&self, s: &mut Settings) -> T {
        self.read_in(s, ROOT)
    }

    /// Reads the field of this table.
    pub(super) fn read_in(&self, s: &mut Settings, table: &str) -> T {
        self.read_at(s, &self.key_in(table))
    }

    /// Reads another key with this parser and default. An invalid value is recorded as a fault, and
    /// replaced by that of a setting that is not set.
    pub(super) fn read_at(&self, s: &mut Settings, key: &str) -> T {
        let Some(text) = s.get_non_empty(key) else {
            if let Unset::Required(missing) = self.unset {
                s.fault(key, &format!("missing: {missing}"));
            }
            return self.unset_value();
        };
        (self.parse)(&text).unwrap_or_else(|why| {
            s.fault(key, &why);
            self.unset_value()
        })
    }

    pub(super) fn fault(&self, s: &mut Settings, reason: &str) {
        s.fault(self.key, reason);
    }

    /// Records a fault of the field of this table.
    pub(super) fn fault_in(&self, s: &mut Settings, table: &str, reason: &str) {
        s.fault(&self.key_in(table), reason);
    }

    /// The whole key of the field of this table.
    pub(super) fn key_in(&self, table: &str) -> String {
        if table == ROOT { self.key.to_owned() } else { format!("{table}.{}", self.key) }
    }

    fn unset_value(&self) -> T {
        self.parse_unset().expect("the tests parse every default")
    }

    fn parse_unset(&self) -> Result<T, String> {
        (self.parse)(match self.unset {
            Unset::Default(text) => text,
            Unset::Derived(_) | Unset::Required(_) => "",
        })
    }
}

/// The text of a setting that can be in a file.
pub(super) struct TextOrFile {
    pub(super) text: String,
    /// The file that the text was read from.
    pub(super) file: Option<PathBuf>,
}

impl Setting<Option<String>> {
    /// Reads the text of this field, or of the file that the field `file` of the same table names,
    /// without the white space at its beginning and end.
    pub(super) fn read_or_file(
        &self,
        file: &Setting<Option<PathBuf>>,
        s: &mut Settings,
        table: &str,
    ) -> Option<TextOrFile> {
        match (self.read_in(s, table), file.read_in(s, table)) {
            (Some(_), Some(_)) => {
                file.fault_in(s, table, &format!("{} is set as well: set one of them", self.key));
                None
            }
            (text, None) => text.map(|text| TextOrFile { text, file: None }),
            (None, Some(path)) => match Files::default().read_text(&path) {
                Ok(text) => {
                    let text = text.expose_secret().to_owned();
                    Some(TextOrFile { text, file: Some(path) })
                }
                Err(error) => {
                    file.fault_in(s, table, &error.to_string());
                    None
                }
            },
        }
    }
}

impl<T> Declaration for Setting<T> {
    fn key(&self) -> &'static str {
        self.key
    }

    fn defaults(&self) -> Vec<&'static str> {
        vec![match self.unset {
            Unset::Default(text) | Unset::Derived(text) => text,
            Unset::Required(_) => "",
        }]
    }

    fn doc(&self) -> &'static str {
        self.doc
    }

    #[cfg(test)]
    fn check_defaults(&self) -> Result<(), String> {
        self.parse_unset().map(drop)
    }
}
