//! A switch that ends a stream from outside, whatever it is doing.

use std::{
    fmt,
    future::poll_fn,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll},
};

use futures_util::task::AtomicWaker;

/// Why a stream was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Why {
    /// The kill switch was used.
    Suspended = 1,
    /// Its session is over.
    SessionEnded = 2,
    /// The ServiceAccount or credential that it began with is no more.
    Revoked = 3,
    /// The broker stops.
    Stopping = 4,
    /// The database has not answered for too long to know who may go on.
    Unknown = 5,
}

impl Why {
    /// As the log line says it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Suspended => "workspace suspended",
            Self::SessionEnded => "session ended",
            Self::Revoked => "credential revoked",
            Self::Stopping => "broker stopping",
            Self::Unknown => "database silent",
        }
    }
}

/// What lets go of something.
type Release = Box<dyn FnOnce() + Send>;

/// The switch. Off until [`Cut::now`], then on for good.
#[derive(Default)]
pub(super) struct Cut {
    why: AtomicU8,
    waker: AtomicWaker,
    release: Mutex<Option<Release>>,
}

impl fmt::Debug for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cut").field("why", &self.why()).finish_non_exhaustive()
    }
}

impl Cut {
    /// Ends the stream, unless it was ended already; the first reason counts.
    pub(super) fn now(&self, why: Why) -> bool {
        let first = self.why.compare_exchange(0, why as u8, Ordering::AcqRel, Ordering::Acquire);
        if first.is_err() {
            return false;
        }
        self.waker.wake();
        self.let_go();
        true
    }

    /// Does this as well when the stream is ended, at once if it is already. Whoever waits for the
    /// switch hears of it only when asked to go on, and a client that does not read never asks.
    pub(super) fn releases(&self, release: impl FnOnce() + Send + 'static) {
        *self.release.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(release));
        if self.why().is_some() {
            self.let_go();
        }
    }

    fn let_go(&self) {
        let release = self.release.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(release) = release {
            release();
        }
    }

    /// Why it was ended, if it was.
    pub(super) fn why(&self) -> Option<Why> {
        match self.why.load(Ordering::Acquire) {
            0 => None,
            1 => Some(Why::Suspended),
            2 => Some(Why::SessionEnded),
            3 => Some(Why::Revoked),
            4 => Some(Why::Stopping),
            _ => Some(Why::Unknown),
        }
    }

    /// The same, and wakes this task when it happens. One task at a time may wait.
    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<Why> {
        self.waker.register(context.waker());
        self.why().map_or(Poll::Pending, Poll::Ready)
    }

    /// Returns once it happens.
    pub(super) async fn happened(&self) -> Why {
        poll_fn(|context| self.poll(context)).await
    }
}
