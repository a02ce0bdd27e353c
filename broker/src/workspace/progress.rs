//! Steps of a change in the cluster: their names, their results in one run, and the open ones.

use std::time::{Duration, Instant};

use tenant_shared::{Step, StepResult, Unfinished, WorkspaceStatus as Status};

use super::{WorkspaceError, WorkspaceRow, state::WorkspaceKind};
use crate::base::{clock::timestamp, error_chain};

/// Maximum length of the error message of an open step, in characters.
const MAX_DETAIL: usize = 500;

/// Steps of a suspension that revoke access. Each is tried whatever became of the others, and its
/// failures are counted.
pub const REVOCATION_STEPS: [&str; 4] =
    ["label_namespace", "delete_role_bindings", "delete_service_account", "close_streams"];
/// Steps of the suspension of a personal workspace after the decision is on record.
const SUSPENSION_STEPS: [&str; 5] = {
    let [label, unbind, delete_account, close_streams] = REVOCATION_STEPS;
    [label, unbind, delete_account, close_streams, "finish"]
};
/// Steps of the suspension of a membership after the decision is on record.
const MEMBERSHIP_SUSPENSION_STEPS: [&str; 3] = {
    let [_, _, delete_account, close_streams] = REVOCATION_STEPS;
    [delete_account, close_streams, "finish"]
};
/// Steps of the resumption of a personal workspace after the decision is on record.
const RESUMPTION_STEPS: [&str; 2] = ["unlabel_namespace", "create_objects"];
/// Steps of the resumption of a membership after the decision is on record.
const MEMBERSHIP_RESUMPTION_STEPS: [&str; 1] = ["create_objects"];
/// Steps of an init after the request is on record.
const PROVISIONING_STEPS: [&str; 1] = ["create_objects"];

/// The steps that lead from this state to the next one.
fn steps_of(kind: WorkspaceKind, status: Status) -> &'static [&'static str] {
    match status {
        Status::Provisioning => &PROVISIONING_STEPS,
        Status::Suspending => suspension_steps(kind),
        Status::Resuming => resumption_steps(kind),
        Status::Provisioned | Status::Suspended | Status::Failed => &[],
    }
}

/// Steps of a suspension after the decision is on record.
pub(super) fn suspension_steps(kind: WorkspaceKind) -> &'static [&'static str] {
    match kind {
        WorkspaceKind::Personal => &SUSPENSION_STEPS,
        WorkspaceKind::Membership => &MEMBERSHIP_SUSPENSION_STEPS,
    }
}

/// Steps of a resumption after the decision is on record.
pub(super) fn resumption_steps(kind: WorkspaceKind) -> &'static [&'static str] {
    match kind {
        WorkspaceKind::Personal => &RESUMPTION_STEPS,
        WorkspaceKind::Membership => &MEMBERSHIP_RESUMPTION_STEPS,
    }
}

/// A step that ran concurrently with others, and its result.
#[derive(Debug)]
pub(super) struct StepAttempt {
    name: &'static str,
    step: Step,
    result: Result<(), WorkspaceError>,
}

/// Runs a step that no other step waits for, with a timeout.
pub(super) async fn run_step<E: Into<WorkspaceError>>(
    name: &'static str,
    timeout: Duration,
    step: impl Future<Output = Result<(), E>>,
) -> StepAttempt {
    let began = Instant::now();
    let result = match tokio::time::timeout(timeout, step).await {
        Ok(result) => result.map_err(Into::into),
        Err(_) => Err(WorkspaceError::TimedOut(timeout)),
    };
    let detail =
        result.as_ref().err().map(|error| error_chain(error).chars().take(MAX_DETAIL).collect());
    StepAttempt { name, step: step_report(name, began.elapsed(), result.is_ok(), detail), result }
}

fn step_report(name: &str, duration: Duration, done: bool, detail: Option<String>) -> Step {
    Step {
        step: name.to_owned(),
        result: if done { StepResult::Done } else { StepResult::Open },
        duration_ms: (duration.as_secs_f64() * 1e6).round() / 1e3,
        detail,
    }
}

impl StepAttempt {
    /// The name of the step and its error, if it failed.
    pub(super) fn failure(&self) -> Option<(&'static str, &WorkspaceError)> {
        self.result.as_ref().err().map(|error| (self.name, error))
    }
}

/// The steps of one run, with their results and durations.
#[derive(Debug, Default)]
pub(crate) struct Steps(Vec<Step>);

impl Steps {
    /// Runs a step and stores its result and duration.
    pub(crate) async fn run<T, E>(
        &mut self,
        name: &str,
        step: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let began = Instant::now();
        let result = step.await;
        self.0.push(step_report(name, began.elapsed(), result.is_ok(), None));
        result
    }

    /// Adds a step that took this long and is open because of this failure, if there is one.
    pub(crate) fn add_result(&mut self, name: &str, duration: Duration, failure: Option<&str>) {
        let detail = failure.map(|failure| failure.chars().take(MAX_DETAIL).collect());
        self.0.push(step_report(name, duration, failure.is_none(), detail));
    }

    /// Adds a step that ran concurrently with others, and returns its result.
    pub(super) fn add(&mut self, attempt: StepAttempt) -> Result<(), WorkspaceError> {
        self.0.push(attempt.step);
        attempt.result
    }

    /// The steps out of this state that were not done, separated by commas.
    pub(super) fn open_steps(&self, kind: WorkspaceKind, status: Status) -> String {
        let is_done = |name: &str| {
            self.0.iter().any(|step| step.step == name && step.result == StepResult::Done)
        };
        let open = steps_of(kind, status).iter().filter(|name| !is_done(name));
        open.copied().collect::<Vec<_>>().join(",")
    }

    /// Removes a step that is no longer needed because another mechanism replaces it.
    pub(crate) fn remove(&mut self, name: &str) {
        self.0.retain(|step| step.step != name);
    }

    /// All steps of the run; those that were not reached are open.
    pub(crate) fn into_steps(mut self, all: &[&str]) -> Vec<Step> {
        self.add_open(all);
        self.0
    }

    /// Adds the steps that were not reached, as open.
    pub(crate) fn add_open(&mut self, names: &[&str]) {
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

/// The unfinished work on a workspace; `None` if there is none.
pub(super) fn unfinished(workspace: &WorkspaceRow) -> Option<Unfinished> {
    let steps = steps_of(workspace.kind(), workspace.status());
    if steps.is_empty() {
        return None;
    }
    let is_open =
        |step: &str| workspace.open_step.iter().flat_map(|it| it.split(',')).any(|it| it == step);
    let mut open_steps: Vec<String> =
        steps.iter().filter(|step| is_open(step)).map(|step| (*step).to_owned()).collect();
    // No step was tried yet, or another version of the broker tried steps with other names.
    if open_steps.is_empty() {
        open_steps = steps.iter().map(|step| (*step).to_owned()).collect();
    }
    Some(Unfinished {
        open_steps,
        attempts: u32::try_from(workspace.sweep_attempts).unwrap_or(u32::MAX),
        next_attempt_at: timestamp(workspace.sweep_at).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn failed_and_unreached_steps_are_open() {
        let mut steps = Steps::default();
        let open_steps = |steps: &Steps, kind| steps.open_steps(kind, Status::Suspending);
        let all = SUSPENSION_STEPS.join(",");
        assert_eq!(open_steps(&steps, WorkspaceKind::Personal), all);
        let hour = Duration::from_hours(1);
        let refused = WorkspaceError::Conflict("no".to_owned());
        let label = run_step("label_namespace", hour, async { Err::<(), _>(refused) }).await;
        let unbound =
            run_step("delete_role_bindings", hour, async { Ok::<_, WorkspaceError>(()) }).await;
        assert_eq!(label.failure().map(|(step, _)| step), Some("label_namespace"));
        assert!(unbound.failure().is_none());
        steps.add(label).unwrap_err();
        steps.add(unbound).unwrap();
        let never = std::future::pending::<Result<(), WorkspaceError>>();
        let timed_out = run_step("delete_service_account", Duration::ZERO, never).await;
        assert!(matches!(steps.add(timed_out), Err(WorkspaceError::TimedOut(_))));
        let open = ["label_namespace", "delete_service_account", "close_streams", "finish"];
        assert_eq!(open_steps(&steps, WorkspaceKind::Personal), open.join(","));
        let of_membership = MEMBERSHIP_SUSPENSION_STEPS.join(",");
        assert_eq!(open_steps(&steps, WorkspaceKind::Membership), of_membership);
        let report = steps.into_steps(&SUSPENSION_STEPS);
        for name in SUSPENSION_STEPS {
            let step = report.iter().find(|step| step.step == name).unwrap();
            assert_eq!(step.result == StepResult::Open, open.contains(&name), "{name}");
        }
        assert!(
            report[0].detail.as_ref().unwrap().contains("conflicts with the workspace: no"),
            "{report:?}"
        );
    }

    #[test]
    fn only_unfinished_states_have_steps() {
        for kind in [WorkspaceKind::Personal, WorkspaceKind::Membership] {
            for status in [Status::Provisioned, Status::Suspended, Status::Failed] {
                assert!(steps_of(kind, status).is_empty());
            }
            for status in super::super::state::UNFINISHED {
                assert!(!steps_of(kind, status).is_empty());
            }
        }
    }
}
