//! The `status` of a Tenant. Pure.
//!
//! A status in which nothing changed equals the previous one, so that the broker does not write it:
//! a write wakes every watch of Tenants, that of the broker included.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Condition, ConditionType, TenantStatus,
    limits::{MAX_CONDITION_MESSAGE_LENGTH, MAX_NAMESPACES},
};

/// Facts of which a status consists.
#[derive(Clone, Copy, Debug)]
pub struct StatusInputs<'a> {
    /// Status of the row.
    pub status: TenantStatus,
    /// Whether the object is being deleted.
    pub terminating: bool,
    /// All namespaces of the tenant, in any order, without the home.
    pub namespaces: &'a [&'a str],
    /// What could not be done. Of several conditions of one type the messages are joined.
    pub conditions: &'a [Condition],
    /// `metadata.generation` of the object that was carried out.
    pub generation: i64,
    pub now: Timestamp,
    /// `status` of the object as it was read.
    pub previous: Option<&'a Value>,
}

/// State of a tenant, as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Active,
    Suspended,
    Degraded,
    Terminating,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            Self::Active => "Active",
            Self::Suspended => "Suspended",
            Self::Degraded => "Degraded",
            Self::Terminating => "Terminating",
        }
    }

    fn of(inputs: &StatusInputs<'_>) -> Self {
        if inputs.terminating {
            return Self::Terminating;
        }
        let is_degraded = inputs.conditions.iter().any(|condition| condition.kind.degrades());
        match inputs.status {
            TenantStatus::Closed => Self::Terminating,
            TenantStatus::Suspending | TenantStatus::Suspended => Self::Suspended,
            TenantStatus::Active | TenantStatus::Resuming if is_degraded => Self::Degraded,
            TenantStatus::Active | TenantStatus::Resuming => Self::Active,
        }
    }
}

/// The `status` of a Tenant; equal to the previous one if nothing changed.
pub fn tenant_status(inputs: &StatusInputs<'_>) -> Value {
    let state = State::of(inputs);
    let namespaces: BTreeSet<&str> = inputs.namespaces.iter().copied().collect();
    let names: Vec<&str> = namespaces.iter().copied().take(MAX_NAMESPACES).collect();
    json!({
        "state": state.as_str(),
        "size": namespaces.len(),
        "namespaces": names,
        "observedGeneration": inputs.generation,
        "conditions": conditions(inputs, state),
    })
}

/// The conditions by type, in a fixed order.
fn conditions(inputs: &StatusInputs<'_>, state: State) -> Vec<Value> {
    let mut texts: BTreeMap<ConditionType, (&'static str, String)> = BTreeMap::new();
    for Condition { kind, reason, message } in inputs.conditions {
        texts
            .entry(*kind)
            .and_modify(|(_, joined)| {
                joined.push_str("; ");
                joined.push_str(message);
            })
            .or_insert_with(|| (*reason, message.clone()));
    }
    texts.insert(ConditionType::Ready, ready(inputs, state));
    let is_ready = if state == State::Active { "True" } else { "False" };
    texts
        .into_iter()
        .map(|(kind, (reason, message))| {
            let status = if kind == ConditionType::Ready { is_ready } else { "True" };
            let message: String = message.chars().take(MAX_CONDITION_MESSAGE_LENGTH).collect();
            json!({
                "type": kind.as_str(),
                "status": status,
                "observedGeneration": inputs.generation,
                "lastTransitionTime": transition_time(inputs, kind, status),
                "reason": reason,
                "message": message,
            })
        })
        .collect()
}

/// Reason and message of the condition `Ready`.
fn ready(inputs: &StatusInputs<'_>, state: State) -> (&'static str, String) {
    let degrading = inputs.conditions.iter().find(|condition| condition.kind.degrades());
    match (state, degrading) {
        (State::Active, _) => ("Reconciled", "everything is as the Tenant says".to_owned()),
        (State::Suspended, _) => {
            ("Suspended", "an administrator suspended the tenant, and can resume it".to_owned())
        }
        (State::Terminating, _) => ("Terminating", "the Tenant is being deleted".to_owned()),
        (State::Degraded, Some(condition)) => {
            let kind = condition.kind.as_str();
            (kind, format!("see the condition {kind}"))
        }
        (State::Degraded, None) => ("Degraded", "see the other conditions".to_owned()),
    }
}

/// When the condition got its status: that of the previous status if it is the same there, in whole
/// seconds as `metav1.Time` has them.
fn transition_time(inputs: &StatusInputs<'_>, kind: ConditionType, status: &str) -> String {
    let previous = inputs
        .previous
        .and_then(|previous| previous["conditions"].as_array())
        .into_iter()
        .flatten()
        .find(|known| known["type"] == kind.as_str() && known["status"] == status)
        .and_then(|known| known["lastTransitionTime"].as_str());
    previous.map_or_else(|| inputs.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tenant::TenantName;

    fn solar() -> TenantName {
        "solar".parse().unwrap()
    }

    fn inputs<'a>(conditions: &'a [Condition], previous: Option<&'a Value>) -> StatusInputs<'a> {
        StatusInputs {
            status: TenantStatus::Active,
            terminating: false,
            namespaces: &["solar-b", "solar-a"],
            conditions,
            generation: 3,
            now: "2026-01-02T03:04:05.678Z".parse().unwrap(),
            previous,
        }
    }

    fn later() -> Timestamp {
        "2026-01-02T04:00:00Z".parse().unwrap()
    }

    #[test]
    fn the_status_of_a_tenant_without_faults() {
        assert_eq!(
            tenant_status(&inputs(&[], None)),
            json!({
                "state": "Active",
                "size": 2,
                "namespaces": ["solar-a", "solar-b"],
                "observedGeneration": 3,
                "conditions": [{
                    "type": "Ready",
                    "status": "True",
                    "observedGeneration": 3,
                    "lastTransitionTime": "2026-01-02T03:04:05Z",
                    "reason": "Reconciled",
                    "message": "everything is as the Tenant says",
                }],
            })
        );
    }

    #[test]
    fn the_state_comes_from_the_row_and_the_conditions() {
        let none: &[Condition] = &[];
        let home_taken: &[Condition] = &[Condition::home_taken(&solar())];
        let not_carried_out: &[Condition] =
            &[Condition::not_carried_out(&solar(), &["spec.x".to_owned()])];
        for (status, terminating, conditions, state, ready) in [
            (TenantStatus::Active, false, none, "Active", "True"),
            (TenantStatus::Resuming, false, not_carried_out, "Active", "True"),
            (TenantStatus::Active, false, home_taken, "Degraded", "False"),
            (TenantStatus::Suspending, false, none, "Suspended", "False"),
            (TenantStatus::Suspended, false, home_taken, "Suspended", "False"),
            (TenantStatus::Suspended, true, none, "Terminating", "False"),
            (TenantStatus::Closed, false, none, "Terminating", "False"),
        ] {
            let inputs = StatusInputs { status, terminating, ..inputs(conditions, None) };
            let written = tenant_status(&inputs);
            assert_eq!(written["state"], state, "{status:?} {conditions:?}");
            assert_eq!(written["conditions"][0]["type"], "Ready");
            assert_eq!(written["conditions"][0]["status"], ready, "{status:?} {conditions:?}");
        }
    }

    #[test]
    fn a_transition_time_changes_only_with_the_status_of_its_condition() {
        let taken = [Condition::home_taken(&solar())];
        let first = tenant_status(&inputs(&[], None));
        let degraded =
            tenant_status(&StatusInputs { now: later(), ..inputs(&taken, Some(&first)) });
        let times = |status: &Value| -> Vec<Value> {
            let conditions = status["conditions"].as_array().unwrap();
            conditions.iter().map(|it| it["lastTransitionTime"].clone()).collect()
        };
        assert_eq!(times(&degraded), ["2026-01-02T04:00:00Z", "2026-01-02T04:00:00Z"]);
        // Another message is no transition.
        let message = [Condition { message: "other".to_owned(), ..taken[0].clone() }];
        let other = tenant_status(&inputs(&message, Some(&degraded)));
        assert_eq!(times(&other), times(&degraded));
        assert_ne!(other, degraded);
    }

    #[test]
    fn conditions_of_one_type_are_joined_and_cut_to_the_limit() {
        let failures = ["a".repeat(MAX_CONDITION_MESSAGE_LENGTH), "b".to_owned()];
        let conditions = failures.map(|text| Condition::apply_failed(&solar(), &[text]));
        let status = tenant_status(&inputs(&conditions, None));
        let written = status["conditions"].as_array().unwrap();
        assert_eq!(written.len(), 2);
        let message = written[1]["message"].as_str().unwrap();
        assert_eq!(message.chars().count(), MAX_CONDITION_MESSAGE_LENGTH);
    }

    fn any_condition() -> impl Strategy<Value = Condition> {
        let kinds = proptest::sample::select(ConditionType::ALL[1..].to_vec());
        (kinds, "[a-z ]{0,9}").prop_map(|(kind, message)| Condition {
            kind,
            reason: "Any",
            message,
        })
    }

    proptest! {
        #[test]
        fn an_unchanged_status_equals_the_previous_one(
            conditions in proptest::collection::vec(any_condition(), 0..5),
            status in proptest::sample::select(TenantStatus::ALL.to_vec()),
        ) {
            let first = StatusInputs { status, ..inputs(&conditions, None) };
            let written = tenant_status(&first);
            // As the API server returns it.
            let read: Value = serde_json::from_str(&written.to_string()).unwrap();
            let again = StatusInputs {
                now: later(),
                namespaces: &["solar-a", "solar-b"],
                previous: Some(&read),
                ..first
            };
            prop_assert_eq!(tenant_status(&again), read);
        }
    }
}
