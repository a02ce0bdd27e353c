//! Programs whose output is captured.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Process, exit_code};
use crate::probe::{self, Probe};

/// A running program with captured output. The program ends when the value is dropped.
#[derive(Debug)]
pub struct Captured {
    process: Process,
    stdout: File,
    stderr: File,
}

/// The output and exit status of a program that ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Name of the program, for messages.
    pub name: String,
    /// The exit status.
    pub status: ExitStatus,
    /// Its standard output; bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// Its standard error; bytes that are not UTF-8 are replaced.
    pub stderr: String,
}

impl Captured {
    pub(super) fn new(process: Process, stdout: File, stderr: File) -> Self {
        Self { process, stdout, stderr }
    }

    /// The underlying process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Returns the standard output so far.
    ///
    /// # Errors
    /// The file behind it cannot be read.
    pub fn stdout(&self) -> Result<String> {
        read(&self.stdout)
    }

    /// Returns the standard error so far.
    ///
    /// # Errors
    /// The file behind it cannot be read.
    pub fn stderr(&self) -> Result<String> {
        read(&self.stderr)
    }

    /// Waits until standard output satisfies `enough`, and returns it. `what` names the condition
    /// in messages.
    ///
    /// # Errors
    /// `limit` passed, or the program ended first; both outputs are in the message.
    pub async fn until_stdout(
        &self,
        what: &str,
        limit: Duration,
        enough: impl Fn(&str) -> bool,
    ) -> Result<String> {
        probe::until(what, limit, || {
            // The status is read first, so that output that was written before the end is included.
            let ended = self.process.status();
            let output = self.stdout();
            let verdict = output.and_then(|text| match ended {
                _ if enough(&text) => Ok(Probe::Ready(text)),
                None => Ok(Probe::NotYet(format!("standard output is {text:?}"))),
                Some(status) => bail!(
                    "{} ended with {status}\nstdout: {text}\nstderr: {}",
                    self.process.name(),
                    self.stderr()?
                ),
            });
            std::future::ready(verdict)
        })
        .await
    }

    /// Waits for the end, at most for `limit`.
    ///
    /// # Errors
    /// The program is still running after `limit`; it is then killed.
    pub async fn finish(self, limit: Duration) -> Result<Finished> {
        let Ok(status) = tokio::time::timeout(limit, self.process.wait()).await else {
            self.process.kill();
            bail!(
                "{} did not end within {limit:?}\nstdout: {}\nstderr: {}",
                self.process.name(),
                self.stdout()?,
                self.stderr()?
            );
        };
        Ok(Finished {
            name: self.process.name().to_owned(),
            status: status.context("the end of the process was not seen")?,
            stdout: self.stdout()?,
            stderr: self.stderr()?,
        })
    }
}

impl Finished {
    /// The exit code; 128 plus the signal's number if a signal ended it, as in a shell.
    pub fn code(&self) -> i32 {
        exit_code(self.status)
    }

    /// Returns itself if the exit status is 0.
    ///
    /// # Errors
    /// Any other status; both outputs are in the message.
    pub fn success(self) -> Result<Self> {
        if self.status.success() {
            return Ok(self);
        }
        bail!(
            "{} failed with {}\nstdout: {}\nstderr: {}",
            self.name,
            self.status,
            self.stdout,
            self.stderr
        )
    }
}

/// Reads the whole file at explicit offsets, because the program shares the file's position.
fn read(file: &File) -> Result<String> {
    let length = file.metadata().context("look at an output file")?.len();
    let mut bytes = vec![0; usize::try_from(length).context("an output file is too long")?];
    file.read_exact_at(&mut bytes, 0).context("read an output file")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
