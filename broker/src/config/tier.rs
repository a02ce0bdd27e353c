//! Settings of tiers: `[tiers.NAME]`.

use tenant_shared::is_dns_label;

use super::{
    Settings,
    declaration::Declaration,
    parse::{optional, within},
    quota::{self, is_quantity},
    tier_setting::{Defaults, TierSetting, table},
};
use crate::tier::{GatewayLimits, HostSuffix, Tier, Tiers};

const CPU: TierSetting<String> = TierSetting::new(
    "cpu",
    Defaults { basic: "4", standard: "8", premium: "16" },
    quantity,
    "Sum of requests.cpu.",
);
const CPU_LIMIT: TierSetting<String> = TierSetting::new(
    "cpu_limit",
    Defaults { basic: "12", standard: "24", premium: "48" },
    quantity,
    "Sum of limits.cpu.",
);
const MEMORY: TierSetting<String> = TierSetting::new(
    "memory",
    Defaults { basic: "8Gi", standard: "16Gi", premium: "64Gi" },
    quantity,
    "Sum of limits.memory.",
);
const PODS: TierSetting<String> = TierSetting::new(
    "pods",
    Defaults { basic: "20", standard: "50", premium: "200" },
    quantity,
    "Number of pods.",
);
const STORAGE: TierSetting<String> = TierSetting::new(
    "storage",
    Defaults { basic: "20Gi", standard: "100Gi", premium: "500Gi" },
    quantity,
    "Sum of requests.storage of volume claims.",
);
const EPHEMERAL_STORAGE: TierSetting<String> = TierSetting::new(
    "ephemeral_storage",
    Defaults { basic: "20Gi", standard: "50Gi", premium: "200Gi" },
    quantity,
    "Sum of limits.ephemeral-storage, which containers write to the node's disk.",
);
const DEFAULT_CPU: TierSetting<String> = TierSetting::new(
    "default_cpu",
    Defaults { basic: "500m", standard: "500m", premium: "1" },
    quantity,
    "Default CPU limit of containers; the default request is 50m.",
);
const DEFAULT_MEMORY: TierSetting<String> = TierSetting::new(
    "default_memory",
    Defaults { basic: "256Mi", standard: "512Mi", premium: "1Gi" },
    quantity,
    "Default memory limit of containers.",
);
const DEFAULT_EPHEMERAL_STORAGE: TierSetting<String> = TierSetting::new(
    "default_ephemeral_storage",
    Defaults::all("1Gi"),
    quantity,
    "Default ephemeral storage limit of containers; the default request is 50Mi.",
);
const ROLE: TierSetting<String> = TierSetting::new(
    "role",
    Defaults::all("admin"),
    role_name,
    "ClusterRole that is bound to the tenant in its namespace.",
);
const POD_SECURITY: TierSetting<String> = TierSetting::new(
    "pod_security",
    Defaults::all("baseline"),
    pod_security,
    "Pod Security level: baseline or restricted.",
);
const NETWORK_POLICY: TierSetting<bool> = TierSetting::new(
    "network_policy",
    Defaults::all("none"),
    network_policy,
    "none, or deny-ingress: the broker creates a NetworkPolicy with which pods accept connections \
     from their own namespace only, until the tenant's policies allow more. Run `tenant-broker \
     install` again after a change; existing workspaces follow within drift_seconds.",
);
const INGRESS_HOST_SUFFIX: TierSetting<Option<HostSuffix>> = TierSetting::new(
    "ingress_host_suffix",
    Defaults::all(""),
    host_suffix,
    "Suffix that hosts of Ingresses and of the Gateway API's routes must have, for example \
     `.{namespace}.apps.example.com`; empty: any host except the broker's. Run `tenant-broker \
     install` again after a change.",
);
const GATEWAY_REQUESTS_PER_SECOND: TierSetting<u32> = TierSetting::new(
    "gateway_requests_per_second",
    Defaults { basic: "50", standard: "100", premium: "200" },
    gateway_limit,
    "Requests per second through the gateway of one replica; the burst is four times as many.",
);
const GATEWAY_REQUESTS_AT_ONCE: TierSetting<u32> = TierSetting::new(
    "gateway_requests_at_once",
    Defaults { basic: "50", standard: "100", premium: "200" },
    gateway_limit,
    "Concurrent requests through the gateway of one replica, streams excluded.",
);
const GATEWAY_STREAMS: TierSetting<u32> = TierSetting::new(
    "gateway_streams",
    Defaults { basic: "100", standard: "200", premium: "500" },
    gateway_limit,
    "Concurrent watches, logs -f, exec, attach, port-forward and proxy requests through the \
     gateway of one replica.",
);
const GATEWAY_MEBIBYTES_PER_SECOND: TierSetting<u32> = TierSetting::new(
    "gateway_mebibytes_per_second",
    Defaults { basic: "64", standard: "128", premium: "256" },
    gateway_limit,
    "MiB per second through the gateway of one replica, in both directions together.",
);
pub(super) const SETTINGS: &[&dyn Declaration] = &[
    &CPU,
    &CPU_LIMIT,
    &MEMORY,
    &PODS,
    &STORAGE,
    &EPHEMERAL_STORAGE,
    &DEFAULT_CPU,
    &DEFAULT_MEMORY,
    &DEFAULT_EPHEMERAL_STORAGE,
    &ROLE,
    &POD_SECURITY,
    &NETWORK_POLICY,
    &INGRESS_HOST_SUFFIX,
    &GATEWAY_REQUESTS_PER_SECOND,
    &GATEWAY_REQUESTS_AT_ONCE,
    &GATEWAY_STREAMS,
    &GATEWAY_MEBIBYTES_PER_SECOND,
];

/// The keys of `spec.hard` that have settings of their own.
const IN_QUOTA: [(&str, &TierSetting<String>); 6] = [
    ("requests.cpu", &CPU),
    ("limits.cpu", &CPU_LIMIT),
    ("limits.memory", &MEMORY),
    ("requests.storage", &STORAGE),
    ("limits.ephemeral-storage", &EPHEMERAL_STORAGE),
    ("pods", &PODS),
];
const MEBIBYTE: u64 = 1024 * 1024;

/// Reads the tiers: the default ones with changed settings, and additional ones, which have the
/// defaults of `basic`.
pub(super) fn tiers(s: &mut Settings) -> Tiers {
    let mut names = s.names_below("tiers");
    names.extend(Defaults::TIERS.map(str::to_owned));
    Tiers::new(names.into_iter().map(|name| (name.clone(), tier(s, &name))).collect())
}

fn tier(s: &mut Settings, name: &str) -> Tier {
    if !is_dns_label(name) {
        s.fault(&table(name), "a tier's name is lower case letters, digits and dashes");
    }
    Tier {
        cpu: CPU.read(s, name),
        cpu_limit: CPU_LIMIT.read(s, name),
        memory: MEMORY.read(s, name),
        pods: PODS.read(s, name),
        storage: STORAGE.read(s, name),
        ephemeral_storage: EPHEMERAL_STORAGE.read(s, name),
        counts: quota::counts(s, name, &IN_QUOTA),
        default_cpu: DEFAULT_CPU.read(s, name),
        default_memory: DEFAULT_MEMORY.read(s, name),
        default_ephemeral_storage: DEFAULT_EPHEMERAL_STORAGE.read(s, name),
        role: ROLE.read(s, name),
        pod_security: POD_SECURITY.read(s, name),
        network_policy: NETWORK_POLICY.read(s, name),
        ingress_host_suffix: INGRESS_HOST_SUFFIX.read(s, name),
        gateway: GatewayLimits {
            requests_per_second: GATEWAY_REQUESTS_PER_SECOND.read(s, name),
            requests_at_once: GATEWAY_REQUESTS_AT_ONCE.read(s, name),
            streams: GATEWAY_STREAMS.read(s, name),
            bytes_per_second: u64::from(GATEWAY_MEBIBYTES_PER_SECOND.read(s, name)) * MEBIBYTE,
        },
    }
}

/// The text if it is valid.
fn valid(text: &str, is_valid: bool, expected: &str) -> Result<String, String> {
    if is_valid { Ok(text.to_owned()) } else { Err(expected.to_owned()) }
}

fn quantity(text: &str) -> Result<String, String> {
    valid(text, is_quantity(text), "a Kubernetes quantity, such as 4, 500m or 8Gi")
}

fn role_name(text: &str) -> Result<String, String> {
    let is_name = (1..=253).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b":-._".contains(&b));
    valid(text, is_name, "the name of a ClusterRole")
}

fn pod_security(text: &str) -> Result<String, String> {
    valid(text, ["baseline", "restricted"].contains(&text), "baseline or restricted")
}

fn network_policy(text: &str) -> Result<bool, String> {
    match text {
        "none" => Ok(false),
        "deny-ingress" => Ok(true),
        _ => Err("none or deny-ingress".to_owned()),
    }
}

fn host_suffix(text: &str) -> Result<Option<HostSuffix>, String> {
    let expected = "a suffix with the namespace in it: .{namespace}.apps.example.com";
    optional(text).map_err(|_| expected.to_owned())
}

fn gateway_limit(text: &str) -> Result<u32, String> {
    within::<1, 100_000>(text).map_err(|_| "a number from 1 to 100000".to_owned())
}
