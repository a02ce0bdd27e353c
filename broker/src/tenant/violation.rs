//! Violations: rules of the definition that a Tenant breaks.

use std::fmt;

/// A rule that a Tenant breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field, as the API server writes it: `spec.owners[0].name`.
    pub field: String,
    /// The rule.
    pub reason: String,
}

impl Violation {
    pub(super) fn new(field: impl Into<String>, reason: impl fmt::Display) -> Self {
        Self { field: field.into(), reason: reason.to_string() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}
