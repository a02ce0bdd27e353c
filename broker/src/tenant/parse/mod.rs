//! Objects of the kind `Tenant` as validated types.
//!
//! The API server checks an object when it is written. One that was written under another
//! definition may still break the rules.

mod amounts;
mod namespaces;
mod raw;
mod roles;
#[cfg(test)]
mod tests;
mod unsupported;
mod violations;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::LimitRangeItem;
use serde::Deserialize as _;
use serde_json::Value;
use tenant_shared::TENANT_OWNER_ROLE;

pub use amounts::{Quota, QuotaScope};
pub use namespaces::{Bindings, Metadata, NamespaceOptions, RequiredMetadata};
pub use roles::{AdditionalRoleBinding, Owner};

use super::{ClusterRoleName, TenantName, Violation, role_binding_name};
use raw::RawSpec;
use violations::Violations;

/// A Tenant that keeps the rules of the definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    /// Its name.
    pub name: TenantName,
    /// The owners, each once.
    pub owners: Vec<Owner>,
    /// Roles for others.
    pub additional_role_bindings: Vec<AdditionalRoleBinding>,
    /// Number, names and metadata of the namespaces.
    pub namespace_options: NamespaceOptions,
    /// Scope of the quotas.
    pub quota_scope: QuotaScope,
    /// One for each ResourceQuota.
    pub quotas: Vec<Quota>,
    /// The limits of each LimitRange.
    pub limit_ranges: Vec<Vec<LimitRangeItem>>,
    /// Labels of the nodes on which pods run.
    pub node_selector: BTreeMap<String, String>,
    /// Subjects to which owners may bind roles.
    pub bindings: Bindings,
    /// Name of the tier, whether or not it is configured.
    pub tier: Option<String>,
    /// Paths of fields that have a value and are not carried out, sorted.
    pub not_carried_out: Vec<String>,
}

impl Tenant {
    /// The names of the RoleBindings in its namespaces: one for each ClusterRole that it gives to owners
    /// or others, also if the settings do not allow it, and that of the owners in the home.
    pub fn binding_names(&self) -> BTreeSet<String> {
        let owners = self.owners.iter().flat_map(|owner| &owner.cluster_roles);
        let roles = owners.chain(self.additional_role_bindings.iter().map(|it| &it.cluster_role));
        let roles = roles.map(ClusterRoleName::as_str).chain([TENANT_OWNER_ROLE]);
        roles.map(|role| role_binding_name(&self.name, role)).collect()
    }

    /// Validates the name and the `spec` of an object.
    ///
    /// # Errors
    /// All rules that it breaks. A field of a wrong type is reported alone, as a violation of
    /// `spec`.
    pub fn parse(name: &str, spec: &Value) -> Result<Self, Vec<Violation>> {
        let mut violations = Violations::default();
        let name = violations.ok_or_record("metadata.name", name.parse::<TenantName>());
        let raw = violations.ok_or_record("spec", RawSpec::deserialize(spec));
        let (Some(name), Some(raw)) = (name, raw) else { return Err(violations.0) };
        let mut unsupported = unsupported::unsupported_fields(spec);
        let has_node_selector = !raw.node_selector.is_empty();
        let owners =
            roles::owners(raw.owners, has_node_selector, &mut violations, &mut unsupported);
        let additional_role_bindings =
            roles::bindings(raw.additional_role_bindings, &mut violations);
        let namespace_options =
            namespaces::namespace_options(raw.namespace_options, &mut violations, &mut unsupported);
        let quota_scope = raw.resource_quotas.scope;
        let quotas = amounts::quotas(raw.resource_quotas.items, &mut violations);
        let limit_ranges = amounts::limit_ranges(raw.limit_ranges.items, &mut violations);
        let node_selector = namespaces::node_selector(raw.node_selector, &mut violations);
        if !violations.0.is_empty() {
            return Err(violations.0);
        }
        unsupported.sort();
        Ok(Self {
            name,
            owners,
            additional_role_bindings,
            namespace_options,
            quota_scope,
            quotas,
            limit_ranges,
            node_selector,
            bindings: raw.bindings,
            tier: raw.tier,
            not_carried_out: unsupported,
        })
    }
}
