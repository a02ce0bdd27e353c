//! Ends what the harness leaves behind, however the harness ends.
//!
//! A destructor does not run when a process is killed with SIGKILL, and a static is never dropped.
//! So the first child brings one small shell with it that reads, over a pipe, what runs and which
//! folders are temporary. The pipe closes with the harness, whatever the cause, and the shell then
//! ends the rest. `PR_SET_PDEATHSIG` would do the same on Linux alone and with unsafe code.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, Signal};

/// The pipe. It is never closed by us: the end of this process closes it.
static PIPE: Mutex<Option<ChildStdin>> = Mutex::new(None);

/// From now on the group of this process is to be ended with `signal`, then with SIGKILL.
pub(super) fn watch(pid: Pid, signal: Signal) -> io::Result<()> {
    let name = match signal {
        Signal::INT => "INT",
        Signal::QUIT => "QUIT",
        Signal::KILL => "KILL",
        _ => "TERM",
    };
    tell(&format!("start {name} {}\n", pid.as_raw_nonzero()))
}

/// The process is gone and its number may be given to another one.
pub(super) fn unwatch(pid: Pid) -> io::Result<()> {
    tell(&format!("end {}\n", pid.as_raw_nonzero()))
}

/// The folder is to be removed after the last process.
pub(crate) fn adopt_folder(path: &Path) -> io::Result<()> {
    tell(&format!("folder {}\n", one_line(path)?))
}

/// The folder is gone, or is to be kept.
pub(crate) fn forget_folder(path: &Path) -> io::Result<()> {
    tell(&format!("forget {}\n", one_line(path)?))
}

fn one_line(path: &Path) -> io::Result<&str> {
    path.to_str().filter(|text| !text.contains('\n')).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} is not one line of UTF-8; set TMPDIR to a plain path", path.display()),
        )
    })
}

fn tell(line: &str) -> io::Result<()> {
    let mut pipe = PIPE.lock().unwrap_or_else(PoisonError::into_inner);
    if pipe.is_none() {
        *pipe = Some(start()?);
    }
    match pipe.as_mut() {
        Some(open) => open.write_all(line.as_bytes()),
        None => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

fn start() -> io::Result<ChildStdin> {
    Command::new("/bin/sh")
        .args(["-c", include_str!("guardian.sh"), "guardian"])
        // Its own group: what kills ours, Ctrl-C among it, must not take the guardian along.
        .process_group(0)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?
        .stdin
        .take()
        .ok_or_else(|| io::ErrorKind::BrokenPipe.into())
}
