//! Where log lines go: to stderr, each at once; but on a thread that serves connections all that came
//! up while it was busy go together, once there is nothing left to do. An answer does not wait for its
//! line so, and threads wait less for each other.

use std::{
    cell::RefCell,
    io::{self, Write as _},
};

use tracing_subscriber::fmt::MakeWriter;

/// A thread that is never out of work writes what it holds from this size on, in bytes.
const MOST_HELD: usize = 16 << 10;

thread_local! {
    /// What this thread has not written yet, if it may wait.
    static HELD: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// From now on this thread holds its lines until [`write_held`].
pub(crate) fn hold() {
    HELD.set(Some(Vec::new()));
}

/// Writes what this thread holds.
pub(crate) fn write_held() {
    HELD.with_borrow_mut(|held| {
        if let Some(held) = held {
            write_all(held);
        }
    });
}

/// A log that cannot be written is no reason to stop.
fn write_all(held: &mut Vec<u8>) {
    if !held.is_empty() {
        let _ = io::stderr().write_all(held);
        held.clear();
    }
}

/// Makes the writers of lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogLines;

/// Writes one line.
#[derive(Debug)]
pub(crate) struct LogLine;

impl MakeWriter<'_> for LogLines {
    type Writer = LogLine;

    fn make_writer(&self) -> LogLine {
        LogLine
    }
}

impl io::Write for LogLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let held = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            let Some(held) = held.as_mut() else { return false };
            held.extend_from_slice(line);
            if held.len() >= MOST_HELD {
                write_all(held);
            }
            true
        });
        // A thread that ends has no place for them any more.
        if !held.unwrap_or(false) {
            io::stderr().write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
