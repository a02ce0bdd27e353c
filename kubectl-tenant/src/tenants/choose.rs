//! Which of a person's tenants a namespace belongs to.

use std::cmp::Reverse;

use tenant_shared::TenantInfo;

use crate::{broker::Broker, error::Error};

/// Maximum number of tenants whose namespaces are read for suggestions.
const MAX_TENANTS: usize = 10;

/// The tenants that name the person or that they are a member of. An administrator sees others, too.
pub(crate) fn own_tenants(tenants: Vec<TenantInfo>) -> Vec<TenantInfo> {
    let is_own = |it: &TenantInfo| it.is_owner || it.workspace.is_some() || !it.roles.is_empty();
    tenants.into_iter().filter(is_own).collect()
}

/// Whether nobody has rights in a tenant of this state.
pub(crate) fn is_suspended(state: &str) -> bool {
    matches!(state, "Suspending" | "Suspended" | "Resuming")
}

/// The namespaces of a person's workspace and of their tenants, for suggestions. What cannot be read
/// is left out.
pub(crate) async fn namespaces_of_person(broker: &Broker) -> Vec<String> {
    let own = broker.own_workspaces().await.unwrap_or_default().items.into_iter();
    let mut names: Vec<String> =
        own.filter(|it| it.tenant.is_none()).map(|it| it.namespace).collect();
    let tenants = broker.tenants().await.unwrap_or_default().items;
    for tenant in own_tenants(tenants).into_iter().take(MAX_TENANTS) {
        let found = broker.tenant_namespaces(&tenant.name).await.unwrap_or_default();
        names.extend(found.items.into_iter().map(|it| it.name));
    }
    names
}

/// The length of a tenant's name, if the name of a namespace begins with it and a dash.
fn prefix_length(tenant: &str, namespace: &str) -> Option<usize> {
    let rest = namespace.strip_prefix(tenant)?.strip_prefix('-')?;
    (!rest.is_empty()).then_some(tenant.len())
}

/// The tenant of a new namespace: of those that the person owns the one with the longest name that
/// the namespace begins with, else the only one.
pub(super) fn tenant_for(tenants: Vec<TenantInfo>, namespace: &str) -> Result<String, Error> {
    let owned: Vec<String> =
        tenants.into_iter().filter(|it| it.is_owner).map(|it| it.name).collect();
    let by_prefix = owned.iter().max_by_key(|name| prefix_length(name, namespace));
    if let Some(name) = by_prefix.filter(|name| prefix_length(name, namespace).is_some()) {
        return Ok(name.clone());
    }
    match owned.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Error::refused("you own no tenant, and only owners make namespaces")
            .hint("your rights: kubectl tenant tenants; ask an owner or an administrator")),
        several => Err(Error::refused(format!(
            "you own several tenants ({}): name the namespace TENANT-NAME, or set --tenant",
            several.join(", ")
        ))),
    }
}

/// The tenant that has a namespace: the given one, or the one of the person's tenants that lists it.
pub(super) async fn tenant_of(
    broker: &Broker,
    namespace: &str,
    given: Option<&str>,
) -> Result<TenantInfo, Error> {
    if let Some(tenant) = given {
        return broker.tenant(tenant).await;
    }
    let mut tenants = own_tenants(broker.tenants().await?.items);
    // Most names begin with that of their tenant, which is therefore asked first.
    tenants.sort_by_key(|it| Reverse(prefix_length(&it.name, namespace)));
    for tenant in tenants {
        let found = broker.tenant_namespaces(&tenant.name).await?;
        if found.items.iter().any(|it| it.name == namespace) {
            return Ok(tenant);
        }
    }
    Err(Error::refused(format!("no tenant of yours has a namespace {namespace}"))
        .hint("list them: kubectl tenant namespaces"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str, is_owner: bool) -> TenantInfo {
        TenantInfo {
            name: name.to_owned(),
            api_group: "tenant-broker.io".to_owned(),
            state: "Active".to_owned(),
            is_owner,
            roles: Vec::new(),
            namespace_count: 0,
            namespace_quota: None,
            workspace: None,
            conditions: Vec::new(),
        }
    }

    fn chosen(tenants: &[(&str, bool)], namespace: &str) -> Result<String, String> {
        let tenants = tenants.iter().map(|(name, is_owner)| tenant(name, *is_owner)).collect();
        tenant_for(tenants, namespace).map_err(|error| error.message)
    }

    #[test]
    fn the_longest_owned_prefix_wins_and_then_the_only_tenant() {
        let owned = [("lunar", true), ("solar", true), ("solar-wind", true), ("mars", false)];
        for (namespace, expected) in [("solar-a", "solar"), ("solar-wind-a", "solar-wind")] {
            assert_eq!(chosen(&owned, namespace).as_deref(), Ok(expected));
        }
        let only = [("solar", true), ("mars", false)];
        for namespace in ["mars-a", "free", "solar-", "solar"] {
            assert_eq!(chosen(&only, namespace).as_deref(), Ok("solar"), "{namespace}");
        }
    }

    #[test]
    fn a_choice_that_is_not_clear_names_the_tenants() {
        let owned = [("lunar", true), ("solar", true)];
        for namespace in ["solar-", "solar", "other"] {
            assert_eq!(
                chosen(&owned, namespace).unwrap_err(),
                "you own several tenants (lunar, solar): name the namespace TENANT-NAME, or set \
                 --tenant"
            );
        }
        let none = chosen(&[("mars", false)], "mars-a").unwrap_err();
        assert!(none.starts_with("you own no tenant"), "{none}");
    }
}
