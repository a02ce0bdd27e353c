//! Cancellation of requests and streams in flight from other tasks.

use std::{
    fmt,
    future::poll_fn,
    sync::{Mutex, OnceLock, PoisonError},
    task::{Context, Poll},
};

use futures_util::task::AtomicWaker;

/// Reason for closing a request or stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum CloseReason {
    /// The workspace was suspended.
    Suspended,
    /// The session has ended.
    SessionEnded,
    /// The ServiceAccount or credential that it was started with was replaced or revoked.
    Revoked,
    /// The broker shuts down.
    Stopping,
    /// The database has not responded for so long that revocations may have been missed.
    DatabaseUnavailable,
    /// A list or watch with the broker's own credential shows something else now: the caller lost or
    /// gained a tenant, or a Tenant grants other lists.
    TenantsChanged,
    /// The namespace of the request is no longer that of the membership it was sent with.
    NamespaceMoved,
    /// The broker's copy of Tenants has been out of date for so long that changes of the caller's
    /// rights may have been missed.
    TenantsOutOfDate,
    /// The member has lost a role in the tenant of the namespace.
    RoleLost,
}

impl CloseReason {
    /// Whether it is about the namespace of a request alone. Parts of the request in other namespaces
    /// go on.
    pub(in crate::gateway) fn is_of_namespace(self) -> bool {
        matches!(self, Self::NamespaceMoved | Self::RoleLost)
    }

    /// The text in log lines.
    pub(in crate::gateway) fn as_str(self) -> &'static str {
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
pub(in crate::gateway) struct CancelHandle {
    reason: OnceLock<CloseReason>,
    /// The first reason that is not about the namespace alone. It may follow another reason.
    ended: OnceLock<CloseReason>,
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
    pub(in crate::gateway) fn cancel(&self, reason: CloseReason) -> bool {
        let is_first = self.set_reason(reason);
        if is_first {
            self.notify();
        }
        is_first
    }

    /// Sets the reason, so that no further part or call of the request begins; returns false if it was
    /// set before. [`Self::notify`] has to follow.
    pub(super) fn set_reason(&self, reason: CloseReason) -> bool {
        if !reason.is_of_namespace() {
            // The first such reason is kept.
            let _ = self.ended.set(reason);
        }
        self.reason.set(reason).is_ok()
    }

    /// Ends what the request does now.
    pub(super) fn notify(&self) {
        self.waker.wake();
        self.release_now();
    }

    /// The reason that also ends the parts of the request in other namespaces.
    pub(super) fn ended(&self) -> Option<CloseReason> {
        self.ended.get().copied()
    }

    /// Sets a callback that runs when the stream is cancelled, or at once if it is already. A body
    /// notices a cancellation only when it is polled, and a client that does not read never polls.
    pub(in crate::gateway) fn on_cancel(&self, release: impl FnOnce() + Send + 'static) {
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
    pub(in crate::gateway) fn reason(&self) -> Option<CloseReason> {
        self.reason.get().copied()
    }

    /// Polls for cancellation and registers the task's waker. One task at a time may wait.
    pub(in crate::gateway) fn poll(&self, context: &Context<'_>) -> Poll<CloseReason> {
        self.waker.register(context.waker());
        self.reason().map_or(Poll::Pending, Poll::Ready)
    }

    /// Waits until it is cancelled.
    pub(in crate::gateway) async fn cancelled(&self) -> CloseReason {
        poll_fn(|context| self.poll(context)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_request_is_known_also_after_that_of_its_namespace() {
        let handle = CancelHandle::default();
        assert!(handle.cancel(CloseReason::RoleLost));
        assert_eq!((handle.reason(), handle.ended()), (Some(CloseReason::RoleLost), None));
        assert!(!handle.cancel(CloseReason::Suspended));
        assert!(!handle.cancel(CloseReason::Stopping));
        assert_eq!(handle.reason(), Some(CloseReason::RoleLost), "the first reason counts");
        assert_eq!(handle.ended(), Some(CloseReason::Suspended));
        let handle = CancelHandle::default();
        assert!(handle.set_reason(CloseReason::SessionEnded));
        assert!(!handle.cancel(CloseReason::Stopping));
        let ended = Some(CloseReason::SessionEnded);
        assert_eq!((handle.reason(), handle.ended()), (ended, ended));
    }
}
