//! The steps of what is done in the cluster, how far a run came, and what is still open.

use std::time::{Duration, Instant};

use tenant_shared::{Step, StepResult, Unfinished, WorkspaceStatus as Status};

use super::{Found, WorkspaceError};
use crate::{clock::timestamp, problem::chain};

/// Characters of what the cluster said about a step that is open.
const MAX_DETAIL: usize = 500;

/// Steps of a suspension after the decision is on record.
pub(super) const SUSPENSION: [&str; 5] = [
    "label_namespace",
    "delete_role_bindings",
    "delete_service_account",
    "close_streams",
    "finish",
];
/// Steps of a resumption after the decision is on record.
pub(super) const RESUMPTION: [&str; 2] = ["unlabel_namespace", "create_objects"];
/// Steps of an init after the wish is on record.
const PROVISIONING: [&str; 1] = ["create_objects"];

/// The steps that lead out of a state.
pub(super) fn steps_of(status: Status) -> &'static [&'static str] {
    match status {
        Status::Provisioning => &PROVISIONING,
        Status::Suspending => &SUSPENSION,
        Status::Resuming => &RESUMPTION,
        Status::Provisioned | Status::Suspended | Status::Failed => &[],
    }
}

/// A step that ran beside others.
#[derive(Debug)]
pub(super) struct Attempt {
    name: &'static str,
    step: Step,
    result: Result<(), WorkspaceError>,
}

/// Runs a step that no other waits for, for so long at most.
pub(super) async fn attempt<E: Into<WorkspaceError>>(
    name: &'static str,
    timeout: Duration,
    step: impl Future<Output = Result<(), E>>,
) -> Attempt {
    let began = Instant::now();
    let result = match tokio::time::timeout(timeout, step).await {
        Ok(result) => result.map_err(Into::into),
        Err(_) => Err(WorkspaceError::TimedOut(timeout)),
    };
    let detail = result.as_ref().err().map(|error| chain(error).chars().take(MAX_DETAIL).collect());
    Attempt { name, step: ended(name, began, result.is_ok(), detail), result }
}

fn ended(name: &str, began: Instant, done: bool, detail: Option<String>) -> Step {
    Step {
        step: name.to_owned(),
        result: if done { StepResult::Done } else { StepResult::Open },
        duration_ms: (began.elapsed().as_secs_f64() * 1e6).round() / 1e3,
        detail,
    }
}

impl Attempt {
    /// Its name, and why it failed if it did.
    pub(super) fn failure(&self) -> Option<(&'static str, &WorkspaceError)> {
        self.result.as_ref().err().map(|error| (self.name, error))
    }
}

/// The steps of one run, with how long each took.
#[derive(Debug, Default)]
pub(crate) struct Steps(Vec<Step>);

impl Steps {
    /// Runs a step and notes how it ended.
    pub(crate) async fn run<T, E>(
        &mut self,
        name: &str,
        step: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let began = Instant::now();
        let result = step.await;
        self.0.push(ended(name, began, result.is_ok(), None));
        result
    }

    /// Adds a step that ran beside others.
    pub(super) fn add(&mut self, attempt: Attempt) -> Result<(), WorkspaceError> {
        self.0.push(attempt.step);
        attempt.result
    }

    /// The steps on the way out of this state that were not done, separated by commas.
    pub(super) fn open_steps(&self, status: Status) -> String {
        let is_done = |name: &str| {
            self.0.iter().any(|step| step.step == name && step.result == StepResult::Done)
        };
        let open = steps_of(status).iter().filter(|name| !is_done(name));
        open.copied().collect::<Vec<_>>().join(",")
    }

    /// Takes a step out that another way has made needless.
    pub(crate) fn forget(&mut self, name: &str) {
        self.0.retain(|step| step.step != name);
    }

    /// All steps; those that were not reached are open.
    pub(crate) fn into_answer(mut self, all: &[&str]) -> Vec<Step> {
        self.open(all);
        self.0
    }

    /// Adds the steps that were not reached, as open.
    pub(crate) fn open(&mut self, names: &[&str]) {
        for name in names {
            if self.0.iter().all(|step| step.step != *name) {
                self.0.push(Step {
                    step: (*name).to_owned(),
                    result: StepResult::Open,
                    duration_ms: 0.0,
                    detail: None,
                });
            }
        }
    }
}

/// What is open in a workspace; `None` if nothing is.
pub(super) fn unfinished(found: &Found) -> Option<Unfinished> {
    let steps = steps_of(found.status());
    if steps.is_empty() {
        return None;
    }
    let is_open =
        |step: &str| found.open_step.iter().flat_map(|it| it.split(',')).any(|it| it == step);
    let mut open_steps: Vec<String> =
        steps.iter().filter(|step| is_open(step)).map(|step| (*step).to_owned()).collect();
    // None was tried yet, or another version tried steps of other names.
    if open_steps.is_empty() {
        open_steps = steps.iter().map(|step| (*step).to_owned()).collect();
    }
    Some(Unfinished {
        open_steps,
        attempts: u32::try_from(found.sweep_attempts).unwrap_or(u32::MAX),
        next_attempt_at: timestamp(found.sweep_at).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_failed_and_what_was_not_reached_is_open() {
        let mut steps = Steps::default();
        assert_eq!(steps.open_steps(Status::Suspending), SUSPENSION.join(","));
        let hour = Duration::from_hours(1);
        let refused = WorkspaceError::Conflict("no".to_owned());
        let label = attempt("label_namespace", hour, async { Err::<(), _>(refused) }).await;
        let unbound =
            attempt("delete_role_bindings", hour, async { Ok::<_, WorkspaceError>(()) }).await;
        assert_eq!(label.failure().map(|(step, _)| step), Some("label_namespace"));
        assert!(unbound.failure().is_none());
        steps.add(label).unwrap_err();
        steps.add(unbound).unwrap();
        let never = std::future::pending::<Result<(), WorkspaceError>>();
        let timed_out = attempt("delete_service_account", Duration::ZERO, never).await;
        assert!(matches!(steps.add(timed_out), Err(WorkspaceError::TimedOut(_))));
        let open = ["label_namespace", "delete_service_account", "close_streams", "finish"];
        assert_eq!(steps.open_steps(Status::Suspending), open.join(","));
        let answer = steps.into_answer(&SUSPENSION);
        for name in SUSPENSION {
            let step = answer.iter().find(|step| step.step == name).unwrap();
            assert_eq!(step.result == StepResult::Open, open.contains(&name), "{name}");
        }
        assert!(answer[0].detail.as_ref().unwrap().contains("in the way: no"), "{answer:?}");
    }

    #[test]
    fn only_what_is_under_way_has_steps() {
        for status in [Status::Provisioned, Status::Suspended, Status::Failed] {
            assert!(steps_of(status).is_empty());
        }
        for status in super::super::state::UNFINISHED {
            assert!(!steps_of(status).is_empty());
        }
    }
}
