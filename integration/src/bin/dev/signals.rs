//! The signals that stop `cargo dev`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// A listener for Ctrl-C, SIGTERM and the closing of the terminal.
pub(crate) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hangup: unix::Signal,
}

impl Signals {
    /// Starts to listen; from then on these signals no longer end the process.
    pub(crate) fn listen() -> Result<Self> {
        let listen = |kind| unix::signal(kind).context("listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hangup.recv() => Signal::HUP,
        }
    }
}

/// Returns the exit code of a program that this signal ended, as shells report it.
pub(crate) fn exit_code(signal: Signal) -> ExitCode {
    ExitCode::from(128_u8.saturating_add(u8::try_from(signal.as_raw()).unwrap_or(u8::MAX)))
}
