//! A program to start and its options.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::Process;
use super::captured::{Captured, Finished};

/// The gate: a shell that waits for a line from the harness and then becomes the program. It ends
/// without that line, which is when the harness died before it registered the process with the
/// guardian. The rest of the pipe is the program's own standard input.
const GATE: &str = "read -r _ || exit 125; exec \"$@\"";

/// A user account that a program runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// A program to start: path, arguments, environment, input and stop signal.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, Option<OsString>)>,
    clear_env: bool,
    folder: Option<PathBuf>,
    account: Option<Account>,
    input: Vec<u8>,
    stop_signal: Signal,
    grace: Duration,
}

impl Program {
    /// Creates a program with this path, our environment and no input. It is stopped with SIGTERM
    /// and, after 5 seconds, with SIGKILL.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            args: Vec::new(),
            env: Vec::new(),
            clear_env: false,
            folder: None,
            account: None,
            input: Vec::new(),
            stop_signal: Signal::TERM,
            grace: Duration::from_secs(5),
        }
    }

    /// Appends an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Appends arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Removes an environment variable.
    #[must_use]
    pub fn without_env(mut self, name: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), None));
        self
    }

    /// Starts from an empty environment instead of ours.
    #[must_use]
    pub fn clear_env(mut self) -> Self {
        self.clear_env = true;
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn in_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Runs as another user, which needs root.
    #[must_use]
    pub fn as_account(mut self, account: Option<Account>) -> Self {
        self.account = account;
        self
    }

    /// Sets the standard input, which ends after it.
    #[must_use]
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    /// Sets the stop signal, and the time after which SIGKILL follows.
    #[must_use]
    pub fn stop_with(mut self, signal: Signal, grace: Duration) -> Self {
        self.stop_signal = signal;
        self.grace = grace;
        self
    }

    /// Starts the program with both outputs appended to the file `log`.
    ///
    /// # Errors
    /// The log cannot be written or the program cannot be started.
    pub fn spawn_logged(self, log: &Path) -> Result<Process> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("open the log {}", log.display()))?;
        let again = file.try_clone().context("open the log a second time")?;
        let mut process = self.spawn(file, again)?;
        process.log = Some(log.to_owned());
        Ok(process)
    }

    /// Starts the program with captured outputs.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn spawn_captured(self) -> Result<Captured> {
        let stdout = tempfile::tempfile().context("make a file for the output")?;
        let stderr = tempfile::tempfile().context("make a file for the output")?;
        let process = self.spawn(
            stdout.try_clone().context("open the output a second time")?,
            stderr.try_clone().context("open the output a second time")?,
        )?;
        Ok(Captured::new(process, stdout, stderr))
    }

    /// Starts the program on our own input and outputs. With `own_group` it leads a process group,
    /// as all others do. Without, it stays in ours, which a program needs to read from our
    /// terminal, and Ctrl-C there reaches both.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn spawn_attached(self, own_group: bool) -> Result<Process> {
        let mut command = self.command(&self.path);
        command.args(&self.args);
        if own_group {
            command.process_group(0);
        }
        let child = command.spawn().with_context(|| format!("start {}", self.path.display()))?;
        Process::guard(self.name(), child, Vec::new(), self.stop_signal, self.grace)
    }

    /// Runs the program to its end, at most for `limit`.
    ///
    /// # Errors
    /// The program cannot be started or is still running after `limit`; it is then killed. A
    /// failure exit status is no error here, see [`Finished::success`].
    pub async fn run(self, limit: Duration) -> Result<Finished> {
        self.spawn_captured()?.finish(limit).await
    }

    fn spawn(self, stdout: File, stderr: File) -> Result<Process> {
        let mut command = self.command(Path::new("/bin/sh"));
        let child = command
            .args(["-c", GATE, "sh"])
            .arg(&self.path)
            .args(&self.args)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .with_context(|| format!("start {}", self.path.display()))?;
        let mut gate = b"go\n".to_vec();
        gate.extend_from_slice(&self.input);
        Process::guard(self.name(), child, gate, self.stop_signal, self.grace)
    }

    fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.display().to_string()
    }

    /// Returns a command without arguments in this program's environment.
    fn command(&self, path: &Path) -> Command {
        let mut command = Command::new(path);
        if self.clear_env {
            command.env_clear();
        }
        for (variable, value) in &self.env {
            match value {
                Some(value) => command.env(variable, value),
                None => command.env_remove(variable),
            };
        }
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        if let Some(account) = self.account {
            command.uid(account.uid).gid(account.gid);
        }
        command
    }
}
