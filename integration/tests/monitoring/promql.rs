//! The metrics and labels that a `PromQL` expression names. promtool checks the syntax.

use std::collections::BTreeSet;

/// Operators that are followed by a list of labels.
const GROUPINGS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
/// Words between operands.
const KEYWORDS: [&str; 6] = ["and", "or", "unless", "bool", "offset", "atan2"];

/// A selected metric.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    /// The name of the metric.
    pub(crate) name: String,
    /// The labels with the text that their values are compared with.
    pub(crate) matchers: Vec<(String, String)>,
}

/// The names in an expression. A value of a label may not have a brace.
#[derive(Debug, Default)]
pub(crate) struct Expression {
    pub(crate) selectors: Vec<Selector>,
    /// Labels in `by (…)`, `ignoring (…)` and the like.
    pub(crate) groupings: BTreeSet<String>,
}

impl Expression {
    /// Finds the names in a valid expression. A name before `(` is a function, and one before `by`
    /// or `without` an aggregation.
    pub(crate) fn scan(text: &str) -> Self {
        let mut found = Self::default();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.');
            let end = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let next = after.trim_start();
            rest = match first {
                '"' => after_delimiter(&rest[1..], '"'),
                '[' => after_delimiter(rest, ']'),
                _ if word.is_empty() => &rest[first.len_utf8()..],
                _ if first.is_ascii_digit() || KEYWORDS.contains(&word) => after,
                _ if GROUPINGS.contains(&word) && next.starts_with('(') => {
                    let (labels, after) = next[1..].split_once(')').unwrap();
                    let labels = labels.split(',').map(str::trim).filter(|label| !label.is_empty());
                    found.groupings.extend(labels.map(str::to_owned));
                    after
                }
                _ if next.starts_with('(') || next.starts_with("by") => after,
                _ if next.starts_with("without") => after,
                _ => {
                    let (matchers, after) = match next.strip_prefix('{') {
                        Some(next) => next.split_once('}').unwrap(),
                        None => ("", after),
                    };
                    found.selectors.push(Selector::new(word, matchers));
                    after
                }
            };
        }
        found
    }
}

impl Selector {
    /// A selector with these matchers: `label="value",other=~"text"`.
    fn new(name: &str, matchers: &str) -> Self {
        let parts: Vec<&str> = matchers.split('"').collect();
        let label = |text: &str| text.trim_matches([',', '=', '!', '~', ' ', '\n']).to_owned();
        let matchers = parts.chunks_exact(2).map(|pair| (label(pair[0]), pair[1].to_owned()));
        Self { name: name.to_owned(), matchers: matchers.collect() }
    }
}

fn after_delimiter(text: &str, delimiter: char) -> &str {
    text.split_once(delimiter).unwrap().1
}

#[test]
fn an_expressions_metrics_and_labels_are_found() {
    let selector = |name: &str, matchers: &[(&str, &str)]| {
        let owned = |(label, value): &(&str, &str)| ((*label).to_owned(), (*value).to_owned());
        Selector { name: name.to_owned(), matchers: matchers.iter().map(owned).collect() }
    };
    let expression = Expression::scan(
        "sum by (le, area) (rate(a_bucket{job=\"x\", status=~\"5..|4..\"}[5m]))\n  / \
         ignoring (state) max without(instance) (b_total) > 0.05 and time() - c:d >= 1e6 \
         unless on () absent(up == 1)",
    );
    assert_eq!(
        expression.selectors,
        [
            selector("a_bucket", &[("job", "x"), ("status", "5..|4..")]),
            selector("b_total", &[]),
            selector("c:d", &[]),
            selector("up", &[]),
        ]
    );
    let groupings: Vec<&str> = expression.groupings.iter().map(String::as_str).collect();
    assert_eq!(groupings, ["area", "instance", "le", "state"]);
}
