//! Names of the objects that the broker makes for a tenant, and names of its namespaces. Pure.

use tenant_shared::{MEMBER_PREFIX, NAME_PREFIX, TENANT_OWNER_ROLE, is_dns_label};
use uuid::Uuid;

use super::{Tenant, TenantName, TenantSettings};

/// Reason why a tenant may not have a namespace of this name. The text follows no other one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceNameError {
    /// It is no DNS label.
    #[error(
        "tenant {0} cannot have a namespace of this name, because a name has 1 to 63 lower case \
         letters, digits and dashes, and begins and ends with a letter or digit; choose another \
         name"
    )]
    Malformed(TenantName),
    /// It has another prefix than the Tenant demands.
    #[error("namespace names of tenant {0} begin with {0}-; choose such a name")]
    Prefix(TenantName),
    /// It has another prefix than the operator demands.
    #[error(
        "namespace names of tenant {0} begin with {0}-, although it sets forceTenantPrefix to \
         false, because the operator does not allow others (tenants.free_names); choose such a \
         name, or ask the operator"
    )]
    NoFreeNames(TenantName),
    /// Homes of tenants and namespaces of personal workspaces have such names.
    #[error(
        "names that begin with tenant- are reserved for the broker; choose another name for the \
         namespace of tenant {0}"
    )]
    Reserved(TenantName),
    /// The operator keeps it for the cluster.
    #[error(
        "the operator protects this name (tenants.protected_names); choose another name for the \
         namespace of tenant {0}, or ask the operator"
    )]
    Protected(TenantName),
    /// It begins with the longer name of another tenant.
    #[error("names that begin with {0}- belong to tenant {0}; choose another one")]
    OtherTenant(TenantName),
    /// Other Tenants name ServiceAccounts of the namespace, whose rights its owners would get.
    #[error(
        "other Tenants give rights to ServiceAccounts of a namespace {0}, which its owners would get; \
         choose another name, or ask an administrator, who sees in the plan of `kubectl tenant \
         namespaces adopt` which Tenants these are"
    )]
    OthersAccounts(String),
}

/// Name of a tenant's home.
pub fn home_name(tenant: &TenantName) -> String {
    format!("{NAME_PREFIX}{tenant}")
}

/// The tenant whose home a namespace would be by its name, whether or not that tenant exists.
pub fn tenant_of_home(namespace: &str) -> Option<TenantName> {
    namespace.strip_prefix(NAME_PREFIX)?.parse().ok()
}

/// Name of the RoleBinding of a ClusterRole in the home and in each namespace of a tenant.
pub fn role_binding_name(tenant: &TenantName, cluster_role: &str) -> String {
    format!("{NAME_PREFIX}{tenant}-{cluster_role}")
}

/// Name of the RoleBinding in the home that names the owners.
pub fn owner_binding_name(tenant: &TenantName) -> String {
    role_binding_name(tenant, TENANT_OWNER_ROLE)
}

/// Name of the ResourceQuota of `spec.resourceQuotas.items[index]`.
pub fn quota_name(index: usize) -> String {
    format!("{NAME_PREFIX}quota-{index}")
}

/// Name of the LimitRange of `spec.limitRanges.items[index]`.
pub fn limits_name(index: usize) -> String {
    format!("{NAME_PREFIX}limits-{index}")
}

/// Whether a ResourceQuota or LimitRange has a name that the broker gives.
pub fn is_limits_name(name: &str) -> bool {
    let rest = name.strip_prefix(NAME_PREFIX).unwrap_or_default();
    let number = rest.strip_prefix("quota-").or_else(|| rest.strip_prefix("limits-"));
    number.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Name of the ServiceAccount of a member in the home.
pub fn member_account_name(user: Uuid) -> String {
    format!("{MEMBER_PREFIX}{user}")
}

/// Whether a name is a DNS label that begins with the name of the tenant and a dash.
pub fn is_namespace_name(tenant: &TenantName, name: &str) -> bool {
    let rest = name.strip_prefix(tenant.as_str()).and_then(|rest| rest.strip_prefix('-'));
    rest.is_some_and(|rest| !rest.is_empty()) && is_dns_label(name)
}

/// The tenant among these whose name is the longest prefix of the name of a namespace.
pub fn longest_prefix<'a>(
    tenants: impl IntoIterator<Item = &'a TenantName>,
    namespace: &str,
) -> Option<&'a TenantName> {
    tenants
        .into_iter()
        .filter(|tenant| is_namespace_name(tenant, namespace))
        .max_by_key(|tenant| tenant.as_str().len())
}

/// The names of tenants that the name of a namespace begins with, whether or not these tenants
/// exist, the longest first. [`longest_prefix`] chooses the first one that exists.
pub fn prefixes_of(namespace: &str) -> Vec<TenantName> {
    let mut names: Vec<TenantName> = namespace
        .match_indices('-')
        .filter_map(|(dash, _)| namespace.get(..dash)?.parse::<TenantName>().ok())
        .filter(|tenant| is_namespace_name(tenant, namespace))
        .collect();
    names.reverse();
    names
}

/// Checks that a namespace of this name may be one of the tenant. The names of other tenants are not
/// known here.
///
/// # Errors
/// The first rule that the name breaks.
pub fn check_namespace_name(
    tenant: &Tenant,
    name: &str,
    settings: &TenantSettings,
) -> Result<(), NamespaceNameError> {
    if !is_dns_label(name) {
        return Err(NamespaceNameError::Malformed(tenant.name.clone()));
    }
    if name.starts_with(NAME_PREFIX) {
        return Err(NamespaceNameError::Reserved(tenant.name.clone()));
    }
    if !is_namespace_name(&tenant.name, name) {
        if tenant.namespace_options.force_tenant_prefix {
            return Err(NamespaceNameError::Prefix(tenant.name.clone()));
        }
        if !settings.free_names {
            return Err(NamespaceNameError::NoFreeNames(tenant.name.clone()));
        }
    }
    if settings.protected_names.matches(name) {
        return Err(NamespaceNameError::Protected(tenant.name.clone()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn name(text: &str) -> TenantName {
        text.parse().unwrap()
    }

    fn tenant(force_tenant_prefix: bool) -> Tenant {
        let spec = json!({
            "owners": [{"kind": "User", "name": "alice"}],
            "namespaceOptions": {"forceTenantPrefix": force_tenant_prefix},
        });
        Tenant::parse("solar", &spec).unwrap()
    }

    #[test]
    fn objects_have_the_names_that_the_policies_compute() {
        let solar = name("solar");
        assert_eq!(home_name(&solar), "tenant-solar");
        assert_eq!(tenant_of_home("tenant-solar"), Some(solar.clone()));
        assert_eq!(role_binding_name(&solar, "admin"), "tenant-solar-admin");
        assert_eq!(owner_binding_name(&solar), "tenant-solar-tenant-owner");
        assert_eq!(quota_name(0), "tenant-quota-0");
        assert_eq!(limits_name(1), "tenant-limits-1");
        let account = member_account_name(Uuid::nil());
        assert_eq!(account, "member-00000000-0000-0000-0000-000000000000");
    }

    #[test]
    fn reserved_names_and_uuids_are_no_homes() {
        for namespace in ["tenant-system", "tenant-", "solar", "tenant-kube"] {
            assert_eq!(tenant_of_home(namespace), None, "{namespace}");
        }
        assert_eq!(tenant_of_home(&format!("tenant-a{}", &Uuid::nil().to_string()[1..])), None);
    }

    #[test]
    fn names_of_namespaces_begin_with_the_tenant_and_a_dash() {
        for (text, is_name) in [
            ("solar-production", true),
            ("solar-1", true),
            ("solar", false),
            ("solar-", false),
            ("solarium", false),
            ("solar-x-", false),
            ("solar-X", false),
            ("lunar-x", false),
        ] {
            assert_eq!(is_namespace_name(&name("solar"), text), is_name, "{text}");
        }
        assert!(is_namespace_name(&name("solar"), &format!("solar-{}", "x".repeat(57))));
        assert!(!is_namespace_name(&name("solar"), &format!("solar-{}", "x".repeat(58))));
    }

    #[test]
    fn the_longest_of_several_prefixes_is_the_tenant() {
        let tenants = ["solar", "solar-wind", "lunar"].map(name);
        let of = |namespace| longest_prefix(&tenants, namespace).map(TenantName::as_str);
        assert_eq!(of("solar-wind-x"), Some("solar-wind"));
        assert_eq!(of("solar-wind"), Some("solar"));
        assert_eq!(of("solar-windy"), Some("solar"));
        assert_eq!(of("stellar-x"), None);
    }

    #[test]
    fn the_prefixes_of_a_name_are_those_that_tenants_may_have() {
        for (namespace, expected) in [
            ("solar-wind-x", &["solar-wind", "solar"][..]),
            ("solar--x", &["solar"]),
            ("solar", &[]),
            ("solar-", &[]),
            ("kube-x-y", &[]),
            ("1-x", &[]),
            ("", &[]),
        ] {
            let prefixes = prefixes_of(namespace);
            let prefixes: Vec<&str> = prefixes.iter().map(TenantName::as_str).collect();
            assert_eq!(prefixes, expected, "{namespace}");
        }
    }

    #[test]
    fn free_names_need_the_tenant_and_the_operator() {
        let strict = TenantSettings::default();
        let free = TenantSettings { free_names: true, ..TenantSettings::default() };
        let solar = name("solar");
        let check = |force, settings, name| check_namespace_name(&tenant(force), name, settings);
        assert_eq!(check(true, &strict, "solar-x"), Ok(()));
        assert_eq!(check(true, &free, "x"), Err(NamespaceNameError::Prefix(solar.clone())));
        assert_eq!(check(false, &strict, "x"), Err(NamespaceNameError::NoFreeNames(solar)));
        assert_eq!(check(false, &free, "x"), Ok(()));
    }

    #[test]
    fn names_of_the_broker_and_of_the_cluster_are_no_tenants() {
        let free = TenantSettings { free_names: true, ..TenantSettings::default() };
        let check = |name, settings| check_namespace_name(&tenant(false), name, settings);
        let solar = || name("solar");
        assert_eq!(check("tenant-lunar", &free), Err(NamespaceNameError::Reserved(solar())));
        assert_eq!(check("kube-system", &free), Err(NamespaceNameError::Protected(solar())));
        assert_eq!(check("default", &free), Err(NamespaceNameError::Protected(solar())));
        assert_eq!(check("a.b", &free), Err(NamespaceNameError::Malformed(solar())));
        let broken =
            TenantSettings { protected_names: "(".to_owned().into(), ..TenantSettings::default() };
        assert_eq!(check("solar-x", &broken), Err(NamespaceNameError::Protected(solar())));
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let refused = check_namespace_name(&tenant(true), "x", &TenantSettings::default());
        assert_eq!(
            refused.unwrap_err().to_string(),
            "namespace names of tenant solar begin with solar-; choose such a name"
        );
    }

    proptest! {
        #[test]
        fn a_name_belongs_to_a_tenant_of_which_it_is_a_label(
            tenant in "[a-z]{1,3}(-[a-z]{1,3})?",
            namespace in "[a-z]{1,3}(-[a-z]{1,3}){0,3}",
        ) {
            if let Ok(tenant) = tenant.parse::<TenantName>() {
                let is_name = is_namespace_name(&tenant, &namespace);
                prop_assert_eq!(is_name, namespace.starts_with(&format!("{tenant}-")));
                prop_assert_eq!(is_name, prefixes_of(&namespace).contains(&tenant));
            }
        }

        #[test]
        fn the_first_prefix_that_exists_is_the_longest(
            tenants in proptest::collection::vec("[a-z]{1,2}(-[a-z]{1,2})?", 0..4),
            namespace in "[a-z]{1,2}(-[a-z]{1,2}){0,3}",
        ) {
            let tenants: Vec<TenantName> =
                tenants.iter().filter_map(|tenant| tenant.parse().ok()).collect();
            let first = prefixes_of(&namespace).into_iter().find(|it| tenants.contains(it));
            prop_assert_eq!(first.as_ref(), longest_prefix(&tenants, &namespace));
        }

        #[test]
        fn names_of_homes_and_members_are_labels(text in "[a-z][-a-z0-9]{0,45}", user: u128) {
            if let Ok(tenant) = text.parse::<TenantName>() {
                prop_assert!(is_dns_label(&home_name(&tenant)));
            }
            prop_assert!(is_dns_label(&member_account_name(Uuid::from_u128(user))));
        }
    }
}
