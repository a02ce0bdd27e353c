//! Metrics as `/metrics` exports them and as `docs/metrics.md` documents them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};

/// A metric of the table in `docs/metrics.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentedMetric {
    /// The name in queries; of a histogram the name without the suffixes of its samples.
    pub name: String,
    /// The type: `counter`, `gauge`, `histogram` or `info`.
    pub kind: String,
    /// The unit; empty if there is none.
    pub unit: String,
    /// The labels with their values; `None` if the values are not a list.
    pub labels: BTreeMap<String, Option<BTreeSet<String>>>,
    /// The meaning.
    pub help: String,
}

impl DocumentedMetric {
    /// The names of its samples.
    pub fn sample_names(&self) -> Vec<String> {
        if self.kind == "histogram" {
            ["bucket", "sum", "count"].map(|suffix| format!("{}_{suffix}", self.name)).to_vec()
        } else {
            vec![self.name.clone()]
        }
    }
}

/// Reads the table of `docs/metrics.md`.
///
/// # Errors
/// The file cannot be read, or has no table of metrics.
pub fn documented_metrics() -> Result<Vec<DocumentedMetric>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let page = std::fs::read_to_string(&path).context("read docs/metrics.md")?;
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let metrics: Vec<_> = rows.map(parse_row).collect::<Option<_>>().context("parse a row")?;
    (!metrics.is_empty()).then_some(metrics).context("docs/metrics.md has no table")
}

/// Parses a row without its beginning, `` | ` ``.
fn parse_row(row: &str) -> Option<DocumentedMetric> {
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    let [name, kind, unit, labels, help, ""] = cells.as_slice() else { return None };
    let labels = labels.split("; ").filter(|label| !label.is_empty()).map(|label| {
        let (name, values) = label.strip_prefix('`')?.split_once("`: ")?;
        let is_list = values.starts_with('`');
        let values = values.split(", ").map(|value| value.trim_matches('`').to_owned()).collect();
        Some((name.to_owned(), is_list.then_some(values)))
    });
    Some(DocumentedMetric {
        name: name.strip_suffix('`')?.to_owned(),
        kind: (*kind).to_owned(),
        unit: (*unit).to_owned(),
        labels: labels.collect::<Option<_>>()?,
        help: (*help).to_owned(),
    })
}

/// A sample in the text of `/metrics`.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The name, with the suffix of its type.
    pub name: String,
    /// The labels with their values.
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub value: f64,
}

/// Parses the samples in the text of `/metrics`.
///
/// # Errors
/// A line is no sample. No value of a label may have a quotation mark.
pub fn samples(text: &str) -> Result<Vec<Sample>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| sample(line).with_context(|| format!("{line:?} is no sample"))).collect()
}

fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, pairs) = match series.strip_suffix('}') {
        Some(series) => series.split_once('{')?,
        None => (series, ""),
    };
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name(name).then_some(())?;
    let parts: Vec<&str> = pairs.split_terminator('"').collect();
    let labels = parts.chunks(2).map(|pair| match pair {
        [label, value] => {
            let label = label.trim_start_matches(',').strip_suffix('=')?;
            Some((label.to_owned(), (*value).to_owned()))
        }
        _ => None,
    });
    let labels = labels.collect::<Option<_>>()?;
    Some(Sample { name: name.to_owned(), labels, value: value.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn samples_have_names_labels_and_values() {
        let text = "# TYPE a counter\na_total{method=\"GET\",le=\"+Inf\"} 3\nb 0.5\nc{} 1\n# EOF\n";
        let sample = |name: &str, pairs, value| {
            let (name, labels) = (name.to_owned(), labels(pairs));
            Sample { name, labels, value }
        };
        assert_eq!(
            samples(text).unwrap(),
            [
                sample("a_total", &[("method", "GET"), ("le", "+Inf")], 3.0),
                sample("b", &[], 0.5),
                sample("c", &[], 1.0),
            ]
        );
        for line in ["a", "a{b=\"c\" 1", "a{b} 1", "a one"] {
            assert!(samples(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_row_of_the_page_is_a_metric() {
        let row =
            "a_seconds` | histogram | seconds | `area`: `api`, `pages`; `role`: any name | Time |";
        let values = ["api", "pages"].map(str::to_owned).into_iter().collect();
        let metric = DocumentedMetric {
            name: "a_seconds".to_owned(),
            kind: "histogram".to_owned(),
            unit: "seconds".to_owned(),
            labels: [("area".to_owned(), Some(values)), ("role".to_owned(), None)].into(),
            help: "Time".to_owned(),
        };
        assert_eq!(parse_row(row), Some(metric.clone()));
        assert_eq!(metric.sample_names()[0], "a_seconds_bucket");
        let bare = parse_row("up` | gauge |  |  | 1 if it runs |").unwrap();
        assert_eq!((bare.unit.as_str(), bare.labels.len()), ("", 0));
        for row in ["up` | gauge |", "up | gauge |  |  | help |", "a` | gauge |  | area | help |"] {
            assert_eq!(parse_row(row), None, "{row}");
        }
    }
}
