//! The writer of log lines to stderr. Most threads write each line at once. A thread that serves
//! connections buffers its lines and writes them together before it parks, so that a response does
//! not wait for its log line and threads contend less for stderr.

use std::{
    cell::RefCell,
    io::{self, Write as _},
};

use tracing_subscriber::fmt::MakeWriter;

/// Size of the buffer from which on a thread writes it without waiting for idle time, in bytes.
const MAX_BUFFERED_BYTES: usize = 16 << 10;

thread_local! {
    /// Lines that this thread has not written yet; `None` if the thread does not buffer.
    static BUFFER: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Makes this thread buffer its lines from now on, until [`flush_this_thread`] is called.
pub(crate) fn buffer_this_thread() {
    BUFFER.set(Some(Vec::new()));
}

/// Writes the lines that this thread has buffered.
pub(crate) fn flush_this_thread() {
    BUFFER.with_borrow_mut(|buffer| {
        if let Some(buffer) = buffer {
            write_all(buffer);
        }
    });
}

/// Writes and empties the buffer. Errors are ignored because a log that cannot be written must not
/// stop the broker.
fn write_all(buffer: &mut Vec<u8>) {
    if !buffer.is_empty() {
        let _ = io::stderr().write_all(buffer);
        buffer.clear();
    }
}

/// Makes a [`LineWriter`] for each log line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferedLogWriter;

/// Writes one log line to the buffer of its thread, or to stderr if the thread does not buffer.
#[derive(Debug)]
pub(crate) struct LineWriter;

impl MakeWriter<'_> for BufferedLogWriter {
    type Writer = LineWriter;

    fn make_writer(&self) -> LineWriter {
        LineWriter
    }
}

impl io::Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let buffered = BUFFER.try_with(|buffer| {
            let mut buffer = buffer.borrow_mut();
            let Some(buffer) = buffer.as_mut() else { return false };
            buffer.extend_from_slice(line);
            if buffer.len() >= MAX_BUFFERED_BYTES {
                write_all(buffer);
            }
            true
        });
        // A thread that is ending has already dropped its thread-local buffer.
        if !buffered.unwrap_or(false) {
            io::stderr().write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
