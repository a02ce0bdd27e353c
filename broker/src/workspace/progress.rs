//! The steps of what is done in the cluster, how far a run came, and what is still open.

use tenant_shared::{Step, StepResult, Unfinished, WorkspaceStatus as Status};

use super::Found;
use crate::clock::timestamp;

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
        let began = std::time::Instant::now();
        let result = step.await;
        self.0.push(Step {
            step: name.to_owned(),
            result: if result.is_ok() { StepResult::Done } else { StepResult::Open },
            duration_ms: (began.elapsed().as_secs_f64() * 1e6).round() / 1e3,
        });
        result
    }

    /// The first step on the way out of this state that was not done.
    pub(super) fn first_open(&self, status: Status) -> &'static str {
        let is_done = |name: &str| {
            self.0.iter().any(|step| step.step == name && step.result == StepResult::Done)
        };
        let steps = steps_of(status);
        let open = steps.iter().find(|name| !is_done(name)).or(steps.last());
        open.copied().unwrap_or_default()
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
    // A step of another version counts as the first one.
    let first = steps.iter().position(|step| found.open_step.as_deref() == Some(*step));
    let open_steps = steps[first.unwrap_or(0)..].iter().map(|step| (*step).to_owned()).collect();
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
    async fn a_run_stops_at_its_first_open_step() {
        let mut steps = Steps::default();
        assert_eq!(steps.first_open(Status::Suspending), "label_namespace");
        steps.run("label_namespace", async { Ok::<_, ()>(()) }).await.unwrap();
        steps.run("delete_role_bindings", async { Err::<(), _>(()) }).await.unwrap_err();
        assert_eq!(steps.first_open(Status::Suspending), "delete_role_bindings");
        let answer = steps.into_answer(&SUSPENSION);
        let results: Vec<_> = answer.iter().map(|step| (step.step.as_str(), step.result)).collect();
        let open = SUSPENSION[1..].iter().map(|name| (*name, StepResult::Open));
        let done = std::iter::once((SUSPENSION[0], StepResult::Done));
        assert_eq!(results, done.chain(open).collect::<Vec<_>>());
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
