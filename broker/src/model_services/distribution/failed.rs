//! Changes that fail, and what they leave.

use super::super::failure::Failure;

/// A change that failed.
#[derive(Debug)]
pub(super) struct Failed {
    failure: Failure,
    /// What the change left, or may have left; `None` if nothing was changed.
    left: Option<String>,
}

impl Failed {
    /// A change that left something.
    pub(super) fn leaving(failure: Failure, left: impl Into<String>) -> Self {
        Self { failure, left: Some(left.into()) }
    }

    /// The failure, and what the change left.
    pub(super) fn into_parts(self) -> (Failure, Option<String>) {
        (self.failure, self.left)
    }
}

/// A change that changed nothing.
impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { failure, left: None }
    }
}
