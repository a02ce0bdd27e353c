//! The threads that serve connections, one for each core.
//!
//! A forwarded request waits for two sockets in turn. Where any thread may go on with any task, each of
//! these waits wakes a second thread that finds nothing to do: four futex calls for one request were
//! seen. So all that one connection needs stays on one thread.

use std::{
    io,
    num::NonZeroUsize,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use tokio::runtime::{Builder, Handle};

use crate::log_lines;

/// The threads. They run as long as the process: connections to the database that were opened on one
/// are used by the others, and after the last request.
#[derive(Debug)]
pub(crate) struct Lanes {
    handles: Vec<Handle>,
    next: AtomicUsize,
}

impl Lanes {
    /// Starts them.
    ///
    /// # Errors
    /// The system has no more threads or descriptors.
    pub(crate) fn start() -> io::Result<Self> {
        let count = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let mut handles = Vec::with_capacity(count);
        for number in 0..count {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .on_thread_park(log_lines::write_held)
                .build()?;
            handles.push(runtime.handle().clone());
            thread::Builder::new().name(format!("connections-{number}")).spawn(move || {
                log_lines::hold();
                runtime.block_on(std::future::pending::<()>());
            })?;
        }
        Ok(Self { handles, next: AtomicUsize::new(0) })
    }

    /// The one whose turn it is.
    pub(crate) fn next(&self) -> &Handle {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        &self.handles[turn % self.handles.len()]
    }

    /// Returns when the log lines of what has been done are written: the process may end before the
    /// threads come to rest.
    pub(crate) async fn write_log_lines(&self) {
        for handle in &self.handles {
            let _ = handle.spawn(async { log_lines::write_held() }).await;
        }
    }
}
