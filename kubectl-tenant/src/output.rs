//! Output formats: tables, JSON and YAML, without characters that a terminal obeys.

use serde::Serialize;

use crate::{error::Error, world::World};

/// Maximum length of a message, in characters.
const MAX_MESSAGE_CHARS: usize = 2000;

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
    let unwritable =
        |error: &dyn std::fmt::Display| Error::other(format!("cannot write the data: {error}"));
    let text = match format {
        Format::Table => sanitize_lines(&table(value)),
        Format::Json => json(value).map_err(|error| unwritable(&error))?,
        Format::Yaml => {
            let text = serde_norway::to_string(value).map_err(|error| unwritable(&error))?;
            // An escape is interpreted only in some styles of YAML, but everywhere in JSON, and
            // JSON is valid YAML (YAML 1.2 section 1.2).
            if text.chars().any(|it| is_terminal_unsafe(it) && it != '\n') {
                json(value).map_err(|error| unwritable(&error))?
            } else {
                text
            }
        }
    };
    world.print(&text)
}

/// Renders JSON and escapes characters that a terminal obeys. `serde_json` escapes only those below
/// U+0020, because RFC 8259 section 7 requires no others.
fn json<T: Serialize>(value: &T) -> serde_json::Result<String> {
    let text = serde_json::to_string_pretty(value)? + "\n";
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_terminal_unsafe(character) && character != '\n' {
            let mut units = [0; 2];
            let units = character.encode_utf16(&mut units);
            escaped.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            escaped.push(character);
        }
    }
    Ok(escaped)
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
        world.say(format!("stopped after {shown}; there are more: --limit NUMBER shows more"));
    }
}

/// Whether a terminal obeys a character instead of showing it: control characters (C0, DEL, C1),
/// and format characters that change the direction of text, are invisible or separate lines.
pub(crate) fn is_terminal_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Replaces characters that a terminal obeys, and line feeds, by spaces, for untrusted text on one
/// line.
pub(crate) fn sanitize(text: &str) -> String {
    text.chars().map(|it| if is_terminal_unsafe(it) { ' ' } else { it }).collect()
}

/// Like [`sanitize`], but keeps line feeds, for untrusted text of several lines.
pub(crate) fn sanitize_lines(text: &str) -> String {
    text.chars().map(|it| if is_terminal_unsafe(it) && it != '\n' { ' ' } else { it }).collect()
}

/// Like [`sanitize`], and truncates the text to [`MAX_MESSAGE_CHARS`] characters.
pub(crate) fn sanitize_message(text: &str) -> String {
    let mut characters = text.chars();
    let line: String = characters.by_ref().take(MAX_MESSAGE_CHARS).collect();
    let end = if characters.next().is_some() { "…" } else { "" };
    sanitize(&line) + end
}

/// Converts Unix seconds of this machine's clock to RFC 3339.
pub(crate) fn time(seconds: i64) -> tenant_shared::WireTime {
    jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_unsafe_characters_are_replaced() {
        let text = "a\u{1b}[2J\u{7f}\u{9b}31m\u{202e}\u{2066}\u{200b}\u{feff}\r\tb\nc";
        assert_eq!(sanitize(text), "a [2J  31m      b c");
        assert_eq!(sanitize_lines(text), "a [2J  31m      b\nc");
        assert_eq!(sanitize("Zoë, 山田 ☃"), "Zoë, 山田 ☃");
        assert_eq!(sanitize_message(&"x".repeat(3000)).chars().count(), MAX_MESSAGE_CHARS + 1);
        let table = columns(["A", "B"], &[["x\ny".to_owned(), text.to_owned()]]);
        assert!(table.lines().count() == 2 && !table.contains('\u{9b}'), "{table}");
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let text = "\u{0}\u{1b}\u{7f}\u{85}\u{9b}\u{202e}\u{2028}\u{e0001}\n\"ë";
        let shown = json(&text).unwrap();
        assert!(shown.trim_end().chars().all(|it| !is_terminal_unsafe(it)), "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        // YAML parsers read the escapes of JSON except surrogate pairs.
        let text = text.replace('\u{e0001}', "");
        let shown = json(&text).unwrap();
        assert_eq!(serde_norway::from_str::<String>(&shown).unwrap(), text);
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
