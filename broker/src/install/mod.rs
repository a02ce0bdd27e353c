//! The broker's objects in the cluster: its ClusterRole, and the admission policies that restrict
//! the broker and the tenants. `tenant-broker install` prints and applies them, `serve` verifies
//! them.
//!
//! RBAC alone cannot confine the broker's identity to the tenants' namespaces (it has no rule for
//! name prefixes of new objects), and it lets a tenant with the role `admin` request tokens of any
//! lifetime. The policies (`ValidatingAdmissionPolicy`, Kubernetes 1.30) can do both:
//!
//! | policies | apply to | guarantee |
//! |---|---|---|
//! | `tenant-tokens` | everybody | only the broker gets tokens, of two hours at most |
//! | `tenant-broker-fence-*` | the broker | a stolen credential is confined to managed namespaces |
//! | `tenant-guard-*` | everybody else | no subject from outside of the namespace is bound in it |
//! | `tenant-guard-llama-stacks` | everybody else | a namespace has one Llama Stack, because no quota counts them |
//! | `tenant-guard-tenants` | everybody | no Tenant with namespaces is deleted by mistake |
//! | `tenant-suspended` | everybody else | no write in a suspended namespace |
//! | `tenant-pods` | everybody | no pod has the session's ServiceAccount, a system priority or a chosen node |
//! | `tenant-network` | everybody else | no address or host name of others is claimed |
//!
//! With `tenants.enabled` it also makes the definitions of the kind `Tenant` and the ClusterRoles of
//! tenants' members. The policies then apply in the namespaces of tenants, too: each has a second
//! binding `NAME-tenants`, because the expressions of one selector have to hold all.
//!
//! With `tenants.direct_namespaces` people may create namespaces themselves. Then there are also the
//! ClusterRole for it and a `MutatingAdmissionPolicy` that labels new namespaces.

mod admin;
mod audiences;
mod broker_policies;
mod cel;
mod credential;
mod deletion;
mod direct_namespaces;
mod flow_schema;
mod hosts;
mod model_roles;
mod network;
mod permission;
mod pods;
mod policy;
mod role;
mod served_kinds;
mod tenant_definition;
mod tenant_policies;
mod tenant_role;
mod tenants_in_cluster;
mod tokens;
mod verify;
mod watch;
mod yaml;

use url::{Host, Url};

use crate::{
    cluster::{ClusterSettings, KubernetesUser},
    tenant::{ApiGroup, TenantSettings},
    tier::{HostSuffix, Tiers},
};

pub use admin::{Administrator, Report};
pub use flow_schema::flow_schemas;
pub use model_roles::{
    MODEL_ROLES, desired_model_roles, grants_the_same, missing_model_rights, model_roles,
};
pub use permission::Permission;
pub use policy::Policy;
pub use role::ROLE_NAME;
pub use tenant_definition::tenant_definitions;
pub use verify::{faults, unneeded_permission};
pub use watch::{PoliciesNotInForce, PolicyWatcher};
pub use yaml::manifest;

/// Label of everything that `install` makes, with [`INSTALLED_BY_VALUE`].
const INSTALLED_BY_LABEL: &str = tenant_shared::MANAGED_BY_LABEL;
/// Differs from the value on tenants' objects, because these objects belong to the cluster.
const INSTALLED_BY_VALUE: &str = "tenant-broker-install";
/// API group and kind of the Llama Stack operator.
const LLAMA_STACK: (&str, &[&str]) = ("llamastack.io", &["llamastackdistributions"]);

/// Parameters of the objects, all from the configuration of the broker.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// The user as which the API server knows the broker.
    pub broker: KubernetesUser,
    /// The ClusterRoles that tiers grant, sorted.
    pub roles: Vec<String>,
    /// The Pod Security levels that tiers enforce, sorted.
    pub pod_security: Vec<String>,
    /// The default audiences of the API server's tokens.
    pub audiences: Vec<String>,
    /// Whether tokens are bound to Secrets, which the broker creates and deletes.
    pub bind_tokens: bool,
    /// The host of `public_url`; `None` if that is an IP address, which no Ingress can name.
    pub public_host: Option<String>,
    /// Every tier, sorted, with the suffix that hosts of its workspaces must have.
    pub host_suffixes: Vec<(String, Option<HostSuffix>)>,
    /// The tiers with a default NetworkPolicy of the broker, sorted.
    pub network_policy_tiers: Vec<String>,
    /// Tenants; without `enabled` the objects are those for personal workspaces alone.
    pub tenants: TenantSettings,
    /// Whether the cluster has Tenants in the API group of Capsule, too (`--capsule-api`). Only the
    /// command line of `install` says so, so nothing that the broker verifies may depend on it.
    pub capsule_api: bool,
    pub model_services: ModelServicesParameters,
}

/// What model services need in the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelServicesParameters {
    /// Whether the broker serves them.
    pub enabled: bool,
    /// Whether the broker reads the domain of the cluster's routes.
    pub reads_cluster_domain: bool,
}

impl Parameters {
    /// Derives the parameters from settings of the broker. Model services are off.
    pub fn new(
        cluster: &ClusterSettings,
        tiers: &Tiers,
        tenants: &TenantSettings,
        public_url: &Url,
    ) -> Self {
        let owned = |items: Vec<&str>| items.into_iter().map(str::to_owned).collect();
        Self {
            broker: cluster.identity.clone(),
            roles: owned(tiers.roles()),
            pod_security: owned(tiers.pod_security_levels()),
            audiences: cluster.audiences.clone(),
            bind_tokens: cluster.bind_tokens_to_secrets,
            public_host: match public_url.host() {
                Some(Host::Domain(name)) if name != "localhost" => Some(name.to_ascii_lowercase()),
                _ => None,
            },
            host_suffixes: tiers
                .iter()
                .map(|(name, tier)| (name.to_owned(), tier.ingress_host_suffix.clone()))
                .collect(),
            network_policy_tiers: tiers
                .iter()
                .filter(|(_, tier)| tier.network_policy)
                .map(|(name, _)| name.to_owned())
                .collect(),
            tenants: tenants.clone(),
            capsule_api: false,
            model_services: ModelServicesParameters::default(),
        }
    }

    /// The API groups that serve Tenants.
    pub fn tenant_groups(&self) -> &'static [ApiGroup] {
        match (self.tenants.enabled, self.capsule_api) {
            (true, true) => &[ApiGroup::TenantBroker, ApiGroup::Capsule],
            (true, false) => &[ApiGroup::TenantBroker],
            (false, _) => &[],
        }
    }

    /// All permissions of the broker's ClusterRole, one per verb, resource and name.
    pub fn permissions(&self) -> Vec<Permission> {
        permission::permissions(&role::rules(self, self.policy_names()))
    }

    /// Names of the admission policies and of their bindings. The first binding of a policy has its
    /// name.
    fn policy_names(&self) -> Vec<String> {
        self.policies().iter().flat_map(Policy::binding_names).collect()
    }

    /// The admission policies that the broker does not verify, because they follow the command line
    /// of `install` alone.
    fn unverified_policies(&self) -> Vec<Policy> {
        tenant_policies::unverified_policies(self)
    }

    /// The admission policies in the order in which they are applied. Those for the broker are
    /// last: once they are in force, the others are too.
    pub fn policies(&self) -> Vec<Policy> {
        let mut policies = vec![tokens::policy(self)];
        policies.extend(tenant_policies::policies(self));
        policies.extend([pods::policy(self), network::policy(self)]);
        policies.extend(broker_policies::policies(self));
        policies
    }
}

/// A text as a literal of CEL and of YAML: JSON strings are valid in both.
fn quoted(text: &str) -> String {
    serde_json::Value::String(text.to_owned()).to_string()
}

/// A list of texts as a literal of CEL and of YAML (flow style).
fn quoted_list<T: AsRef<str>>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(|item| quoted(item.as_ref())).collect();
    format!("[{}]", items.join(", "))
}

#[cfg(test)]
mod tests;
