//! The steps of a suspension that the controller carried out, for the response to the request.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::{
    tenant_controller::{RevocationStep, StepAttemptEnd},
    workspace::Steps,
};

/// Step in which the row of the tenant becomes that of a suspended one.
const FINISH: &str = "finish";
/// Why a step is open of which no attempt has ended.
const UNDER_WAY: &str = "the first attempt is under way; the broker goes on";

/// Adds the steps of a suspension, as their last attempts in this process ended. Another replica may have
/// carried them out: a step without an attempt here is done if the suspension is complete, and then it
/// took the time in which the request waited for it, since `waited_since`.
pub(super) fn add_revocation_steps(
    steps: &mut Steps,
    attempts: &BTreeMap<RevocationStep, StepAttemptEnd>,
    waited_since: Instant,
    completed_at: Option<Instant>,
) {
    let ended_at = completed_at.unwrap_or_else(Instant::now);
    let waited = ended_at.saturating_duration_since(waited_since);
    for step in RevocationStep::ALL {
        let attempt = attempts.get(&step);
        match (attempt, completed_at) {
            (Some(attempt), _) if attempt.failures.is_empty() => {
                steps.add_result(step.as_str(), attempt.duration, None);
            }
            (_, Some(_)) => steps.add_result(step.as_str(), waited, None),
            (Some(attempt), None) => {
                let failures = attempt.failures.join("; ");
                steps.add_result(step.as_str(), attempt.duration, Some(&failures));
            }
            (None, None) => steps.add_result(step.as_str(), waited, Some(UNDER_WAY)),
        }
    }
    match completed_at {
        Some(at) => {
            let last = attempts.values().map(|attempt| attempt.ended_at).max();
            let duration = last.map_or(Duration::ZERO, |last| at.saturating_duration_since(last));
            steps.add_result(FINISH, duration, None);
        }
        None => steps.add_open(&[FINISH]),
    }
}

#[cfg(test)]
mod tests {
    use tenant_shared::StepResult::{self, Done, Open};

    use super::*;

    /// Names, results, durations in milliseconds and details.
    fn report(
        attempts: &[(RevocationStep, u64, &[&str])],
        completed_after: Option<u64>,
    ) -> Vec<(String, StepResult, f64, Option<String>)> {
        let began = Instant::now();
        let attempts = attempts.iter().map(|(step, ms, failures)| {
            let duration = Duration::from_millis(*ms);
            let failures = failures.iter().map(|&failure| failure.to_owned()).collect();
            (*step, StepAttemptEnd { duration, ended_at: began + duration, failures })
        });
        let mut steps = Steps::default();
        let completed_at = completed_after.map(|ms| began + Duration::from_millis(ms));
        add_revocation_steps(&mut steps, &attempts.collect(), began, completed_at);
        let steps = steps.into_steps(&[]).into_iter();
        steps.map(|it| (it.step, it.result, it.duration_ms, it.detail)).collect()
    }

    fn step(
        name: &str,
        result: StepResult,
        duration: f64,
    ) -> (String, StepResult, f64, Option<String>) {
        (name.to_owned(), result, duration, None)
    }

    #[test]
    fn a_complete_suspension_has_the_durations_of_its_steps() {
        use RevocationStep::{Home, Members, Namespaces};
        let attempts: [(_, _, &[&str]); 3] =
            [(Home, 20, &[]), (Members, 30, &[]), (Namespaces, 90, &[])];
        assert_eq!(
            report(&attempts, Some(100)),
            [
                step("home", Done, 20.0),
                step("members", Done, 30.0),
                step("namespaces", Done, 90.0),
                step("finish", Done, 10.0),
            ]
        );
    }

    #[test]
    fn steps_that_another_replica_did_took_as_long_as_the_request_waited() {
        let attempts: [(_, _, &[&str]); 2] = [
            (RevocationStep::Home, 20, &[]),
            (RevocationStep::Namespaces, 90, &["label in solar-a: timeout"]),
        ];
        assert_eq!(
            report(&attempts, Some(300)),
            [
                step("home", Done, 20.0),
                step("members", Done, 300.0),
                step("namespaces", Done, 300.0),
                step("finish", Done, 210.0),
            ]
        );
    }

    #[test]
    fn open_steps_say_what_failed() {
        let failures = ["label in solar-a: timeout", "RoleBindings in solar-b: forbidden"];
        let attempts: [(_, _, &[&str]); 2] =
            [(RevocationStep::Home, 20, &[]), (RevocationStep::Namespaces, 90, &failures)];
        let details: Vec<_> = report(&attempts, None)
            .into_iter()
            .map(|(name, result, _, it)| (name, result, it))
            .collect();
        let open = |name: &str, detail: &str| (name.to_owned(), Open, Some(detail.to_owned()));
        assert_eq!(
            details,
            [
                ("home".to_owned(), Done, None),
                open("members", UNDER_WAY),
                open("namespaces", &failures.join("; ")),
                ("finish".to_owned(), Open, None),
            ]
        );
    }
}
