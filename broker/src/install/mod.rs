//! What the broker needs in the cluster, as code: its rights and the admission policies that keep
//! it, and the tenants, inside them. `tenant-broker install` prints and applies it, `serve` checks
//! that it is there.
//!
//! RBAC alone cannot keep the broker's identity inside the tenants' namespaces (it has no rule for
//! name prefixes of what is created), and it lets a tenant with the role `admin` mint tokens of any
//! length. The policies (`ValidatingAdmissionPolicy`, Kubernetes 1.30) can do both:
//!
//! | family | holds | what it keeps true |
//! |---|---|---|
//! | `tenant-tokens` | everybody | two-hour tokens only, from the broker only |
//! | `tenant-broker-fence-*` | the broker | a stolen credential stays inside managed namespaces |
//! | `tenant-guard-*` | everybody else | nobody is bound from outside |
//! | `tenant-suspended` | everybody else | nothing is written in a suspended namespace |
//! | `tenant-pods` | everybody | no pod carries the session's ServiceAccount, a system priority or a node |
//! | `tenant-network` | everybody else | no address or host name of others is claimed |

mod admin;
mod credential;
mod fence;
mod flow;
mod guard;
mod hosts;
mod network;
mod policy;
mod role;
mod standing;
mod tokens;
mod watch;
mod workload;
mod yaml;

use url::Host;

use crate::config::{BrokerUser, Config, HostSuffix};

pub use admin::Administrator;
pub use flow::flow_control;
pub use policy::Policy;
pub use role::{ROLE_NAME, Right};
pub use standing::{faults, spare_right};
pub use watch::{NotHeld, Watch};
pub use yaml::manifest;

/// Label of everything that `install` makes, with [`INSTALLED_BY_VALUE`].
const INSTALLED_BY_LABEL: &str = tenant_shared::MANAGED_BY_LABEL;
/// Not the value that tenants' objects carry: what belongs to the cluster is not a tenant's.
const INSTALLED_BY_VALUE: &str = "tenant-broker-install";

/// What the objects depend on; all of it is configuration of the broker.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Who the broker is to the API server.
    pub broker: BrokerUser,
    /// The ClusterRoles that tiers give, sorted.
    pub roles: Vec<String>,
    /// The Pod Security levels that tiers enforce, sorted.
    pub pod_security: Vec<String>,
    /// What the API server writes into tokens that ask for no audience.
    pub audiences: Vec<String>,
    /// Whether tokens are bound to Secrets, which the broker makes and deletes.
    pub bind_tokens: bool,
    /// The host of `public_url`; none if that is an address, which no Ingress can name.
    pub public_host: Option<String>,
    /// Every tier, sorted, with what the hosts of its workspaces end with.
    pub host_suffixes: Vec<(String, Option<HostSuffix>)>,
    /// The tiers with a default NetworkPolicy, which the broker makes, sorted.
    pub network_policy_tiers: Vec<String>,
}

impl Parameters {
    /// Takes them from the broker's configuration.
    pub fn new(config: &Config) -> Self {
        let owned = |items: Vec<&str>| items.into_iter().map(str::to_owned).collect();
        Self {
            broker: config.cluster.identity.clone(),
            roles: owned(config.tiers.roles()),
            pod_security: owned(config.tiers.pod_security_levels()),
            audiences: config.cluster.audiences.clone(),
            bind_tokens: config.cluster.bind_tokens_to_secrets,
            public_host: match config.public_url.host() {
                Some(Host::Domain(name)) if name != "localhost" => Some(name.to_ascii_lowercase()),
                _ => None,
            },
            host_suffixes: config
                .tiers
                .iter()
                .map(|(name, tier)| (name.to_owned(), tier.ingress_host_suffix.clone()))
                .collect(),
            network_policy_tiers: config
                .tiers
                .iter()
                .filter(|(_, tier)| tier.network_policy)
                .map(|(name, _)| name.to_owned())
                .collect(),
        }
    }

    /// What the broker may do, one by one.
    pub fn rights(&self) -> Vec<Right<'_>> {
        role::rights(&role::rules(self, &self.policy_names()))
    }

    fn policy_names(&self) -> Vec<&'static str> {
        self.policies().iter().map(Policy::name).collect()
    }

    /// The admission policies in the order in which they are made. The fence is the last: where it
    /// is in force, the others are.
    pub fn policies(&self) -> Vec<Policy> {
        let mut policies = vec![tokens::policy(self)];
        policies.extend(guard::policies(self));
        policies.extend([workload::policy(), network::policy(self)]);
        policies.extend(fence::policies(self));
        policies
    }
}

/// A text as a literal of CEL; JSON strings are valid ones, and of YAML.
fn quoted(text: &str) -> String {
    serde_json::Value::String(text.to_owned()).to_string()
}

/// A list of texts as a literal of CEL, and of YAML in flow style.
fn quoted_list<T: AsRef<str>>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(|item| quoted(item.as_ref())).collect();
    format!("[{}]", items.join(", "))
}

#[cfg(test)]
mod tests;
