//! Data for people and for programs.

use serde::Serialize;

use crate::{error::Error, world::World};

/// Longest message, in characters.
const LONGEST_LINE: usize = 2000;

/// How data is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Columns or lines, for people. May change.
    #[default]
    Table,
    /// JSON, with the fields of the broker's HTTP API. Fields are added, never renamed.
    Json,
    /// The same as YAML.
    Yaml,
}

/// Shows a value: as data, or as the text that `table` makes.
pub(crate) fn show<T: Serialize>(
    world: &mut World,
    format: Format,
    value: &T,
    table: impl FnOnce(&T) -> String,
) -> Result<(), Error> {
    let unwritable =
        |error: &dyn std::fmt::Display| Error::other(format!("cannot write the data: {error}"));
    let text = match format {
        Format::Table => lines(&table(value)),
        Format::Json => json(value).map_err(|error| unwritable(&error))?,
        Format::Yaml => {
            let text = serde_norway::to_string(value).map_err(|error| unwritable(&error))?;
            // An escape means itself only in some styles of YAML, but everywhere in JSON, which is
            // YAML too (YAML 1.2 section 1.2).
            if text.chars().any(|it| is_hidden(it) && it != '\n') {
                json(value).map_err(|error| unwritable(&error))?
            } else {
                text
            }
        }
    };
    world.print(&text)
}

/// JSON in which characters that a terminal obeys are escaped: `serde_json` escapes only those below
/// U+0020, because no others have to be (RFC 8259 section 7).
fn json<T: Serialize>(value: &T) -> serde_json::Result<String> {
    let text = serde_json::to_string_pretty(value)? + "\n";
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_hidden(character) && character != '\n' {
            let mut units = [0; 2];
            let units = character.encode_utf16(&mut units);
            escaped.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            escaped.push(character);
        }
    }
    Ok(escaped)
}

/// Columns two spaces apart, the first row in capitals, as kubectl prints them.
pub(crate) fn columns<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let rows: Vec<[String; N]> =
        rows.iter().map(|row| row.each_ref().map(|cell| plain(cell))).collect();
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

/// Says that a list goes on after the rows that were shown.
pub(crate) fn say_if_there_is_more(world: &World, shown: usize, more: bool) {
    if more {
        world.say(format!("stopped after {shown}; there are more: --limit NUMBER shows more"));
    }
}

/// Whether a terminal obeys a character instead of showing it: control characters (C0, DEL, C1), and
/// format characters that turn the direction of text, are invisible or divide lines.
pub(crate) fn is_hidden(character: char) -> bool {
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

/// Text from outside on one line, in which a terminal finds nothing to obey.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|it| if is_hidden(it) { ' ' } else { it }).collect()
}

/// The same for text of several lines: line feeds stay.
pub(crate) fn lines(text: &str) -> String {
    text.chars().map(|it| if is_hidden(it) && it != '\n' { ' ' } else { it }).collect()
}

/// The same as [`plain`], [`LONGEST_LINE`] characters at most.
pub(crate) fn line(text: &str) -> String {
    let mut characters = text.chars();
    let line: String = characters.by_ref().take(LONGEST_LINE).collect();
    let end = if characters.next().is_some() { "…" } else { "" };
    plain(&line) + end
}

/// A time of this machine's clock, given in Unix seconds, as RFC 3339.
pub(crate) fn time(seconds: i64) -> tenant_shared::WireTime {
    jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_a_terminal_obeys() {
        let text = "a\u{1b}[2J\u{7f}\u{9b}31m\u{202e}\u{2066}\u{200b}\u{feff}\r\tb\nc";
        assert_eq!(plain(text), "a [2J  31m      b c");
        assert_eq!(lines(text), "a [2J  31m      b\nc");
        assert_eq!(plain("Zoë, 山田 ☃"), "Zoë, 山田 ☃");
        assert_eq!(line(&"x".repeat(3000)).chars().count(), LONGEST_LINE + 1);
        let table = columns(["A", "B"], &[["x\ny".to_owned(), text.to_owned()]]);
        assert!(table.lines().count() == 2 && !table.contains('\u{9b}'), "{table}");
    }

    #[test]
    fn escaped_json_means_the_same() {
        let text = "\u{0}\u{1b}\u{7f}\u{85}\u{9b}\u{202e}\u{2028}\u{e0001}\n\"ë";
        let shown = json(&text).unwrap();
        assert!(shown.trim_end().chars().all(|it| !is_hidden(it)), "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        // YAML's parsers read the escapes of JSON but for pairs of surrogates.
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
