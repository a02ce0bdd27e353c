//! Settings of tiers: `[tiers.NAME]`.

use std::collections::BTreeMap;

use super::{Settings, quota};
use crate::{
    base::dns_label::is_dns_label,
    tier::{GatewayLimits, HostSuffix, Tier, Tiers},
};

/// The settings of a tier: key, defaults in `basic`, `standard` and `premium`, meaning.
pub(super) const FIELDS: [(&str, [&str; 3], &str); 17] = [
    ("cpu", ["4", "8", "16"], "Sum of requests.cpu."),
    ("cpu_limit", ["12", "24", "48"], "Sum of limits.cpu."),
    ("memory", ["8Gi", "16Gi", "64Gi"], "Sum of limits.memory."),
    ("pods", ["20", "50", "200"], "Number of pods."),
    ("storage", ["20Gi", "100Gi", "500Gi"], "Sum of requests.storage of volume claims."),
    (
        "ephemeral_storage",
        ["20Gi", "50Gi", "200Gi"],
        "Sum of limits.ephemeral-storage, which containers write to the node's disk.",
    ),
    (
        "default_cpu",
        ["500m", "500m", "1"],
        "Default CPU limit of containers; the default request is 50m.",
    ),
    ("default_memory", ["256Mi", "512Mi", "1Gi"], "Default memory limit of containers."),
    (
        "default_ephemeral_storage",
        ["1Gi", "1Gi", "1Gi"],
        "Default ephemeral storage limit of containers; the default request is 50Mi.",
    ),
    (
        "role",
        ["admin", "admin", "admin"],
        "ClusterRole that is bound to the tenant in its namespace.",
    ),
    (
        "pod_security",
        ["baseline", "baseline", "baseline"],
        "Pod Security level: baseline or restricted.",
    ),
    (
        "network_policy",
        ["none", "none", "none"],
        "none, or deny-ingress: the broker creates a NetworkPolicy with which pods accept connections from their own namespace only, until the tenant's policies allow more. Run `tenant-broker install` again after a change; existing workspaces follow within drift_seconds.",
    ),
    (
        "ingress_host_suffix",
        ["", "", ""],
        "Suffix that hosts of Ingresses and of the Gateway API's routes must have, for example `.{namespace}.apps.example.com`; empty: any host except the broker's. Run `tenant-broker install` again after a change.",
    ),
    (
        "gateway_requests_per_second",
        ["50", "100", "200"],
        "Requests per second through the gateway of one replica; the burst is four times as many.",
    ),
    (
        "gateway_requests_at_once",
        ["50", "100", "200"],
        "Concurrent requests through the gateway of one replica, streams excluded.",
    ),
    (
        "gateway_streams",
        ["100", "200", "500"],
        "Concurrent watches, logs -f, exec, attach, port-forward and proxy requests through the gateway of one replica.",
    ),
    (
        "gateway_mebibytes_per_second",
        ["64", "128", "256"],
        "MiB per second through the gateway of one replica, in both directions together.",
    ),
];
/// Maximum of each limit of the gateway.
const MAX_GATEWAY_LIMIT: u32 = 100_000;
const MEBIBYTE: u64 = 1024 * 1024;
/// The value of `network_policy` that enables it.
const DENY_INGRESS: &str = "deny-ingress";
const DEFAULT_TIERS: [&str; 3] = ["basic", "standard", "premium"];

/// Reads the tiers: the default ones with changed settings, and additional ones, which have the
/// defaults of `basic`.
pub(super) fn tiers(s: &mut Settings) -> Tiers {
    let mut names = s.names_below("tiers");
    names.extend(DEFAULT_TIERS.map(str::to_owned));
    Tiers::new(names.into_iter().map(|name| (name.clone(), tier(s, &name))).collect())
}

fn tier(s: &mut Settings, name: &str) -> Tier {
    if !is_dns_label(name) {
        s.fault(&format!("tiers.{name}"), "a tier's name is lower case letters, digits and dashes");
    }
    let column = DEFAULT_TIERS.iter().position(|tier| *tier == name).unwrap_or(0);
    let number = |text: &str| {
        text.parse::<u32>().ok().filter(|number| (1..=MAX_GATEWAY_LIMIT).contains(number))
    };
    let mut value = |field: &str| {
        let defaults = FIELDS.iter().find(|(name, ..)| *name == field).map(|(_, it, _)| it[column]);
        let key = format!("tiers.{name}.{field}");
        let text = s.get_non_empty(&key).unwrap_or_else(|| defaults.unwrap_or_default().to_owned());
        let fault = match field {
            "role" => (!is_role_name(&text)).then_some("the name of a ClusterRole"),
            "pod_security" => (!["baseline", "restricted"].contains(&text.as_str()))
                .then_some("baseline or restricted"),
            "network_policy" => {
                (!["none", DENY_INGRESS].contains(&text.as_str())).then_some("none or deny-ingress")
            }
            "ingress_host_suffix" => (!text.is_empty() && text.parse::<HostSuffix>().is_err())
                .then_some("a suffix with the namespace in it: .{namespace}.apps.example.com"),
            _ if field.starts_with("gateway_") => {
                number(&text).is_none().then_some("a number from 1 to 100000")
            }
            _ => (!is_quantity(&text)).then_some("a Kubernetes quantity, such as 4, 500m or 8Gi"),
        };
        if let Some(why) = fault {
            s.fault(&key, why);
        }
        text
    };
    let tier = Tier {
        cpu: value("cpu"),
        cpu_limit: value("cpu_limit"),
        memory: value("memory"),
        pods: value("pods"),
        storage: value("storage"),
        ephemeral_storage: value("ephemeral_storage"),
        counts: BTreeMap::new(),
        default_cpu: value("default_cpu"),
        default_memory: value("default_memory"),
        default_ephemeral_storage: value("default_ephemeral_storage"),
        role: value("role"),
        pod_security: value("pod_security"),
        network_policy: value("network_policy") == DENY_INGRESS,
        ingress_host_suffix: value("ingress_host_suffix").parse().ok(),
        gateway: GatewayLimits {
            requests_per_second: number(&value("gateway_requests_per_second")).unwrap_or(1),
            requests_at_once: number(&value("gateway_requests_at_once")).unwrap_or(1),
            streams: number(&value("gateway_streams")).unwrap_or(1),
            bytes_per_second: u64::from(
                number(&value("gateway_mebibytes_per_second")).unwrap_or(1),
            ) * MEBIBYTE,
        },
    };
    Tier { counts: quota::counts(s, name, column), ..tier }
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

fn is_role_name(text: &str) -> bool {
    (1..=253).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b":-._".contains(&b))
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
