//! Calls whose clients leave before the response.

use std::sync::atomic::{AtomicBool, Ordering};

/// Guard of a call. It runs `on_cancel` if it is dropped while the call is under way. A call that waits
/// for its permits is not sent, so it is not under way.
pub(super) struct CancelledCallGuard<F: Fn()> {
    on_cancel: F,
    is_under_way: AtomicBool,
}

impl<F: Fn()> CancelledCallGuard<F> {
    /// The guard of a call that is not sent yet.
    pub(super) fn new(on_cancel: F) -> Self {
        Self { on_cancel, is_under_way: AtomicBool::new(false) }
    }

    /// The call is sent now.
    pub(super) fn begin(&self) {
        self.is_under_way.store(true, Ordering::Relaxed);
    }

    /// The call has ended, or its time is over.
    pub(super) fn end(&self) {
        self.is_under_way.store(false, Ordering::Relaxed);
    }
}

impl<F: Fn()> Drop for CancelledCallGuard<F> {
    fn drop(&mut self) {
        if self.is_under_way.load(Ordering::Relaxed) {
            (self.on_cancel)();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn only_a_call_under_way_is_cancelled() {
        let cancelled = Cell::new(0);
        let count = || cancelled.set(cancelled.get() + 1);
        drop(CancelledCallGuard::new(count));
        assert_eq!(cancelled.get(), 0, "it waited for its permits");
        let ended = CancelledCallGuard::new(count);
        ended.begin();
        ended.end();
        drop(ended);
        assert_eq!(cancelled.get(), 0);
        let under_way = CancelledCallGuard::new(count);
        under_way.begin();
        drop(under_way);
        assert_eq!(cancelled.get(), 1);
    }
}
