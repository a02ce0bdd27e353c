//! The files of a release, as they are written.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::digest::sha256;

/// A file of the release.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// Its name.
    pub file: String,
    /// Its size.
    pub bytes: usize,
    /// Its SHA-256, in hexadecimal digits.
    pub sha256: String,
    /// The time since the artifact before it.
    pub took: Duration,
}

/// Writes files into one folder and remembers them.
#[derive(Debug)]
pub(crate) struct Output {
    folder: PathBuf,
    artifacts: Vec<Artifact>,
    last: Instant,
}

impl Output {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), artifacts: Vec::new(), last: Instant::now() }
    }

    /// Writes a file and returns its SHA-256.
    pub(crate) fn add(&mut self, file: &str, content: &[u8]) -> Result<String> {
        let exists = self.artifacts.iter().any(|artifact| artifact.file == file);
        ensure!(!exists, "two artifacts are called {file}");
        std::fs::write(self.folder.join(file), content).with_context(|| format!("write {file}"))?;
        let sha256 = sha256(content);
        self.artifacts.push(Artifact {
            file: file.to_owned(),
            bytes: content.len(),
            sha256: sha256.clone(),
            took: self.last.elapsed(),
        });
        self.last = Instant::now();
        Ok(sha256)
    }

    /// Writes the list of the checksums of all files so far, in the format of `sha256sum`, sorted by
    /// name.
    pub(crate) fn add_checksums(&mut self, file: &str) -> Result<()> {
        let mut lines: Vec<(&str, &str)> = self
            .artifacts
            .iter()
            .map(|artifact| (artifact.file.as_str(), artifact.sha256.as_str()))
            .collect();
        lines.sort_unstable();
        let mut list = String::new();
        for (name, sum) in lines {
            writeln!(list, "{sum}  {name}")?;
        }
        self.add(file, list.as_bytes())?;
        Ok(())
    }

    pub(crate) fn into_artifacts(self) -> Vec<Artifact> {
        self.artifacts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_the_checksums_of_all_files_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut output = Output::new(folder.path());
        output.add("b", b"2").unwrap();
        output.add("a", b"1").unwrap();
        output.add_checksums("SUMS").unwrap();
        let list = std::fs::read_to_string(folder.path().join("SUMS")).unwrap();
        assert_eq!(list, format!("{}  a\n{}  b\n", sha256(b"1"), sha256(b"2")));
        let artifacts = output.into_artifacts();
        let files: Vec<&str> = artifacts.iter().map(|artifact| artifact.file.as_str()).collect();
        assert_eq!(files, ["b", "a", "SUMS"]);
    }

    #[test]
    fn no_artifact_replaces_another() {
        let folder = tempfile::tempdir().unwrap();
        let mut output = Output::new(folder.path());
        output.add("a", b"1").unwrap();
        assert!(output.add("a", b"2").is_err());
        assert_eq!(std::fs::read(folder.path().join("a")).unwrap(), b"1");
    }
}
