//! The report of the checks, as a table for people and as JSON.

use std::fmt;

use serde::Serialize;
use tenant_shared::sanitize;

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckOutcome {
    /// The check passed.
    Pass,
    /// It works but could be better, or it could not be checked.
    Warn,
    /// The check failed.
    Fail,
}

/// A check with its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub outcome: CheckOutcome,
    /// The expected state.
    pub check: String,
    /// The actual state and what to do; may be empty.
    pub detail: String,
}

impl Check {
    /// A check that passed.
    pub fn passed(check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { outcome: CheckOutcome::Pass, check: check.into(), detail: detail.into() }
    }

    /// A check with a warning.
    pub fn warned(check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { outcome: CheckOutcome::Warn, check: check.into(), detail: detail.into() }
    }

    /// A check that failed.
    pub fn failed(check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { outcome: CheckOutcome::Fail, check: check.into(), detail: detail.into() }
    }

    /// A check that passed if `condition` holds, and failed with the detail `otherwise` if not.
    pub fn expect(condition: bool, check: impl Into<String>, otherwise: impl Into<String>) -> Self {
        if condition { Self::passed(check, "") } else { Self::failed(check, otherwise) }
    }
}

/// All checks of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether no check failed; warnings do not count.
    pub passed: bool,
    /// The checks in the order in which they ran.
    pub checks: Vec<Check>,
}

impl Report {
    /// Makes a report of these checks.
    pub fn new(checks: Vec<Check>) -> Self {
        Self { passed: checks.iter().all(|check| check.outcome != CheckOutcome::Fail), checks }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.checks.iter().map(|check| check.check.chars().count()).max().unwrap_or(0);
        for Check { outcome, check, detail } in &self.checks {
            let word = match outcome {
                CheckOutcome::Pass => "pass",
                CheckOutcome::Warn => "WARN",
                CheckOutcome::Fail => "FAIL",
            };
            // A text of a server may have line breaks.
            let detail = detail.split_whitespace().collect::<Vec<_>>().join(" ");
            let (check, detail) = (sanitize(check), sanitize(&detail));
            let padding = width - check.chars().count();
            let line = format!("{word}  {check}{:padding$}  {detail}", "");
            writeln!(f, "{}", line.trim_end())?;
        }
        let count = |wanted| self.checks.iter().filter(|it| it.outcome == wanted).count();
        let (passed, warned, failed) =
            (count(CheckOutcome::Pass), count(CheckOutcome::Warn), count(CheckOutcome::Fail));
        writeln!(f, "\n{passed} passed, {warned} to look at, {failed} failed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_a_server_cannot_break_the_table() {
        let report = Report::new(vec![
            Check::passed("short", ""),
            Check::warned("a longer check", "why"),
            Check::failed("bad", "two\n   lines\u{1b}\u{202e}"),
        ]);
        assert!(!report.passed);
        insta::assert_snapshot!(report.to_string());
    }
}
