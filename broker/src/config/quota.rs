//! Object counts of a tier's ResourceQuota (`[tiers.NAME.quota]`): all limits that have no setting
//! of their own.

use std::collections::BTreeMap;

use super::Settings;

/// Keys of `spec.hard` with their defaults in `basic`, `standard` and `premium`: all persistent
/// objects that the built-in role `admin` may create (Events expire by themselves). A full
/// namespace takes a small part of etcd's capacity, and no tenant can exhaust the range of Service
/// addresses.
pub(super) const COUNTS: [(&str, [&str; 3]); 25] = [
    ("services", ["20", "50", "200"]),
    // Ports of nodes and load balancers of the cloud are for the operator to grant.
    ("services.nodeports", ["0", "0", "0"]),
    ("services.loadbalancers", ["0", "0", "0"]),
    ("persistentvolumeclaims", ["20", "50", "200"]),
    // Includes terminated pods, which `pods` does not count.
    ("count/pods", ["200", "500", "2000"]),
    ("count/configmaps", ["200", "200", "200"]),
    ("count/secrets", ["200", "200", "200"]),
    ("count/serviceaccounts", ["50", "50", "50"]),
    ("count/replicationcontrollers", ["20", "50", "100"]),
    ("count/deployments.apps", ["50", "100", "200"]),
    ("count/statefulsets.apps", ["50", "100", "200"]),
    ("count/daemonsets.apps", ["20", "20", "20"]),
    // A Deployment keeps ten old ReplicaSets.
    ("count/replicasets.apps", ["600", "1200", "2400"]),
    // Controllers keep one for each revision of a StatefulSet or DaemonSet; the tenant sets how
    // many.
    ("count/controllerrevisions.apps", ["600", "1200", "2400"]),
    ("count/jobs.batch", ["100", "200", "500"]),
    ("count/cronjobs.batch", ["50", "100", "200"]),
    ("count/horizontalpodautoscalers.autoscaling", ["50", "100", "200"]),
    ("count/poddisruptionbudgets.policy", ["50", "100", "200"]),
    ("count/roles.rbac.authorization.k8s.io", ["50", "50", "50"]),
    // Each delays a suspension by about a millisecond.
    ("count/rolebindings.rbac.authorization.k8s.io", ["20", "20", "20"]),
    ("count/networkpolicies.networking.k8s.io", ["50", "100", "200"]),
    ("count/ingresses.networking.k8s.io", ["50", "100", "200"]),
    ("count/leases.coordination.k8s.io", ["50", "50", "50"]),
    ("count/resourceclaims.resource.k8s.io", ["20", "50", "100"]),
    ("count/resourceclaimtemplates.resource.k8s.io", ["20", "50", "100"]),
];
/// Keys of `spec.hard` that have settings of their own.
const SET_ELSEWHERE: [(&str, &str); 6] = [
    ("requests.cpu", "cpu"),
    ("limits.cpu", "cpu_limit"),
    ("limits.memory", "memory"),
    ("requests.storage", "storage"),
    ("limits.ephemeral-storage", "ephemeral_storage"),
    ("pods", "pods"),
];
/// Limit of a key: a prefix of 253 characters, a slash and a name of 63 (Kubernetes' qualified
/// names).
const MAX_KEY_BYTES: usize = 317;

/// Reads the counts of a tier: the defaults of its column, overridden by its table `quota`.
pub(super) fn counts(s: &mut Settings, tier: &str, column: usize) -> BTreeMap<String, String> {
    let mut counts: BTreeMap<String, String> =
        COUNTS.iter().map(|(key, values)| ((*key).to_owned(), values[column].to_owned())).collect();
    let table = format!("tiers.{tier}.quota");
    for key in s.keys_below(&table) {
        let setting = format!("{table}.{key}");
        let Some(value) = s.get_non_empty(&setting) else { continue };
        let elsewhere = SET_ELSEWHERE.iter().find(|(taken, _)| *taken == key);
        if let Some((_, field)) = elsewhere {
            s.fault(&setting, &format!("set tiers.{tier}.{field} instead"));
        } else if !is_key(&key) {
            s.fault(&setting, "a key of spec.hard, such as count/deployments.apps");
        } else if !super::tier::is_quantity(&value) {
            s.fault(&setting, "a Kubernetes quantity, such as 20");
        } else {
            counts.insert(key, value);
        }
    }
    counts
}

fn is_key(text: &str) -> bool {
    (1..=MAX_KEY_BYTES).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._/".contains(&b))
}
