//! What the doctor found, for people and programs.

use std::fmt;

use serde::Serialize;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As it should be.
    Pass,
    /// It works, but could be better, or could not be looked at.
    Warn,
    /// Not as it should be.
    Fail,
}

/// One thing that was looked at or tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// How it ended.
    pub outcome: Outcome,
    /// What should be so.
    pub check: String,
    /// What is so, and what to do; empty if there is nothing to say.
    pub detail: String,
}

impl Check {
    /// All is well.
    pub fn passed(check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { outcome: Outcome::Pass, check: check.into(), detail: detail.into() }
    }

    /// It works, but.
    pub fn warned(check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { outcome: Outcome::Warn, check: check.into(), detail: detail.into() }
    }

    /// Something is wrong.
    pub fn failed(check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { outcome: Outcome::Fail, check: check.into(), detail: detail.into() }
    }

    /// One or the other.
    pub fn when(well: bool, check: impl Into<String>, otherwise: impl Into<String>) -> Self {
        if well { Self::passed(check, "") } else { Self::failed(check, otherwise) }
    }
}

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether no check failed; warnings are no failure.
    pub passed: bool,
    /// The checks in the order in which they were made.
    pub checks: Vec<Check>,
}

impl Report {
    /// Of these checks.
    pub fn new(checks: Vec<Check>) -> Self {
        Self { passed: checks.iter().all(|check| check.outcome != Outcome::Fail), checks }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.checks.iter().map(|check| check.check.chars().count()).max().unwrap_or(0);
        for Check { outcome, check, detail } in &self.checks {
            let word = match outcome {
                Outcome::Pass => "pass",
                Outcome::Warn => "WARN",
                Outcome::Fail => "FAIL",
            };
            // What a server says may have lines of its own.
            let detail = detail.split_whitespace().collect::<Vec<_>>().join(" ");
            let detail = detail.replace(char::is_control, "");
            let padding = width - check.chars().count();
            let line = format!("{word}  {check}{:padding$}  {detail}", "");
            writeln!(f, "{}", line.trim_end())?;
        }
        let count = |wanted| self.checks.iter().filter(|it| it.outcome == wanted).count();
        let (passed, warned, failed) =
            (count(Outcome::Pass), count(Outcome::Warn), count(Outcome::Fail));
        writeln!(f, "\n{passed} passed, {warned} to look at, {failed} failed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_for_people_that_a_servers_text_cannot_break() {
        let report = Report::new(vec![
            Check::passed("short", ""),
            Check::warned("a longer check", "why"),
            Check::failed("bad", "two\n   lines\u{1b}"),
        ]);
        assert!(!report.passed);
        insta::assert_snapshot!(report.to_string());
    }
}
