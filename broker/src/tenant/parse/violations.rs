//! The violations that were found so far.

use std::fmt;

use crate::tenant::Violation;

#[derive(Default)]
pub(super) struct Violations(pub(super) Vec<Violation>);

impl Violations {
    pub(super) fn add(&mut self, field: impl Into<String>, reason: impl fmt::Display) {
        self.0.push(Violation::new(field, reason));
    }

    /// The value, or `None` after its error is recorded.
    pub(super) fn ok_or_record<T, E: fmt::Display>(
        &mut self,
        field: &str,
        result: Result<T, E>,
    ) -> Option<T> {
        result.map_err(|error| self.add(field, error)).ok()
    }

    /// Records a list or map that is too long.
    pub(super) fn limit(&mut self, field: &str, length: usize, max: usize) {
        if length > max {
            self.add(field, format!("at most {max} items, not {length}"));
        }
    }

    /// Records a list that is empty.
    pub(super) fn not_empty<T>(&mut self, field: &str, items: &[T]) {
        if items.is_empty() {
            self.add(field, "at least one item");
        }
    }
}
