//! Checks of Tenants: their definition, namespaces with the label of one that does not exist, and
//! RoleBindings of others with that label.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::{core::v1::Namespace, rbac::v1::RoleBinding},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use tenant_shared::{NAME_PREFIX, TENANT_LABEL, WORKSPACE_LABEL};

use super::{Check, tenants::MAX_NAMED};
use crate::{
    base::error_chain,
    cluster::{BrokerRead, Cluster, ClusterError, DefinitionState, ReadClient, RequiredLabels},
    install::Parameters,
    tenant::{ApiGroup, ProtectedPattern, TenantName, role_binding_name},
};

/// A label that no node has.
const NO_NODE: &str = "tenant-broker.io/doctor";

/// Checks that the API server serves the definition of Tenants.
pub(super) async fn definition(
    cluster: &Cluster,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    let title = "the API server serves the definition of Tenants";
    let state = match cluster.definition_state(&ApiGroup::TenantBroker.resource()).await {
        // The missing permission is a failed check of its own.
        Err(ClusterError::Refused(_)) => return Ok(()),
        state => state?,
    };
    checks.push(match state {
        DefinitionState::Served => Check::passed(title, ""),
        DefinitionState::NotServed => {
            Check::failed(title, "nothing of Tenants is changed: run tenant-broker install --apply")
        }
        DefinitionState::Terminating => Check::failed(
            title,
            "it is being deleted with all Tenants: everybody keeps their rights until it is served \
             again; restore it with its objects from a backup",
        ),
    });
    Ok(())
}

/// Lists each resource of `tenants.cluster_lists` as the gateway does for members.
pub(super) async fn lists(cluster: &Cluster, parameters: &Parameters, checks: &mut Vec<Check>) {
    let nodes = BTreeSet::from([RequiredLabels::from([(NO_NODE.to_owned(), String::new())])]);
    for list in &parameters.tenants.cluster_lists {
        let title = format!("the gateway can list {list} for members of tenants");
        let read = match BrokerRead::cluster_list(*list, &nodes, "limit=1", false) {
            Ok(read) => read,
            Err(error) => {
                checks.push(Check::failed(title, error_chain(&error)));
                continue;
            }
        };
        let client = ReadClient { accept: None, request_id: "doctor", address: None };
        checks.push(match cluster.read_as_broker(&read, client).await {
            Ok(response) if response.status().is_success() => Check::passed(title, ""),
            Ok(response) => Check::failed(
                title,
                format!("{}: run tenant-broker install --apply", response.status()),
            ),
            Err(error) => Check::failed(title, error_chain(&error)),
        });
    }
}

/// Finds namespaces with the label of a Tenant that does not exist: those that were kept when their
/// Tenant was deleted, and those that somebody made with a stolen credential of the broker. Also those
/// whose names the operator protected later.
pub(super) async fn labels(
    cluster: &Cluster,
    parameters: &Parameters,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    let mut namespaces: BTreeMap<String, String> = BTreeMap::new();
    cluster
        .list_metadata_of_tenants::<Namespace>(|metadata| {
            let labels = metadata.labels.unwrap_or_default();
            let is_workspace = labels.contains_key(WORKSPACE_LABEL);
            let tenant = labels.get(TENANT_LABEL).filter(|_| !is_workspace);
            if let (Some(name), Some(tenant)) = (metadata.name, tenant) {
                namespaces.insert(name, tenant.clone());
            }
        })
        .await?;
    checks.push(protected_names_check(&namespaces, &parameters.tenants.protected_names));
    // After the namespaces, because the home of a Tenant is made after the Tenant.
    let mut tenants = BTreeSet::new();
    for group in ApiGroup::ALL {
        match cluster.custom_names(&group.resource()).await? {
            Some(names) => tenants.extend(names),
            // Another check says so, and without names every namespace would be reported.
            None if group == ApiGroup::TenantBroker => return Ok(()),
            None => {}
        }
    }
    checks.push(label_check(&namespaces, &tenants));
    Ok(())
}

/// Finds RoleBindings with the label of a tenant that the broker did not make: they make its lists
/// longer. The policy `tenant-guard-labels` refuses new ones.
pub(super) async fn labelled_bindings(
    cluster: &Cluster,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    let mut others: BTreeMap<String, usize> = BTreeMap::new();
    cluster
        .list_metadata_of_tenants::<RoleBinding>(|metadata| {
            if !is_of_broker(&metadata) {
                *others.entry(metadata.namespace.unwrap_or_default()).or_default() += 1;
            }
        })
        .await?;
    checks.push(labelled_bindings_check(&others));
    Ok(())
}

/// Whether a RoleBinding has the name that the broker gives one of the tenant of its label.
fn is_of_broker(binding: &ObjectMeta) -> bool {
    let name = binding.name.as_deref().unwrap_or_default();
    TenantName::of_object(binding)
        .is_some_and(|tenant| name.starts_with(&role_binding_name(&tenant, "")))
}

fn labelled_bindings_check(others: &BTreeMap<String, usize>) -> Check {
    let title = "only the broker's RoleBindings have the label of a tenant";
    if others.is_empty() {
        return Check::passed(title, "");
    }
    let named: Vec<&str> = others.keys().map(String::as_str).take(MAX_NAMED).collect();
    Check::warned(
        title,
        format!(
            "{} others have it, in namespaces {}: they slow down what the broker does for the \
             tenant; remove the label {TENANT_LABEL} from them",
            others.values().sum::<usize>(),
            named.join(", ")
        ),
    )
}

fn label_check(namespaces: &BTreeMap<String, String>, tenants: &BTreeSet<String>) -> Check {
    let title = "the Tenant of every namespace with the label of one exists";
    let without: Vec<&str> = namespaces
        .iter()
        .filter(|(_, tenant)| !tenants.contains(*tenant))
        .map(|(name, _)| name.as_str())
        .collect();
    if without.is_empty() {
        return Check::passed(title, "");
    }
    let named: Vec<&str> = without.iter().copied().take(MAX_NAMED).collect();
    Check::warned(
        title,
        format!(
            "{} have the label of a Tenant that does not exist, {} among them: they were kept when \
             their Tenant was deleted, as every home tenant-NAME is, or somebody made them with a \
             stolen credential of the broker. Nobody has rights in them by the broker; delete those that nobody needs, or \
             remove the label {TENANT_LABEL}",
            without.len(),
            named.join(", ")
        ),
    )
}

fn protected_names_check(
    namespaces: &BTreeMap<String, String>,
    expression: &ProtectedPattern,
) -> Check {
    let title = "no namespace of a tenant has a protected name";
    // Homes have names of the broker.
    let protected: Vec<&str> = namespaces
        .keys()
        .map(String::as_str)
        .filter(|name| !name.starts_with(NAME_PREFIX) && expression.matches(name))
        .collect();
    if protected.is_empty() {
        return Check::passed(title, "");
    }
    let named: Vec<&str> = protected.iter().copied().take(MAX_NAMED).collect();
    Check::warned(
        title,
        format!(
            "{} have one (tenants.protected_names), {} among them: the broker can only take rights \
             away in them, so changes of the Tenant fail there; remove the label {TENANT_LABEL}, or \
             leave the name out of the expression",
            protected.len(),
            named.join(", ")
        ),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::CheckOutcome;

    #[test]
    fn bindings_with_the_label_under_other_names_are_counted() {
        let is_ours = |name: &str, tenant: &str| {
            let labels = json!({TENANT_LABEL: tenant});
            let metadata = json!({"name": name, "namespace": "solar-a", "labels": labels});
            is_of_broker(&serde_json::from_value(metadata).unwrap())
        };
        assert!(is_ours("tenant-solar-admin", "solar"));
        for (name, tenant) in [("own", "solar"), ("tenant-solar-admin", "lunar"), ("own", "")] {
            assert!(!is_ours(name, tenant), "{name}");
        }
        assert_eq!(labelled_bindings_check(&BTreeMap::new()).outcome, CheckOutcome::Pass);
        let check = labelled_bindings_check(&[("a".to_owned(), 2), ("b".to_owned(), 1)].into());
        assert_eq!(check.outcome, CheckOutcome::Warn);
        assert!(
            check.detail.starts_with("3 others have it, in namespaces a, b"),
            "{}",
            check.detail
        );
    }

    #[test]
    fn namespaces_with_protected_names_are_named() {
        let namespaces = ["solar-a", "solar-db", "tenant-solar"];
        let namespaces: BTreeMap<String, String> =
            namespaces.map(|name| (name.to_owned(), "solar".to_owned())).into();
        let check = |names: &str| protected_names_check(&namespaces, &names.to_owned().into());
        assert_eq!(check("^(tenant-.*|kube-.*)$").outcome, CheckOutcome::Pass);
        let check = check("-db$");
        assert_eq!(check.outcome, CheckOutcome::Warn);
        assert!(check.detail.contains(", solar-db among them"), "{}", check.detail);
    }

    #[test]
    fn namespaces_without_a_tenant_are_named() {
        let of = |names: &[(&str, &str)]| -> BTreeMap<String, String> {
            let pairs = names.iter();
            pairs.map(|(name, tenant)| ((*name).to_owned(), (*tenant).to_owned())).collect()
        };
        let tenants = BTreeSet::from(["solar".to_owned()]);
        let known = of(&[("solar-a", "solar"), ("tenant-solar", "solar")]);
        assert_eq!(label_check(&known, &tenants).outcome, CheckOutcome::Pass);
        let ghost = of(&[("solar-a", "solar"), ("ghost-a", "ghost"), ("tenant-ghost", "ghost")]);
        let check = label_check(&ghost, &tenants);
        assert_eq!(check.outcome, CheckOutcome::Warn);
        let detail = check.detail;
        assert!(detail.starts_with("2 have the label"), "{detail}");
        assert!(detail.contains("ghost-a, tenant-ghost among them"), "{detail}");
    }
}
