//! A person's terminal: a pseudo-terminal with one program, and its output.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::kubectl::Kubectl;
use crate::probe::{self, Probe};
use crate::process::Captured;

/// Shell code that runs its arguments on the terminal that the first argument names.
const ON_TERMINAL: &str = "tty=$1; shift; exec \"$@\" <\"$tty\" >\"$tty\" 2>&1";

/// A terminal with a program. Both end when the value is dropped.
#[derive(Debug)]
pub struct Terminal {
    program: Captured,
    master: File,
    shown: Arc<Mutex<Vec<u8>>>,
    /// Keeps the terminal open until the program has opened it.
    _slave: OwnedFd,
}

impl Terminal {
    /// Runs kubectl with these arguments on a terminal of this many columns and rows.
    ///
    /// # Errors
    /// No terminal is available, or kubectl cannot be started.
    pub fn run<A: AsRef<OsStr>>(
        kubectl: &Kubectl,
        args: impl IntoIterator<Item = A>,
        size: (u16, u16),
    ) -> Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .context("make a pseudo-terminal")?;
        grantpt(&master).and_then(|()| unlockpt(&master)).context("use the pseudo-terminal")?;
        let name = ptsname(&master, Vec::new()).context("name the pseudo-terminal")?;
        let name = name.into_string().context("name the pseudo-terminal")?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(&name, flags, Mode::empty()).context("open the terminal")?;
        set_size(&master, size)?;
        let program = kubectl
            .other(Path::new("/bin/sh"))
            .env("TERM", "xterm")
            .args(["-c", ON_TERMINAL, "sh", &name])
            .arg(kubectl.program())
            .args(args)
            .spawn_captured()?;
        let master = File::from(master);
        let shown = Arc::<Mutex<Vec<u8>>>::default();
        let (mut reader, showing) =
            (master.try_clone().context("read the terminal")?, Arc::clone(&shown));
        std::thread::Builder::new()
            .name("terminal".to_owned())
            .spawn(move || {
                let mut piece = [0; 4096];
                // The read fails once no process has the terminal open any more.
                while let Ok(length @ 1..) = reader.read(&mut piece) {
                    let mut shown = showing.lock().unwrap_or_else(PoisonError::into_inner);
                    shown.extend_from_slice(&piece[..length]);
                }
            })
            .context("start a thread that reads the terminal")?;
        Ok(Self { program, master, shown, _slave: slave })
    }

    /// The program on the terminal.
    pub fn program(&self) -> &Captured {
        &self.program
    }

    /// Types this text.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn types(&self, text: &str) -> Result<()> {
        (&self.master).write_all(text.as_bytes()).context("type into the terminal")
    }

    /// Returns the whole output so far.
    pub fn shown(&self) -> String {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// Waits until the output contains this text.
    ///
    /// # Errors
    /// `limit` passed, or the program ended first.
    pub async fn until_shown(&self, text: &str, limit: Duration) -> Result<()> {
        probe::until(&format!("{text:?} on the terminal"), limit, || async {
            let ended = self.program.process().status();
            let shown = self.shown();
            match ended {
                _ if shown.contains(text) => Ok(Probe::Ready(())),
                None => Ok(Probe::NotYet(format!("it shows {shown:?}"))),
                Some(status) => bail!("the program ended with {status}; it showed {shown:?}"),
            }
        })
        .await
    }

    /// Resizes the terminal to this many columns and rows, and signals the program, as a terminal
    /// does.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn resize(&self, size: (u16, u16)) -> Result<()> {
        set_size(&self.master, size)?;
        self.program.process().signal(Signal::WINCH)
    }
}

fn set_size(terminal: impl std::os::fd::AsFd, (columns, rows): (u16, u16)) -> Result<()> {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).context("set the size of the terminal")
}
