//! How a program is started.

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

/// Waits for a word from the harness and then becomes the program. Without that word, when the
/// harness died before it could tell the guardian, it ends. What follows in the pipe is the
/// program's own standard input.
const GATE: &str = "read -r _ || exit 125; exec \"$@\"";

/// A user of the machine that a program runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// A program to start: path, arguments, environment, input and how it is asked to end.
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
    /// The program at this path, with our environment, no input, ended with SIGTERM and, after
    /// 5 seconds, with SIGKILL.
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

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// More arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Takes a variable out of its environment.
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

    /// The folder it starts in.
    #[must_use]
    pub fn in_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Runs as another user; only root may ask for that.
    #[must_use]
    pub fn as_account(mut self, account: Option<Account>) -> Self {
        self.account = account;
        self
    }

    /// What it reads from standard input; after that the input ends.
    #[must_use]
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    /// How it is asked to end, and how long it may take before SIGKILL.
    #[must_use]
    pub fn stop_with(mut self, signal: Signal, grace: Duration) -> Self {
        self.stop_signal = signal;
        self.grace = grace;
        self
    }

    /// Starts it with both outputs appended to the file `log`.
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

    /// Starts it with its outputs kept for reading.
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

    /// Starts it on our own input and outputs. With `own_group` it leads a process group, as all
    /// others do; without, it stays in ours, as a program must that reads from our terminal, and
    /// Ctrl-C there reaches both.
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

    /// Runs it to its end, at most for `limit`.
    ///
    /// # Errors
    /// It cannot be started or is still running after `limit`; it is then killed. A failure exit
    /// status is no error here, see [`Finished::success`].
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

    /// A command without arguments in this program's surroundings.
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
