//! `FlowSchema`s and priority levels for the broker (API Priority and Fairness), optional.
//!
//! Without them the broker shares a queue with all other clients that have no priority level of
//! their own, so a flood of token requests, or of other clients' requests, would delay a
//! suspension.

use std::fmt::Write as _;

use super::{INSTALLED_BY_LABEL, INSTALLED_BY_VALUE, Parameters, ROLE_NAME, quoted};
use crate::cluster::KubernetesUser;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// Priority level of the requests of a suspension.
const SUSPENSION_LEVEL: &str = "tenant-broker-kill";

/// A priority level: name, concurrency shares of the API server, percentage that it lends to other
/// levels, queues (number and hand size), and its `FlowSchema`: precedence and rules.
struct PriorityLevel {
    name: &'static str,
    reason: &'static str,
    shares: u32,
    lendable: u32,
    queues: (u32, u32),
    precedence: u32,
    rules: &'static str,
}

const PRIORITY_LEVELS: [PriorityLevel; 2] = [
    PriorityLevel {
        name: SUSPENSION_LEVEL,
        reason: "A priority level of its own for suspensions, never lent to others. It has the requests in one \
                 namespace, and no lists over all.",
        shares: 5,
        lendable: 0,
        queues: (8, 2),
        precedence: 600,
        rules: "    - {verbs: [delete, deletecollection, list, get, patch], apiGroups: \
                [rbac.authorization.k8s.io], resources: [rolebindings], namespaces: [\"*\"]}\n    \
                - {verbs: [get, patch], apiGroups: [\"\"], resources: [namespaces], clusterScope: \
                true, namespaces: [\"*\"]}\n    \
                - {verbs: [get, list, delete, patch], apiGroups: [\"\"], resources: [serviceaccounts], \
                namespaces: [\"*\"]}\n",
    },
    PriorityLevel {
        name: ROLE_NAME,
        reason: "All other requests of the broker, so that it neither starves nor crowds out others.",
        shares: 10,
        lendable: 50,
        queues: (16, 4),
        precedence: 700,
        rules: "    - {verbs: [\"*\"], apiGroups: [\"*\"], resources: [\"*\"], clusterScope: true, \
                namespaces: [\"*\"]}\n",
    },
];

/// Both priority levels with their `FlowSchema`s as YAML, to be appended to the manifest.
pub fn flow_schemas(parameters: &Parameters) -> String {
    let subject = match &parameters.broker {
        KubernetesUser::User(name) => format!("{{kind: User, user: {{name: {}}}}}", quoted(name)),
        KubernetesUser::ServiceAccount { namespace, name } => format!(
            "{{kind: ServiceAccount, serviceAccount: {{namespace: {}, name: {}}}}}",
            quoted(namespace),
            quoted(name)
        ),
    };
    let mut yaml = String::new();
    for level in &PRIORITY_LEVELS {
        let PriorityLevel {
            name,
            reason,
            shares,
            lendable,
            queues: (queues, hand),
            precedence,
            rules,
        } = level;
        let head = |kind: &str| {
            format!(
                "apiVersion: {GROUP}/v1\nkind: {kind}\nmetadata:\n  name: {name}\n  labels:\n    \
                 {INSTALLED_BY_LABEL}: {INSTALLED_BY_VALUE}\n"
            )
        };
        // Writing to a String cannot fail.
        let _ = write!(
            yaml,
            "---\n# {reason}\n{}spec:\n  type: Limited\n  limited:\n    \
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
