//! A value that is replaced while it is in use.

use std::{fmt, sync::Arc};

use tokio::sync::watch;

/// A value that [`Reloader`](super::Reloader) replaces when its files change. Clones share it.
pub struct Reloaded<T>(watch::Receiver<Arc<T>>);

impl<T> Reloaded<T> {
    /// A value that comes from no file, so it never changes.
    pub fn fixed(value: T) -> Self {
        Self::channel(value).1
    }

    /// A value, and the sender that replaces it.
    pub(super) fn channel(value: T) -> (watch::Sender<Arc<T>>, Self) {
        let (sender, receiver) = watch::channel(Arc::new(value));
        (sender, Self(receiver))
    }

    /// The current value. Work that was begun with it continues with it.
    pub fn get(&self) -> Arc<T> {
        self.0.borrow().clone()
    }
}

impl<T> Clone for Reloaded<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for Reloaded<T> {
    /// The value may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reloaded")
    }
}
