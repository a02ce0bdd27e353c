//! Lanes of the API server for the broker (API Priority and Fairness), if the operator wants them.
//!
//! Without them the broker shares a queue with everybody who is nothing special, and a flood of
//! token requests, or of others' calls, stands before a suspension.

use std::fmt::Write as _;

use super::{INSTALLED_BY_LABEL, INSTALLED_BY_VALUE, Parameters, ROLE_NAME, quoted};
use crate::config::BrokerUser;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// Lane of what takes rights away.
const KILL: &str = "tenant-broker-kill";

/// A lane: its name, share of the API server's seats, what it lends, queues.
struct Lane {
    name: &'static str,
    why: &'static str,
    shares: u32,
    lendable: u32,
    queues: (u32, u32),
    precedence: u32,
    rules: &'static str,
}

const LANES: [Lane; 2] = [
    Lane {
        name: KILL,
        why: "A lane of its own for what takes rights away, never lent to others.",
        shares: 5,
        lendable: 0,
        queues: (8, 2),
        precedence: 600,
        rules: "    - {verbs: [delete, deletecollection, list], apiGroups: [rbac.authorization.k8s.io], \
                resources: [rolebindings], namespaces: [\"*\"]}\n    \
                - {verbs: [patch], apiGroups: [\"\"], resources: [namespaces], clusterScope: true}\n",
    },
    Lane {
        name: ROLE_NAME,
        why: "Everything else of the broker's, so that it neither starves nor crowds out others.",
        shares: 10,
        lendable: 50,
        queues: (16, 4),
        precedence: 700,
        rules: "    - {verbs: [\"*\"], apiGroups: [\"*\"], resources: [\"*\"], clusterScope: true, \
                namespaces: [\"*\"]}\n",
    },
];

/// Both lanes as YAML, to be added to the manifest.
pub fn flow_control(parameters: &Parameters) -> String {
    let subject = match &parameters.broker {
        BrokerUser::User(name) => format!("{{kind: User, user: {{name: {}}}}}", quoted(name)),
        BrokerUser::ServiceAccount { namespace, name } => format!(
            "{{kind: ServiceAccount, serviceAccount: {{namespace: {}, name: {}}}}}",
            quoted(namespace),
            quoted(name)
        ),
    };
    let mut yaml = String::new();
    for lane in &LANES {
        let Lane { name, why, shares, lendable, queues: (queues, hand), precedence, rules } = lane;
        let head = |kind: &str| {
            format!(
                "apiVersion: {GROUP}/v1\nkind: {kind}\nmetadata:\n  name: {name}\n  labels:\n    \
                 {INSTALLED_BY_LABEL}: {INSTALLED_BY_VALUE}\n"
            )
        };
        // Writing to a String cannot fail.
        let _ = write!(
            yaml,
            "---\n# {why}\n{}spec:\n  type: Limited\n  limited:\n    \
             nominalConcurrencyShares: {shares}\n    lendablePercent: {lendable}\n    \
             limitResponse:\n      type: Queue\n      queuing: {{queues: {queues}, handSize: {hand}, \
             queueLengthLimit: 50}}\n---\n{}spec:\n  matchingPrecedence: {precedence}\n  \
             priorityLevelConfiguration: {{name: {name}}}\n  distinguisherMethod: {{type: \
             ByNamespace}}\n  rules:\n  - subjects:\n    - {subject}\n    resourceRules:\n{rules}",
            head("PriorityLevelConfiguration"),
            head("FlowSchema"),
        );
    }
    yaml
}
