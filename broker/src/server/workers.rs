//! Worker threads that serve connections: one for each core, each with a current-thread runtime.
//!
//! A forwarded request waits for two sockets in turn. On a multi-threaded runtime each of these
//! waits wakes a second thread that finds nothing to do: four futex calls per request were
//! measured. Therefore everything that one connection needs stays on one thread.

use std::{
    io,
    num::NonZeroUsize,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use tokio::runtime::{Builder, Handle};

use crate::base::buffered_log_writer;

/// The worker threads. They run until the process ends, because database connections that were
/// opened on one thread are used by the others, also after the last request.
#[derive(Debug)]
pub(crate) struct Workers {
    handles: Vec<Handle>,
    next: AtomicUsize,
}

impl Workers {
    /// Starts one thread per core.
    ///
    /// # Errors
    /// The system has no more threads or file descriptors.
    pub(crate) fn start() -> io::Result<Self> {
        let count = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let mut handles = Vec::with_capacity(count);
        for number in 0..count {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .on_thread_park(buffered_log_writer::flush_this_thread)
                .build()?;
            handles.push(runtime.handle().clone());
            thread::Builder::new().name(format!("connections-{number}")).spawn(move || {
                buffered_log_writer::buffer_this_thread();
                runtime.block_on(std::future::pending::<()>());
            })?;
        }
        Ok(Self { handles, next: AtomicUsize::new(0) })
    }

    /// The thread for the next connection (round robin).
    pub(crate) fn next(&self) -> &Handle {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        &self.handles[turn % self.handles.len()]
    }

    /// Flushes the log lines that the threads have buffered, because the process may end before the
    /// threads park.
    pub(crate) async fn flush_log_lines(&self) {
        for handle in &self.handles {
            let _ = handle.spawn(async { buffered_log_writer::flush_this_thread() }).await;
        }
    }
}
