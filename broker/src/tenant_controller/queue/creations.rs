//! Namespaces that requests of this process are creating. Events of their objects cause no run, because
//! the run would create the same objects at the same time. The end of a creation causes one.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::Queue;
use crate::tenant::TenantName;

/// The namespaces with the number of requests that create each: one may be repeated meanwhile.
#[derive(Debug, Default)]
pub(in crate::tenant_controller) struct Creations(Mutex<BTreeMap<String, usize>>);

/// A creation that is under way. It ends with [`Creation::finish`], or when this is dropped because
/// the request was cancelled; the interval of the controller brings the next run then.
#[derive(Debug)]
#[must_use]
pub(in crate::tenant_controller) struct Creation<'a> {
    creations: &'a Creations,
    namespace: &'a str,
}

impl Creations {
    /// Begins the creation of a namespace.
    pub(in crate::tenant_controller) fn begin<'a>(&'a self, namespace: &'a str) -> Creation<'a> {
        *self.lock().entry(namespace.to_owned()).or_default() += 1;
        Creation { creations: self, namespace }
    }

    /// Whether a request creates this namespace.
    pub(in crate::tenant_controller) fn contains(&self, namespace: &str) -> bool {
        self.lock().contains_key(namespace)
    }

    /// No code panics while it has the lock.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Creation<'_> {
    /// Ends the creation. The tenant is reconciled then, because none of the events until now caused
    /// a run.
    pub(in crate::tenant_controller) fn finish(self, queue: &Queue, tenant: &TenantName) {
        drop(self);
        queue.add(tenant.clone());
    }
}

impl Drop for Creation<'_> {
    fn drop(&mut self) {
        let mut all = self.creations.lock();
        if let Some(count) = all.get_mut(self.namespace) {
            *count -= 1;
            if *count == 0 {
                all.remove(self.namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_creation_ends_with_the_last_of_its_requests_and_causes_a_run() {
        let (creations, queue) = (Creations::default(), Queue::default());
        let solar = "solar".parse().unwrap();
        let first = creations.begin("solar-a");
        let second = creations.begin("solar-a");
        assert!(creations.contains("solar-a"));
        assert!(!creations.contains("solar-b"));
        assert_eq!(queue.len(), 0);
        first.finish(&queue, &solar);
        assert!(creations.contains("solar-a"));
        second.finish(&queue, &solar);
        assert!(!creations.contains("solar-a"));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn a_cancelled_creation_ends() {
        let creations = Creations::default();
        drop(creations.begin("solar-a"));
        assert!(!creations.contains("solar-a"));
    }
}
