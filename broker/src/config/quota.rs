//! Object counts of a tier's ResourceQuota (`[tiers.NAME.quota]`): all limits that have no setting
//! of their own.

use std::collections::BTreeMap;

use super::{
    Settings,
    tier_setting::{Defaults, TierSetting, table},
};

/// Keys of `spec.hard` with their defaults in `basic`, `standard` and `premium`: all persistent
/// objects that the built-in role `admin` may create (Events expire by themselves). A full
/// namespace takes a small part of etcd's capacity, and no tenant can exhaust the range of Service
/// addresses.
pub(super) const COUNTS: [(&str, Defaults); 25] = [
    ("services", Defaults { basic: "20", standard: "50", premium: "200" }),
    // Ports of nodes and load balancers of the cloud are for the operator to grant.
    ("services.nodeports", Defaults::all("0")),
    ("services.loadbalancers", Defaults::all("0")),
    ("persistentvolumeclaims", Defaults { basic: "20", standard: "50", premium: "200" }),
    // Includes terminated pods, which `pods` does not count.
    ("count/pods", Defaults { basic: "200", standard: "500", premium: "2000" }),
    ("count/configmaps", Defaults::all("200")),
    ("count/secrets", Defaults::all("200")),
    ("count/serviceaccounts", Defaults::all("50")),
    ("count/replicationcontrollers", Defaults { basic: "20", standard: "50", premium: "100" }),
    ("count/deployments.apps", Defaults { basic: "50", standard: "100", premium: "200" }),
    ("count/statefulsets.apps", Defaults { basic: "50", standard: "100", premium: "200" }),
    ("count/daemonsets.apps", Defaults::all("20")),
    // A Deployment keeps ten old ReplicaSets.
    ("count/replicasets.apps", Defaults { basic: "600", standard: "1200", premium: "2400" }),
    // Controllers keep one for each revision of a StatefulSet or DaemonSet; the tenant sets how
    // many.
    (
        "count/controllerrevisions.apps",
        Defaults { basic: "600", standard: "1200", premium: "2400" },
    ),
    ("count/jobs.batch", Defaults { basic: "100", standard: "200", premium: "500" }),
    ("count/cronjobs.batch", Defaults { basic: "50", standard: "100", premium: "200" }),
    (
        "count/horizontalpodautoscalers.autoscaling",
        Defaults { basic: "50", standard: "100", premium: "200" },
    ),
    (
        "count/poddisruptionbudgets.policy",
        Defaults { basic: "50", standard: "100", premium: "200" },
    ),
    ("count/roles.rbac.authorization.k8s.io", Defaults::all("50")),
    // Each delays a suspension by about a millisecond.
    ("count/rolebindings.rbac.authorization.k8s.io", Defaults::all("20")),
    (
        "count/networkpolicies.networking.k8s.io",
        Defaults { basic: "50", standard: "100", premium: "200" },
    ),
    (
        "count/ingresses.networking.k8s.io",
        Defaults { basic: "50", standard: "100", premium: "200" },
    ),
    ("count/leases.coordination.k8s.io", Defaults::all("50")),
    (
        "count/resourceclaims.resource.k8s.io",
        Defaults { basic: "20", standard: "50", premium: "100" },
    ),
    (
        "count/resourceclaimtemplates.resource.k8s.io",
        Defaults { basic: "20", standard: "50", premium: "100" },
    ),
];
/// Limit of a key: a prefix of 253 characters, a slash and a name of 63 (Kubernetes' qualified
/// names).
const MAX_KEY_BYTES: usize = 317;

/// Reads the counts of a tier: its defaults, overridden by its table `quota`. That table must not
/// have the keys in `set_elsewhere`.
pub(super) fn counts(
    s: &mut Settings,
    tier: &str,
    set_elsewhere: &[(&str, &TierSetting<String>)],
) -> BTreeMap<String, String> {
    let mut counts: BTreeMap<String, String> = COUNTS
        .iter()
        .map(|(key, defaults)| ((*key).to_owned(), defaults.in_tier(tier).to_owned()))
        .collect();
    let table = format!("{}.quota", table(tier));
    for key in s.keys_below(&table) {
        let setting = format!("{table}.{key}");
        let Some(value) = s.get_non_empty(&setting) else { continue };
        let elsewhere = set_elsewhere.iter().find(|(taken, _)| *taken == key);
        if let Some((_, other)) = elsewhere {
            s.fault(&setting, &format!("set {} instead", other.key_in(tier)));
        } else if !is_key(&key) {
            s.fault(&setting, "a key of spec.hard, such as count/deployments.apps");
        } else if !is_quantity(&value) {
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

/// Whether a text is a Kubernetes quantity (apimachinery `resource.Quantity`): digits, an optional
/// fraction and a suffix.
pub(super) fn is_quantity(text: &str) -> bool {
    let suffix = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &text[..text.len() - suffix.len()];
    number.parse::<f64>().is_ok_and(f64::is_finite)
        && number.len() <= 18
        && ["", "m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi"].contains(&suffix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        for good in ["4", "500m", "8Gi", "0.5", "1k"] {
            assert!(is_quantity(good), "{good}");
        }
        for bad in ["", "four", "8 Gi", "-1", "8gi", "1e9", ".", "1.2.3"] {
            assert!(!is_quantity(bad), "{bad}");
        }
    }
}
