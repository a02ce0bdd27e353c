//! A switch that ends a stream from outside, whatever it is doing.

use std::{
    future::poll_fn,
    sync::atomic::{AtomicU8, Ordering},
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

/// The switch. Off until [`Cut::now`], then on for good.
#[derive(Debug, Default)]
pub(super) struct Cut {
    why: AtomicU8,
    waker: AtomicWaker,
}

impl Cut {
    /// Ends the stream; the first reason counts.
    pub(super) fn now(&self, why: Why) {
        let first = self.why.compare_exchange(0, why as u8, Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() {
            self.waker.wake();
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
