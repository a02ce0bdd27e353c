//! Tiers: resource limits, role and network rules of workspaces.

mod host_suffix;

use std::collections::BTreeMap;

pub use host_suffix::HostSuffix;

/// Name of the tier whose gateway limits a workspace has if its own tier is not configured, and a
/// membership in a tenant without a tier.
pub const DEFAULT_TIER: &str = "basic";

/// One tier. Amounts are Kubernetes quantities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Sum of `requests.cpu`, in cores.
    pub cpu: String,
    /// Sum of `limits.cpu`, in cores.
    pub cpu_limit: String,
    /// Sum of `limits.memory`.
    pub memory: String,
    /// Number of pods that have not terminated.
    pub pods: String,
    /// Sum of `requests.storage` of volume claims.
    pub storage: String,
    /// Sum of `limits.ephemeral-storage`.
    pub ephemeral_storage: String,
    /// Other limits of the quota: keys of `spec.hard` with their amounts.
    pub counts: BTreeMap<String, String>,
    /// Default CPU limit of containers.
    pub default_cpu: String,
    /// Default memory limit of containers.
    pub default_memory: String,
    /// Default ephemeral storage limit of containers.
    pub default_ephemeral_storage: String,
    /// ClusterRole that is bound to the tenant in its namespace.
    pub role: String,
    /// Pod Security level that the namespace enforces: `baseline` or `restricted`.
    pub pod_security: String,
    /// Whether the broker creates a NetworkPolicy in the namespace that denies ingress.
    pub network_policy: bool,
    /// Suffix that hosts of Ingresses and routes must have.
    pub ingress_host_suffix: Option<HostSuffix>,
    pub gateway: GatewayLimits,
}

/// Limits of a workspace in the gateway of each replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayLimits {
    /// Requests per second; the burst is four times as many.
    pub requests_per_second: u32,
    /// Concurrent requests, streams excluded.
    pub requests_at_once: u32,
    /// Concurrent streams: watches, `logs -f`, `exec`, `attach`, `port-forward` and requests below
    /// `/proxy/`.
    pub streams: u32,
    /// Bytes per second in both directions together.
    pub bytes_per_second: u64,
}

/// All tiers by name.
#[derive(Clone, Debug)]
pub struct Tiers(BTreeMap<String, Tier>);

impl GatewayLimits {
    /// The limits of a workspace whose tier is no longer configured.
    pub const MIN: Self = Self {
        requests_per_second: 1,
        requests_at_once: 1,
        streams: 1,
        bytes_per_second: 1024 * 1024,
    };
}

impl Tiers {
    /// These tiers by name.
    pub fn new(tiers: BTreeMap<String, Tier>) -> Self {
        Self(tiers)
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

    /// The ClusterRoles of all tiers, sorted, without duplicates.
    pub fn roles(&self) -> Vec<&str> {
        let mut roles: Vec<&str> = self.0.values().map(|tier| tier.role.as_str()).collect();
        roles.sort_unstable();
        roles.dedup();
        roles
    }

    /// The Pod Security levels of all tiers, sorted, without duplicates.
    pub fn pod_security_levels(&self) -> Vec<&str> {
        let mut levels: Vec<&str> =
            self.0.values().map(|tier| tier.pod_security.as_str()).collect();
        levels.sort_unstable();
        levels.dedup();
        levels
    }
}
