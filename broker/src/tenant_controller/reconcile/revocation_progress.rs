//! What this process has done of suspensions that are not complete.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use uuid::Uuid;

use crate::tenant::{NamespaceRow, TenantRow, TenantStatus};

/// A part of a suspension in the cluster. The parts run concurrently, except that the members follow the
/// label of the home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RevocationStep {
    /// The home has the label of a suspended tenant and no RoleBindings.
    Home,
    /// No ServiceAccount of a member exists, and the streams of members are closed.
    Members,
    /// All namespaces have the label and no RoleBindings.
    Namespaces,
}

impl RevocationStep {
    /// All steps, in the order in which they begin.
    pub const ALL: [Self; 3] = [Self::Home, Self::Members, Self::Namespaces];

    /// The name of the step in responses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::Members => "members",
            Self::Namespaces => "namespaces",
        }
    }
}

/// The end of a step's last attempt in this process.
#[derive(Clone, Debug)]
pub struct StepAttemptEnd {
    /// How long the attempt took.
    pub duration: Duration,
    /// When it ended.
    pub ended_at: Instant,
    /// What failed in it, for people.
    pub failures: Vec<String>,
}

/// How long the progress of a suspension is kept after its last attempt. Another replica may have ended
/// it.
const TTL: Duration = Duration::from_hours(1);

/// A namespace by name, with its row if there is one.
pub(super) type NamespaceToRevoke<'a> = (&'a str, Option<&'a NamespaceRow>);

/// The progress of each suspension, so that a tenant with many namespaces is suspended by several
/// attempts, of which none repeats what an earlier one has done. A namespace that is done has the label,
/// which lets nobody make a RoleBinding.
#[derive(Debug, Default)]
pub(in crate::tenant_controller) struct RevocationProgress(Mutex<BTreeMap<Uuid, Progress>>);

#[derive(Debug)]
struct Progress {
    /// When the suspension was decided, in milliseconds since the epoch.
    decided_at: i64,
    used_at: Instant,
    has_begun: bool,
    done: BTreeSet<String>,
    /// Namespaces in which a RoleBinding appeared after their revocation had begun, or was done.
    with_new_bindings: BTreeSet<String>,
    steps: BTreeMap<RevocationStep, StepAttemptEnd>,
    /// Number of attempts on namespaces that are not done.
    attempts: BTreeMap<String, u32>,
}

impl Progress {
    /// Records that the namespaces in which RoleBindings appeared are not done. Returns those that were; the
    /// others have failures, or get no row and are revoked in another order.
    fn reopen_with_new_bindings(&mut self) -> BTreeSet<String> {
        let mut reopened = std::mem::take(&mut self.with_new_bindings);
        reopened.retain(|namespace| self.done.remove(namespace));
        reopened
    }

    fn attempts(&self, namespace: &str) -> u32 {
        self.attempts.get(namespace).copied().unwrap_or_default()
    }
}

impl RevocationProgress {
    /// Starts an attempt at a suspension; returns whether it is the first one of this process.
    pub(super) fn start_attempt(&self, row: &TenantRow) -> bool {
        let mut is_first = false;
        self.with(row, |progress| {
            is_first = !std::mem::replace(&mut progress.has_begun, true);
            // Those of an attempt that was interrupted.
            progress.reopen_with_new_bindings();
        });
        is_first
    }

    /// The namespaces that are not done, those with the fewest attempts first. All of a tenant whose
    /// suspension is complete.
    pub(super) fn open<'a>(
        &self,
        row: &TenantRow,
        mut namespaces: Vec<NamespaceToRevoke<'a>>,
    ) -> Vec<NamespaceToRevoke<'a>> {
        self.with(row, |progress| {
            namespaces.retain(|(name, _)| !progress.done.contains(*name));
            namespaces.sort_by_key(|(name, _)| progress.attempts(name));
        });
        namespaces
    }

    /// Sorts namespaces by the number of attempts on them.
    pub(super) fn sort_by_attempts(&self, row: &TenantRow, namespaces: &mut [&str]) {
        self.with(row, |progress| namespaces.sort_by_key(|name| progress.attempts(name)));
    }

    /// Counts an attempt on a namespace, which begins now.
    pub(super) fn count_attempt(&self, row: &TenantRow, namespace: &str) {
        self.with(row, |progress| {
            *progress.attempts.entry(namespace.to_owned()).or_default() += 1;
        });
    }

    /// Records that a namespace is done.
    pub(super) fn complete(&self, row: &TenantRow, namespace: &str) {
        self.with(row, |progress| {
            progress.attempts.remove(namespace);
            progress.done.insert(namespace.to_owned());
        });
    }

    /// Records that a RoleBinding appeared in a namespace of a suspension that is not complete. The API
    /// server may have admitted it before the namespace had its label.
    pub(in crate::tenant_controller) fn binding_appeared(&self, namespace: &str) {
        for progress in self.lock().values_mut() {
            let has_begun = progress.attempts.contains_key(namespace);
            if progress.done.contains(namespace) || has_begun {
                progress.with_new_bindings.insert(namespace.to_owned());
            }
        }
    }

    /// Records that the namespaces in which a RoleBinding appeared during this attempt are not done.
    /// Returns those that were done, each once.
    pub(super) fn reopen_with_new_bindings(&self, row: &TenantRow) -> BTreeSet<String> {
        let mut reopened = BTreeSet::new();
        self.with(row, |progress| reopened = progress.reopen_with_new_bindings());
        reopened
    }

    /// Records that a namespace is not done: it had no label, so somebody may have made RoleBindings.
    pub(super) fn reopen(&self, row: &TenantRow, namespace: &str) {
        self.with(row, |progress| {
            progress.done.remove(namespace);
        });
    }

    /// Records the end of an attempt at a step that began at this time.
    pub(super) fn end_step(
        &self,
        row: &TenantRow,
        step: RevocationStep,
        began: Instant,
        failures: &[String],
    ) {
        let ended_at = Instant::now();
        let duration = ended_at.duration_since(began);
        let end = StepAttemptEnd { duration, ended_at, failures: failures.to_vec() };
        self.with(row, |progress| {
            progress.steps.insert(step, end);
        });
    }

    /// The last attempts at the steps of a suspension that was decided at this time, in milliseconds since
    /// the epoch, also for [`TTL`] after its end.
    pub(in crate::tenant_controller) fn steps(
        &self,
        tenant: Uuid,
        decided_at: i64,
    ) -> BTreeMap<RevocationStep, StepAttemptEnd> {
        let all = self.lock();
        let progress = all.get(&tenant).filter(|progress| progress.decided_at == decided_at);
        progress.map(|progress| progress.steps.clone()).unwrap_or_default()
    }

    /// Drops the progress in the namespaces of a suspension, because it is complete.
    pub(super) fn forget_namespaces(&self, tenant: Uuid) {
        if let Some(progress) = self.lock().get_mut(&tenant) {
            progress.done.clear();
            progress.with_new_bindings.clear();
            progress.attempts.clear();
        }
    }

    /// Runs `change` on the progress of a tenant that is being suspended.
    fn with(&self, row: &TenantRow, change: impl FnOnce(&mut Progress)) {
        if row.status != TenantStatus::Suspending {
            return;
        }
        let (now, decided_at) = (Instant::now(), row.status_changed_at);
        let mut all = self.lock();
        all.retain(|_, progress| now.duration_since(progress.used_at) < TTL);
        let new = || Progress {
            decided_at,
            used_at: now,
            has_begun: false,
            done: BTreeSet::new(),
            with_new_bindings: BTreeSet::new(),
            steps: BTreeMap::new(),
            attempts: BTreeMap::new(),
        };
        let progress = all.entry(row.id).or_insert_with(new);
        if progress.decided_at != decided_at {
            *progress = new();
        }
        progress.used_at = now;
        change(progress);
    }

    /// No code panics while it has the lock.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, Progress>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(status: TenantStatus, decided_at: i64) -> TenantRow {
        TenantRow { status_changed_at: decided_at, ..TenantRow::for_tests("solar", status) }
    }

    #[test]
    fn a_later_attempt_goes_on_with_what_was_tried_least_often() {
        let (progress, solar) = (RevocationProgress::default(), row(TenantStatus::Suspending, 7));
        let names = ["solar-a", "solar-b", "solar-c"];
        let open = |row: &TenantRow| {
            let all = names.iter().map(|name| (*name, None)).collect();
            progress.open(row, all).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(open(&solar), names);
        assert!(progress.start_attempt(&solar) && !progress.start_attempt(&solar));
        progress.count_attempt(&solar, "solar-a");
        assert_eq!(open(&solar), ["solar-b", "solar-c", "solar-a"]);
        progress.count_attempt(&solar, "solar-b");
        progress.complete(&solar, "solar-b");
        assert_eq!(open(&solar), ["solar-c", "solar-a"]);
        progress.reopen(&solar, "solar-b");
        assert_eq!(open(&solar), ["solar-b", "solar-c", "solar-a"]);
        progress.complete(&solar, "solar-b");
        // A suspended tenant is looked at as a whole, and so is one that is suspended again.
        assert_eq!(open(&row(TenantStatus::Suspended, 7)), names);
        assert_eq!(open(&row(TenantStatus::Suspending, 8)), names);
        progress.complete(&solar, "solar-a");
        progress.forget_namespaces(solar.id);
        assert_eq!(open(&solar), names);
    }

    #[test]
    fn a_namespace_in_which_a_binding_appears_is_not_done() {
        let (progress, solar) = (RevocationProgress::default(), row(TenantStatus::Suspending, 7));
        progress.start_attempt(&solar);
        progress.complete(&solar, "solar-a");
        for name in ["solar-a", "solar-b", "lunar-a"] {
            progress.binding_appeared(name);
        }
        assert_eq!(progress.reopen_with_new_bindings(&solar), ["solar-a".to_owned()].into());
        assert!(progress.reopen_with_new_bindings(&solar).is_empty());
        let is_open = || progress.open(&solar, vec![("solar-a", None)]).len() == 1;
        assert!(is_open());
        // It is not done, so it has a failure, or gets no row.
        progress.count_attempt(&solar, "solar-a");
        progress.binding_appeared("solar-a");
        assert!(progress.reopen_with_new_bindings(&solar).is_empty());
        // Between the last list and its result.
        progress.count_attempt(&solar, "solar-a");
        progress.binding_appeared("solar-a");
        progress.complete(&solar, "solar-a");
        assert!(!is_open());
        // An attempt that was interrupted has not looked at it.
        progress.start_attempt(&solar);
        assert!(is_open() && progress.reopen_with_new_bindings(&solar).is_empty());
    }

    #[test]
    fn the_steps_of_a_suspension_are_those_of_its_last_attempt() {
        let (progress, solar) = (RevocationProgress::default(), row(TenantStatus::Suspending, 7));
        let failed = ["label in solar-a: timeout".to_owned()];
        progress.end_step(&solar, RevocationStep::Namespaces, Instant::now(), &failed);
        let failures = |decided_at| {
            let steps = progress.steps(solar.id, decided_at);
            steps.into_iter().map(|(step, end)| (step, end.failures)).collect::<Vec<_>>()
        };
        assert_eq!(failures(7), [(RevocationStep::Namespaces, failed.to_vec())]);
        assert!(failures(8).is_empty(), "another suspension");
        progress.end_step(&solar, RevocationStep::Namespaces, Instant::now(), &[]);
        progress.forget_namespaces(solar.id);
        assert_eq!(failures(7), [(RevocationStep::Namespaces, Vec::new())]);
        // The next suspension begins with none.
        progress.end_step(
            &row(TenantStatus::Suspending, 9),
            RevocationStep::Home,
            Instant::now(),
            &[],
        );
        assert_eq!(failures(9), [(RevocationStep::Home, Vec::new())]);
    }
}
