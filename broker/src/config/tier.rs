//! Tiers: what a workspace may use and do.

use std::collections::BTreeMap;

use super::{HostSuffix, Settings, quota};

/// One tier. Amounts are Kubernetes quantities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Sum of `requests.cpu`, in cores.
    pub cpu: String,
    /// Sum of `limits.cpu`, in cores.
    pub cpu_limit: String,
    /// Sum of `limits.memory`.
    pub memory: String,
    /// Number of pods.
    pub pods: String,
    /// Sum of storage that volume claims ask for.
    pub storage: String,
    /// Sum of `limits.ephemeral-storage`.
    pub ephemeral_storage: String,
    /// What else the quota says: keys of `spec.hard` with their amounts.
    pub counts: BTreeMap<String, String>,
    /// CPU limit of a container that names none.
    pub default_cpu: String,
    /// Memory limit of a container that names none.
    pub default_memory: String,
    /// Limit of a container's temporary files where it names none.
    pub default_ephemeral_storage: String,
    /// ClusterRole that the tenant holds in its own namespace.
    pub role: String,
    /// Pod Security level that the namespace enforces: `baseline` or `restricted`.
    pub pod_security: String,
    /// Whether the namespace has a NetworkPolicy of the broker's, which denies ingress.
    pub network_policy: bool,
    /// What hosts of Ingresses and routes have to end with.
    pub ingress_host_suffix: Option<HostSuffix>,
    /// What it may ask of the gateway.
    pub gateway: GatewayLimits,
}

/// What a workspace may ask of each replica's gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayLimits {
    /// Requests a second; four times as many at once after a pause.
    pub requests_per_second: u32,
    /// Requests under way that are no streams.
    pub requests_at_once: u32,
    /// Watches, `logs -f`, `exec`, `attach`, `port-forward` and requests below `/proxy/` at once.
    pub streams: u32,
    /// Bytes a second, both ways together.
    pub bytes_per_second: u64,
}

/// A setting of a tier: its key, and the value in `basic`, `standard` and `premium`.
const FIELDS: [(&str, [&str; 3], &str); 17] = [
    ("cpu", ["4", "8", "16"], "Sum of requests.cpu."),
    ("cpu_limit", ["12", "24", "48"], "Sum of limits.cpu."),
    ("memory", ["8Gi", "16Gi", "64Gi"], "Sum of limits.memory."),
    ("pods", ["20", "50", "200"], "Number of pods."),
    ("storage", ["20Gi", "100Gi", "500Gi"], "Sum of requests.storage of volume claims."),
    (
        "ephemeral_storage",
        ["20Gi", "50Gi", "200Gi"],
        "Sum of limits.ephemeral-storage: what containers write to the node's disk.",
    ),
    (
        "default_cpu",
        ["500m", "500m", "1"],
        "CPU limit of a container that names none; it requests 50m.",
    ),
    ("default_memory", ["256Mi", "512Mi", "1Gi"], "Memory limit of a container that names none."),
    (
        "default_ephemeral_storage",
        ["1Gi", "1Gi", "1Gi"],
        "Limit of ephemeral storage of a container that names none; it requests 50Mi.",
    ),
    ("role", ["admin", "admin", "admin"], "ClusterRole in the tenant's own namespace."),
    (
        "pod_security",
        ["baseline", "baseline", "baseline"],
        "Pod Security level: baseline or restricted.",
    ),
    (
        "network_policy",
        ["none", "none", "none"],
        "none, or deny-ingress: the broker makes a NetworkPolicy with which pods accept connections from their own namespace only, until the tenant's policies allow more. It needs `tenant-broker install` again, and reaches existing workspaces within drift_seconds.",
    ),
    (
        "ingress_host_suffix",
        ["", "", ""],
        "What hosts of Ingresses and of the Gateway API's routes have to end with, for example `.{namespace}.apps.example.com`; empty: any host but the broker's. It needs `tenant-broker install` again.",
    ),
    (
        "gateway_requests_per_second",
        ["50", "100", "200"],
        "Requests a second through the gateway of one replica; four times as many at once after a pause.",
    ),
    (
        "gateway_requests_at_once",
        ["50", "100", "200"],
        "Requests under way through the gateway of one replica, streams not counted.",
    ),
    (
        "gateway_streams",
        ["100", "200", "500"],
        "Watches, logs -f, exec, attach, port-forward and proxy requests open through the gateway of one replica.",
    ),
    (
        "gateway_mebibytes_per_second",
        ["64", "128", "256"],
        "MiB a second through the gateway of one replica, both ways together.",
    ),
];
/// A limit of the gateway at most.
const MOST: u32 = 100_000;
const MEBIBYTE: u64 = 1024 * 1024;
/// The value of `network_policy` that asks for one.
const DENY_INGRESS: &str = "deny-ingress";
const DEFAULT_TIERS: [&str; 3] = ["basic", "standard", "premium"];

/// The tiers by name.
#[derive(Clone, Debug)]
pub struct Tiers(BTreeMap<String, Tier>);

impl GatewayLimits {
    /// Where no tier says more.
    pub const LEAST: Self = Self {
        requests_per_second: 1,
        requests_at_once: 1,
        streams: 1,
        bytes_per_second: MEBIBYTE,
    };
}

impl Tiers {
    /// The default tiers with what the settings change, and the tiers that the settings add (which
    /// start from `basic`).
    pub(super) fn from_settings(s: &mut Settings) -> Self {
        let mut names = s.names_below("tiers");
        names.extend(DEFAULT_TIERS.map(str::to_owned));
        Self(names.into_iter().map(|name| (name.clone(), tier(s, &name))).collect())
    }

    /// All tiers with their names, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tier)> {
        self.0.iter().map(|(name, tier)| (name.as_str(), tier))
    }

    /// The tier of this name.
    pub fn get(&self, name: &str) -> Option<&Tier> {
        self.0.get(name)
    }

    /// All names, sorted.
    pub fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    /// The ClusterRoles that tiers give, without repetition.
    pub fn roles(&self) -> Vec<&str> {
        let mut roles: Vec<&str> = self.0.values().map(|tier| tier.role.as_str()).collect();
        roles.sort_unstable();
        roles.dedup();
        roles
    }

    /// The Pod Security levels that tiers enforce, without repetition.
    pub fn pod_security_levels(&self) -> Vec<&str> {
        let mut levels: Vec<&str> =
            self.0.values().map(|tier| tier.pod_security.as_str()).collect();
        levels.sort_unstable();
        levels.dedup();
        levels
    }

    /// The table of settings for the documentation: key, default of `basic`, meaning.
    pub fn documentation() -> impl Iterator<Item = (&'static str, [&'static str; 3], &'static str)>
    {
        FIELDS.into_iter()
    }

    /// The table of what the quota counts besides: key of `spec.hard` and its values.
    pub fn counts() -> impl Iterator<Item = (&'static str, [&'static str; 3])> {
        quota::COUNTS.into_iter()
    }
}

fn tier(s: &mut Settings, name: &str) -> Tier {
    if !super::is_dns_label(name) {
        s.fault(&format!("tiers.{name}"), "a tier's name is lower case letters, digits and dashes");
    }
    let column = DEFAULT_TIERS.iter().position(|tier| *tier == name).unwrap_or(0);
    let number = |text: &str| text.parse::<u32>().ok().filter(|number| (1..=MOST).contains(number));
    let mut value = |field: &str| {
        let defaults = FIELDS.iter().find(|(name, ..)| *name == field).map(|(_, it, _)| it[column]);
        let key = format!("tiers.{name}.{field}");
        let text = s.given(&key).unwrap_or_else(|| defaults.unwrap_or_default().to_owned());
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

/// Digits, perhaps a fraction, and a suffix that Kubernetes knows (apimachinery `resource.Quantity`).
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
