//! The guardian, which ends the harness's processes and removes its folders, however the harness
//! ends.
//!
//! A destructor does not run when a process is killed with SIGKILL, and a static is never dropped.
//! The first child therefore starts one small shell that reads over a pipe which processes run and
//! which folders are temporary. The pipe closes with the harness, whatever the cause, and the shell
//! then ends the rest. `PR_SET_PDEATHSIG` would do the same on Linux alone and with unsafe code.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, Signal};

/// The pipe to the guardian. It closes when this process ends.
static PIPE: Mutex<Option<ChildStdin>> = Mutex::new(None);

/// Registers the group of this process; the guardian ends it with `signal`, then with SIGKILL.
pub(super) fn watch(pid: Pid, signal: Signal) -> io::Result<()> {
    let name = match signal {
        Signal::INT => "INT",
        Signal::QUIT => "QUIT",
        Signal::KILL => "KILL",
        _ => "TERM",
    };
    send_line(&format!("start {name} {}\n", pid.as_raw_nonzero()))
}

/// Unregisters a process that is gone; its number may be reused.
pub(super) fn unwatch(pid: Pid) -> io::Result<()> {
    send_line(&format!("end {}\n", pid.as_raw_nonzero()))
}

/// Registers a folder to remove after the last process.
pub(crate) fn adopt_folder(path: &Path) -> io::Result<()> {
    send_line(&format!("folder {}\n", one_line(path)?))
}

/// Unregisters a folder that is gone or to be kept.
pub(crate) fn release_folder(path: &Path) -> io::Result<()> {
    send_line(&format!("forget {}\n", one_line(path)?))
}

fn one_line(path: &Path) -> io::Result<&str> {
    path.to_str().filter(|text| !text.contains('\n')).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} is not one line of UTF-8; set TMPDIR to a plain path", path.display()),
        )
    })
}

fn send_line(line: &str) -> io::Result<()> {
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
        // Its own process group, because a signal that kills ours, such as Ctrl-C, must not kill
        // the guardian.
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
