//! Cancellation of requests and streams in flight from other tasks.

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

/// Reason for closing a request or stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum CloseReason {
    /// The workspace was suspended.
    Suspended = 1,
    /// The session has ended.
    SessionEnded = 2,
    /// The ServiceAccount or credential that it was started with was replaced or revoked.
    Revoked = 3,
    /// The broker shuts down.
    Stopping = 4,
    /// The database has not responded for so long that revocations may have been missed.
    DatabaseUnavailable = 5,
    /// A list or watch with the broker's own credential shows something else now: the caller lost or
    /// gained a tenant, or a Tenant grants other lists.
    TenantsChanged = 6,
    /// The namespace of the request is no longer that of the membership it was sent with.
    NamespaceMoved = 7,
    /// The broker's copy of Tenants has been out of date for so long that changes of the caller's
    /// rights may have been missed.
    TenantsOutOfDate = 8,
    /// The member has lost a role in the tenant of the namespace.
    RoleLost = 9,
}

impl CloseReason {
    /// The text in log lines.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Suspended => "workspace suspended",
            Self::SessionEnded => "session ended",
            Self::Revoked => "credential revoked",
            Self::Stopping => "broker stopping",
            Self::DatabaseUnavailable => "database unavailable",
            Self::TenantsChanged => "tenants changed",
            Self::NamespaceMoved => "namespace moved",
            Self::TenantsOutOfDate => "tenants not known",
            Self::RoleLost => "role lost",
        }
    }
}

/// A callback that releases resources.
type Release = Box<dyn FnOnce() + Send>;

/// Handle to cancel one request or stream; it stays cancelled.
#[derive(Default)]
pub(super) struct CancelHandle {
    reason: AtomicU8,
    waker: AtomicWaker,
    release: Mutex<Option<Release>>,
}

impl fmt::Debug for CancelHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelHandle").field("reason", &self.reason()).finish_non_exhaustive()
    }
}

impl CancelHandle {
    /// Cancels the stream with this reason; returns false if it was cancelled before. The first
    /// reason is kept.
    pub(super) fn cancel(&self, reason: CloseReason) -> bool {
        let first =
            self.reason.compare_exchange(0, reason as u8, Ordering::AcqRel, Ordering::Acquire);
        if first.is_err() {
            return false;
        }
        self.waker.wake();
        self.release_now();
        true
    }

    /// Sets a callback that runs when the stream is cancelled, or at once if it is already. A body
    /// notices a cancellation only when it is polled, and a client that does not read never polls.
    pub(super) fn on_cancel(&self, release: impl FnOnce() + Send + 'static) {
        *self.release.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(release));
        if self.reason().is_some() {
            self.release_now();
        }
    }

    fn release_now(&self) {
        let release = self.release.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(release) = release {
            release();
        }
    }

    /// The reason, if it was cancelled.
    pub(super) fn reason(&self) -> Option<CloseReason> {
        match self.reason.load(Ordering::Acquire) {
            0 => None,
            1 => Some(CloseReason::Suspended),
            2 => Some(CloseReason::SessionEnded),
            3 => Some(CloseReason::Revoked),
            4 => Some(CloseReason::Stopping),
            5 => Some(CloseReason::DatabaseUnavailable),
            6 => Some(CloseReason::TenantsChanged),
            7 => Some(CloseReason::NamespaceMoved),
            8 => Some(CloseReason::TenantsOutOfDate),
            _ => Some(CloseReason::RoleLost),
        }
    }

    /// Polls for cancellation and registers the task's waker. One task at a time may wait.
    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<CloseReason> {
        self.waker.register(context.waker());
        self.reason().map_or(Poll::Pending, Poll::Ready)
    }

    /// Waits until it is cancelled.
    pub(super) async fn cancelled(&self) -> CloseReason {
        poll_fn(|context| self.poll(context)).await
    }
}
