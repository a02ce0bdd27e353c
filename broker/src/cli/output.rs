//! Output of the commands. Names of objects, messages of the API server and other texts do not
//! control the terminal.

use std::{
    fmt::Display,
    io::{self, Write as _},
};

use serde::Serialize;
use tenant_shared::{escape_json, sanitize_lines};

use crate::base::error_chain;

/// The output format.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(super) enum Output {
    /// Table for people
    #[default]
    Table,
    /// JSON for programs
    Json,
}

impl Output {
    /// Prints the value to stdout in this format. `Display` renders the table.
    pub(super) fn print<T: Display + Serialize>(self, value: &T) -> anyhow::Result<()> {
        match self {
            Self::Table => print(&value.to_string()),
            Self::Json => print_json(value),
        }
    }
}

/// Prints lines for people to stdout.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    print_unchanged(&sanitize_lines(text))
}

/// Prints JSON to stdout. Characters that a terminal obeys are escaped, so the value is unchanged.
pub(super) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print_unchanged(&(escape_json(&serde_json::to_string_pretty(value)?) + "\n"))
}

/// Prints a document of the broker for programs to stdout. A closed pipe (`| head`) is no error.
pub(super) fn print_unchanged(text: &str) -> anyhow::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints a constant text or numbers to stderr.
pub(super) fn print_to_stderr(text: &str) {
    // A closed stderr is no error.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Prints the error of a command with its causes to stderr.
pub fn print_error(error: &anyhow::Error) {
    print_to_stderr(&error_text(error));
}

/// Prints a warning to stderr.
pub(super) fn print_warning(text: &str) {
    print_to_stderr(&format!("warning: {}\n", sanitize_lines(text)));
}

fn error_text(error: &anyhow::Error) -> String {
    format!("error: {}\n", sanitize_lines(&error_chain(error.as_ref())))
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn an_error_of_the_api_server_does_not_control_the_terminal() {
        let cause = anyhow!("denied\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\u{2066}");
        let text = error_text(&cause.context("cannot apply x"));
        assert_eq!(text, "error: cannot apply x: denied ]0;owned  31m  \n");
    }
}
