//! Limits of each caller: one caller cannot use up the limit of all callers.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::base::rate_limit::ClientNetwork;

/// Beginning of the user names of ServiceAccounts, before their namespace.
pub(in crate::model_services) const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
/// Number of callers from which those that use nothing are removed.
const MIN_CALLERS_TO_EVICT: usize = 1024;

/// A caller for limits: a user of the broker, a Kubernetes user by the SHA-256 of the name, a Kubernetes
/// token by its SHA-256, or an address, which may be a frontend's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::model_services) enum CallerKey {
    User(Uuid),
    KubernetesUser([u8; 32]),
    Token([u8; 32]),
    Address(ClientNetwork),
}

impl CallerKey {
    /// The Kubernetes user of this name. All ServiceAccounts of a namespace are one, because somebody
    /// with rights there has as many as they like.
    pub(in crate::model_services) fn of_kubernetes_user(name: &str) -> Self {
        let account =
            name.strip_prefix(SERVICE_ACCOUNT_PREFIX).and_then(|rest| rest.split_once(':'));
        let digest = match account {
            Some((namespace, _)) => Sha256::digest(format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:")),
            None => Sha256::digest(name),
        };
        Self::KubernetesUser(digest.into())
    }
}

/// The semaphores of all callers who use one.
#[derive(Debug)]
pub(super) struct CallerSemaphores {
    /// Permits of a user or a token.
    per_caller: usize,
    /// Permits of an address.
    per_address: usize,
    callers: Mutex<HashMap<CallerKey, Weak<Semaphore>>>,
}

impl CallerSemaphores {
    pub(super) fn new(per_caller: usize, per_address: usize) -> Self {
        Self { per_caller, per_address, callers: Mutex::default() }
    }

    /// The semaphore of a caller.
    pub(super) fn of(&self, key: CallerKey) -> Arc<Semaphore> {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = callers.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        if callers.len() >= MIN_CALLERS_TO_EVICT {
            callers.retain(|_, known| known.strong_count() > 0);
        }
        let permits = match key {
            CallerKey::User(_) | CallerKey::KubernetesUser(_) | CallerKey::Token(_) => {
                self.per_caller
            }
            CallerKey::Address(_) => self.per_address,
        };
        let new = Arc::new(Semaphore::new(permits));
        callers.insert(key, Arc::downgrade(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_one_share_while_it_is_used() {
        let per_caller = CallerSemaphores::new(2, 3);
        for (key, permits) in [
            (CallerKey::User(Uuid::from_u128(1)), 2),
            (CallerKey::of_kubernetes_user("alice"), 2),
            (CallerKey::Token([1; 32]), 2),
            (CallerKey::Address(ClientNetwork::Unknown), 3),
        ] {
            let semaphore = per_caller.of(key);
            assert_eq!(semaphore.available_permits(), permits, "{key:?}");
            assert!(Arc::ptr_eq(&semaphore, &per_caller.of(key)), "{key:?}");
        }
    }

    #[test]
    fn the_service_accounts_of_a_namespace_are_one_user() {
        let of = CallerKey::of_kubernetes_user;
        assert_eq!(of("system:serviceaccount:ns:a"), of("system:serviceaccount:ns:b"));
        assert_ne!(of("system:serviceaccount:ns:a"), of("system:serviceaccount:ns2:a"));
        assert_ne!(of("ns:a"), of("ns:b"));
        assert_ne!(of("alice"), of("bob"));
    }

    #[test]
    fn callers_who_use_nothing_are_removed() {
        let per_caller = CallerSemaphores::new(2, 3);
        let held = per_caller.of(CallerKey::Token([255; 32]));
        for number in 0..10_000 {
            drop(per_caller.of(CallerKey::User(Uuid::from_u128(number))));
        }
        assert!(per_caller.callers.lock().unwrap().len() <= MIN_CALLERS_TO_EVICT);
        assert!(Arc::ptr_eq(&held, &per_caller.of(CallerKey::Token([255; 32]))));
    }
}
