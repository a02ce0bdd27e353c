//! Installations and deletions, of which each has a row of the audit trail before it begins.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use uuid::Uuid;

use crate::model_services::failure::Failure;

const WINDOW: Duration = Duration::from_mins(5);
/// Users and namespaces with changes at most, up to 3 MiB.
const MAX_KEYS: usize = 10_000;

/// Key of the limit of changes. A namespace counts besides the user, because somebody may have many
/// users there: each ServiceAccount is one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::model_services) enum ChangeKey {
    /// A user of the broker.
    User(Uuid),
    /// The name of a Kubernetes user.
    KubernetesUser(String),
    Namespace(String),
}

/// The changes of a key since the first one in the window.
#[derive(Debug)]
struct Window {
    started_at: Instant,
    count: u32,
}

/// The changes of the last five minutes.
#[derive(Debug)]
pub(in crate::model_services) struct Changes {
    max: u32,
    windows: Mutex<HashMap<ChangeKey, Window>>,
}

impl Changes {
    /// At most `max` changes of each key in five minutes.
    pub(super) fn new(max: u32) -> Self {
        Self { max, windows: Mutex::default() }
    }

    /// Counts a change of each of these keys, or of none.
    ///
    /// # Errors
    /// One of them has too many, or too many others have some.
    pub(in crate::model_services) fn count(
        &self,
        keys: &[ChangeKey],
        now: Instant,
    ) -> Result<(), Failure> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = |window: &Window| now.duration_since(window.started_at) < WINDOW;
        if windows.len() + keys.len() > MAX_KEYS {
            windows.retain(|_, window| is_current(window));
        }
        if windows.len() + keys.len() > MAX_KEYS {
            return Err(Failure::too_many("too many installations and deletions; try again", 60));
        }
        for key in keys {
            let full = windows.get(key).filter(|window| is_current(window));
            if let Some(window) = full.filter(|window| window.count >= self.max) {
                let left = WINDOW.saturating_sub(now.duration_since(window.started_at));
                let whose = match key {
                    ChangeKey::Namespace(_) => "in this namespace",
                    ChangeKey::User(_) | ChangeKey::KubernetesUser(_) => "of this user",
                };
                let text = format!(
                    "more than {} installations and deletions {whose} in five minutes",
                    self.max
                );
                return Err(Failure::too_many(text, left.as_secs() + 1));
            }
        }
        for key in keys {
            let new = || Window { started_at: now, count: 0 };
            let window = windows.entry(key.clone()).or_insert_with(new);
            if !is_current(window) {
                *window = new();
            }
            window.count += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(user: u128, namespace: &str) -> [ChangeKey; 2] {
        [ChangeKey::User(Uuid::from_u128(user)), ChangeKey::Namespace(namespace.to_owned())]
    }

    #[test]
    fn a_user_and_a_namespace_have_a_number_of_changes() {
        let (changes, now) = (Changes::new(3), Instant::now());
        for _ in 0..3 {
            changes.count(&keys(1, "a"), now).unwrap();
        }
        let refused = changes.count(&keys(1, "b"), now + Duration::from_mins(1)).unwrap_err();
        assert!(refused.message().contains("3 installations and deletions of this user"));
        assert_eq!(refused.retry_after_seconds(), Some(241));
        let refused = changes.count(&keys(2, "a"), now).unwrap_err();
        assert!(refused.message().contains("in this namespace"), "{refused}");
        for _ in 0..3 {
            changes.count(&keys(2, "b"), now).unwrap();
        }
        assert!(changes.count(&keys(1, "a"), now + WINDOW).is_ok());
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        let (changes, now) = (Changes::new(3), Instant::now());
        let count = |number: usize, now| {
            changes.count(&[ChangeKey::KubernetesUser(number.to_string())], now).is_ok()
        };
        assert!((0..MAX_KEYS).all(|number| count(number, now)));
        assert!(!count(MAX_KEYS, now));
        assert!(count(MAX_KEYS, now + WINDOW));
        assert_eq!(changes.windows.lock().unwrap().len(), 1);
    }
}
