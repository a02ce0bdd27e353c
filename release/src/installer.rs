//! The installer script of a release.

use anyhow::{Result, ensure};

use crate::source::Source;

/// Writes version and repository into the script, so that a copy installs the version of its
/// release.
///
/// # Errors
/// The script lacks a line for one of them.
pub fn stamp(script: &str, source: &Source) -> Result<String> {
    let mut stamped = script.to_owned();
    for (name, value) in
        [("version", source.version.to_string()), ("repository", source.repository.clone())]
    {
        let line = format!("\n{name}=\"\"\n");
        ensure!(stamped.matches(&line).count() == 1, "the installer has not one line {line:?}");
        stamped = stamped.replace(&line, &format!("\n{name}=\"{value}\"\n"));
    }
    Ok(stamped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_and_repository_are_written_into_the_script() {
        let script = include_str!("../install.sh");
        let stamped = stamp(script, &Source::example("1.2.3-rc.1")).unwrap();
        assert!(stamped.contains("\nversion=\"1.2.3-rc.1\"\n"));
        assert!(stamped.contains("\nrepository=\"https://example.com/owner/name\"\n"));
        assert_eq!(stamped.lines().count(), script.lines().count());
        assert!(stamp(&stamped, &Source::example("1.2.3")).is_err());
    }
}
