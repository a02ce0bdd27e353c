//! The summary of a release, for the person who publishes it.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;

use crate::artifacts::Report;
use crate::source::Source;

/// Name of its file. It is no artifact and in no list of checksums, because times differ.
pub const SUMMARY: &str = "SUMMARY.md";

/// Writes the summary: sizes and times of all artifacts, facts about them, and the platforms that
/// were left out with their reasons.
///
/// # Errors
/// Never, because the text is in memory.
pub fn summary(
    source: &Source,
    report: &Report,
    skipped: &[String],
    builds: &[(String, Duration)],
) -> Result<String> {
    let trial = if source.trial { " (a trial, not for publication)" } else { "" };
    let mut text = format!(
        "# Release {}{trial}\n\nCommit {} of {}.\n\n| artifact | bytes | seconds | SHA-256 |\n\
         |---|---|---|---|\n",
        source.version,
        source.commit,
        source.rfc3339()?
    );
    for artifact in &report.artifacts {
        let seconds = artifact.took.as_secs_f64();
        let (file, bytes, sha256) = (&artifact.file, artifact.bytes, &artifact.sha256);
        writeln!(text, "| {file} | {bytes} | {seconds:.1} | {sha256} |")?;
    }
    writeln!(text, "\n## Builds\n")?;
    for (target, took) in builds {
        writeln!(text, "- {target}: {} s", took.as_secs())?;
    }
    for note in &report.notes {
        writeln!(text, "- {note}")?;
    }
    writeln!(text, "\n## Left out\n")?;
    for reason in skipped {
        writeln!(text, "- {reason}")?;
    }
    writeln!(text, "- windows: not supported")?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Artifact;

    #[test]
    fn platforms_that_were_left_out_are_in_the_summary() {
        let artifact = Artifact {
            file: "a.tar.gz".to_owned(),
            bytes: 17,
            sha256: "ab".repeat(32),
            took: Duration::from_millis(1500),
        };
        let report = Report { artifacts: vec![artifact], notes: vec!["A note.".to_owned()] };
        let skipped = ["darwin_arm64: there is no linker".to_owned()];
        let builds = [("x86_64-unknown-linux-gnu".to_owned(), Duration::from_secs(61))];
        let text = summary(&Source::example("1.2.3"), &report, &skipped, &builds).unwrap();
        for line in [
            "# Release 1.2.3",
            &format!("| a.tar.gz | 17 | 1.5 | {} |", "ab".repeat(32)),
            "- x86_64-unknown-linux-gnu: 61 s",
            "- A note.",
            "- darwin_arm64: there is no linker",
            "- windows: not supported",
        ] {
            assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
        }
    }
}
