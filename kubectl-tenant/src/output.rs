//! Data for people and for programs.

use serde::Serialize;

use crate::{error::Error, world::World};

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
        Format::Table => table(value),
        Format::Json => {
            serde_json::to_string_pretty(value).map_err(|error| unwritable(&error))? + "\n"
        }
        Format::Yaml => serde_norway::to_string(value).map_err(|error| unwritable(&error))?,
    };
    world.print(&text)
}

/// Columns two spaces apart, the first row in capitals, as kubectl prints them.
pub(crate) fn columns<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
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
    for row in rows {
        text += &line(row.iter().map(String::as_str).collect());
    }
    text
}

/// Text of a stranger that cannot move the cursor or change colours.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
}

/// A time of this machine's clock, given in Unix seconds, as RFC 3339.
pub(crate) fn time(seconds: i64) -> tenant_shared::WireTime {
    jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH).into()
}

#[cfg(test)]
mod tests {
    use super::*;

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
