//! Child processes: started, watched and ended.
//!
//! Every child leads a process group of its own. It ends when its [`Process`] is dropped, or by the
//! guardian (`guardian.sh`) when this process dies without dropping anything. A [`Process`] belongs
//! to no async runtime, so that tests with separate runtimes can share one.

mod captured;
pub(crate) mod guardian;
mod program;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};
use tokio::sync::watch;

pub use captured::{Captured, Finished};
pub use program::{Account, Program};

/// Time limit for a process to end after SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// A running program.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: Pid,
    exit_state: Arc<ExitState>,
    exited: watch::Receiver<Option<ExitStatus>>,
    log: Option<PathBuf>,
    stop_signal: Signal,
    grace: Duration,
}

/// The exit status of a process, shared with the thread that waits for it.
#[derive(Debug, Default)]
struct ExitState {
    /// Set once the process has been reaped. No signal is sent after that, because its number may
    /// be reused by then.
    status: Mutex<Option<ExitStatus>>,
    changed: Condvar,
}

impl ExitState {
    fn lock(&self) -> MutexGuard<'_, Option<ExitStatus>> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until the process has ended, at most for `limit`.
    fn wait(&self, limit: Duration) -> Option<ExitStatus> {
        let (status, _) = self
            .changed
            .wait_timeout_while(self.lock(), limit, |status| status.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        *status
    }
}

impl Process {
    /// Takes over a child that waits at its gate: the guardian registers it, then `gate` is written
    /// and the program runs. A child on our own input has no gate.
    fn guard(
        name: String,
        mut child: Child,
        gate: Vec<u8>,
        stop_signal: Signal,
        grace: Duration,
    ) -> Result<Self> {
        let pid = Pid::from_child(&child);
        if let Err(error) = guardian::watch(pid, stop_signal) {
            child.kill().context("end a child that may not run")?;
            child.wait().context("wait for a child that may not run")?;
            return Err(error).context("tell the guardian shell about a child");
        }
        let input = child.stdin.take();
        let exit_state = Arc::new(ExitState::default());
        let (sender, exited) = watch::channel(None);
        let thread_fate = Arc::clone(&exit_state);
        std::thread::Builder::new()
            .name(format!("wait-{name}"))
            .spawn(move || {
                if let Some(mut input) = input {
                    // A program that does not read its input is no error here.
                    let _ = input.write_all(&gate);
                }
                sender.send_replace(Some(reap(&mut child, pid, &thread_fate)));
            })
            .context("start a thread that waits for a child")?;
        Ok(Self { name, pid, exit_state, exited, log: None, stop_signal, grace })
    }

    /// The process id, which is also its group id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// The program's file name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The exit status, if it has ended.
    pub fn status(&self) -> Option<ExitStatus> {
        *self.exit_state.lock()
    }

    /// Sends a signal to the process; does nothing if it has ended.
    ///
    /// # Errors
    /// The signal is not allowed.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let status = self.exit_state.lock();
        if status.is_none() {
            match kill_process(self.pid, signal) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("signal {}", self.name));
                }
            }
        }
        Ok(())
    }

    /// Sends a signal to the whole group, as a terminal does; to the process alone if it leads no
    /// group. Does nothing if it has ended.
    ///
    /// # Errors
    /// The signal is not allowed.
    pub fn signal_group(&self, signal: Signal) -> Result<()> {
        {
            let status = self.exit_state.lock();
            if status.is_some() || kill_process_group(self.pid, signal).is_ok() {
                return Ok(());
            }
        }
        self.signal(signal)
    }

    /// Kills the process and its group at once, as a crash would.
    pub fn kill(&self) {
        let status = self.exit_state.lock();
        if status.is_none() {
            // The only errors are that it is gone already or leads no group.
            if kill_process_group(self.pid, Signal::KILL).is_err() {
                let _ = kill_process(self.pid, Signal::KILL);
            }
        }
    }

    /// Waits for the end, however long it takes. The future does not borrow the process.
    pub fn wait(&self) -> impl Future<Output = Option<ExitStatus>> + Send + use<> {
        let mut exited = self.exited.clone();
        async move { exited.wait_for(Option::is_some).await.ok().and_then(|status| *status) }
    }

    /// Asks the process to end and waits; after `grace` it is killed.
    ///
    /// # Errors
    /// It had to be killed.
    pub async fn stop(&self, grace: Duration) -> Result<ExitStatus> {
        self.signal(self.stop_signal)?;
        if let Ok(Some(status)) = tokio::time::timeout(grace, self.wait()).await {
            return Ok(status);
        }
        self.kill();
        self.wait().await;
        bail!("{} did not end within {grace:?} and was killed\n{}", self.name, self.log_tail(40))
    }

    /// The file that both outputs are appended to, if it has one.
    pub fn log(&self) -> Option<&Path> {
        self.log.as_deref()
    }

    /// Returns the last lines of its log, for an error message.
    pub fn log_tail(&self, lines: usize) -> String {
        self.log.as_deref().map_or_else(String::new, |log| log_tail(log, lines))
    }

    /// Fails with the end of the log if the process has ended; for probes that wait for a server.
    ///
    /// # Errors
    /// The process has ended.
    pub fn still_running(&self) -> Result<()> {
        match self.status() {
            None => Ok(()),
            Some(status) => bail!("{} ended with {status}\n{}", self.name, self.log_tail(20)),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.status().is_some() {
            return;
        }
        let _ = self.signal(self.stop_signal);
        if self.exit_state.wait(self.grace).is_none() {
            self.kill();
            self.exit_state.wait(KILL_TIMEOUT);
        }
    }
}

/// Waits for the child's end without reaping it, kills the rest of its group, and only then reaps
/// it, which frees its number.
fn reap(child: &mut Child, pid: Pid, exit_state: &ExitState) -> ExitStatus {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while matches!(waitid(WaitId::Pid(pid), options), Err(Errno::INTR)) {}
    let mut slot = exit_state.lock();
    let _ = kill_process_group(pid, Signal::KILL);
    let status = child.wait().unwrap_or_default();
    *slot = Some(status);
    drop(slot);
    // The guardian is gone only when this process is ending as well.
    let _ = guardian::unwatch(pid);
    exit_state.changed.notify_all();
    status
}

/// Returns the exit code of a status; 128 plus the signal's number if a signal ended it, as in a
/// shell.
pub fn exit_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// Returns the last `lines` lines of a file, each indented, below a line that names the file.
pub fn log_tail(log: &Path, lines: usize) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    let last = all.get(all.len().saturating_sub(lines)..).unwrap_or_default();
    format!("the end of {}:\n    {}", log.display(), last.join("\n    "))
}
