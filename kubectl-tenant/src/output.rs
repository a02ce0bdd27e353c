//! Output formats: tables, JSON and YAML, without characters that a terminal obeys.

use serde::Serialize;

use crate::{
    error::Error,
    terminal::{escape_json, is_terminal_unsafe, sanitize, sanitize_lines},
    world::World,
};

/// Output format of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Columns or lines for people; may change.
    #[default]
    Table,
    /// JSON with the fields of the broker's HTTP API; fields are added, never renamed.
    Json,
    /// The same as YAML.
    Yaml,
}

/// Prints a value: as JSON or YAML, or as the text that `table` renders.
pub(crate) fn show<T: Serialize>(
    world: &mut World,
    format: Format,
    value: &T,
    table: impl FnOnce(&T) -> String,
) -> Result<(), Error> {
    let text = match format {
        Format::Table => sanitize_lines(&table(value)),
        Format::Json => json(value)?,
        Format::Yaml => yaml(value)?,
    };
    world.print(&text)
}

/// Renders YAML; a value with a character that a terminal obeys as JSON, because an escape is
/// interpreted only in some styles of YAML, but everywhere in JSON, and JSON is valid YAML (YAML 1.2
/// section 1.2).
pub(crate) fn yaml<T: Serialize>(value: &T) -> Result<String, Error> {
    let text = serde_norway::to_string(value).map_err(|error| unwritable(&error))?;
    if text.chars().any(|it| is_terminal_unsafe(it) && it != '\n') {
        return json(value);
    }
    Ok(text)
}

/// Renders JSON and escapes characters that a terminal obeys.
pub(crate) fn json<T: Serialize>(value: &T) -> Result<String, Error> {
    let text = serde_json::to_string_pretty(value).map_err(|error| unwritable(&error))?;
    Ok(escape_json(&text) + "\n")
}

fn unwritable(error: &dyn std::fmt::Display) -> Error {
    Error::other(format!("cannot write the data: {error}"))
}

/// Renders columns three spaces apart, with the head in capitals, as kubectl prints them.
pub(crate) fn columns<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let rows: Vec<[String; N]> =
        rows.iter().map(|row| row.each_ref().map(|cell| sanitize(cell))).collect();
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .chain([head[column].chars().count()])
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        padded.join("   ").trim_end().to_owned() + "\n"
    };
    let mut text = line(head.to_vec());
    for row in &rows {
        text += &line(row.iter().map(String::as_str).collect());
    }
    text
}

/// Reports that a list has more rows than were printed.
pub(crate) fn report_truncation(world: &World, shown: usize, more: bool) {
    if more {
        world.print_message(format!(
            "stopped after {shown}; there are more: --limit NUMBER shows more"
        ));
    }
}

/// Converts Unix seconds of this machine's clock to RFC 3339.
pub(crate) fn time(seconds: i64) -> tenant_shared::WireTime {
    jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_does_not_control_the_terminal() {
        let table = columns(["A", "B"], &[["x\ny".to_owned(), "\u{9b}\u{202e}z".to_owned()]]);
        assert_eq!(table, "A     B\nx y     z\n");
    }

    #[test]
    fn yaml_parsers_read_escaped_json_without_surrogate_pairs() {
        let text = "\u{0}\u{1b}\u{7f}\u{85}\u{9b}\u{202e}\u{2028}\n\"ë";
        assert_eq!(serde_norway::from_str::<String>(&json(&text).unwrap()).unwrap(), text);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["tenant-1".to_owned(), "basic".to_owned()], ["t".to_owned(), String::new()]];
        insta::assert_snapshot!(columns(["NAMESPACE", "TIER"], &rows), @r"
        NAMESPACE   TIER
        tenant-1    basic
        t
        ");
    }
}
