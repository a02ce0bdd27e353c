//! Checks of what model services need in the cluster.

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::ResourceExt as _;

use super::{Check, tenants::MAX_NAMED};
use crate::{
    base::error_chain,
    cluster::{Cluster, ClusterError},
    install::{self, Parameters},
};

/// Checks that Kubernetes added the rules of the ClusterRoles of `install --model-services` to the
/// roles of the tiers, because what counts for people is what these grant.
pub(super) async fn rights(
    cluster: &Cluster,
    parameters: &Parameters,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    for name in &parameters.roles {
        let role = match cluster.get_opt::<ClusterRole>(name).await {
            Ok(Some(role)) => role,
            // Other checks say so.
            Ok(None) | Err(ClusterError::Refused(_)) => continue,
            Err(error) => return Err(error),
        };
        let title = format!("the tiers' role {name} has the rights of model services");
        let missing = install::missing_model_rights(&role.rules.unwrap_or_default());
        checks.push(if missing.is_empty() {
            Check::passed(title, "")
        } else {
            let named = missing.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>();
            Check::warned(
                title,
                format!(
                    "it lacks {} of them, {} among them, so model services answer 403: run \
                     tenant-broker install --apply --model-services, or add the rules to a role \
                     without aggregationRule",
                    missing.len(),
                    named.join(", ")
                ),
            )
        });
    }
    Ok(())
}

/// Checks that the ClusterRoles of `install --model-services` are unchanged. If there is none of them,
/// an operator gave people the rights in another way.
pub(super) async fn roles(cluster: &Cluster, checks: &mut Vec<Check>) -> Result<(), ClusterError> {
    let mut found = Vec::new();
    for desired in install::desired_model_roles() {
        match cluster.get_opt::<ClusterRole>(&desired.name_any()).await {
            Ok(role) => found.push((desired, role)),
            // The check of the broker's rights says so.
            Err(ClusterError::Refused(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    if found.iter().all(|(_, role)| role.is_none()) {
        return Ok(());
    }
    let repair = "tenant-broker install --diff --model-services shows it, --apply restores it";
    checks.extend(found.into_iter().map(|(desired, role)| {
        let title = format!("the ClusterRole {} gives people their rights", desired.name_any());
        match role {
            Some(role) if install::grants_the_same(&desired, &role) => Check::passed(title, ""),
            Some(_) => Check::warned(
                title,
                format!(
                    "its rules, or the labels that add them to the roles view, edit and admin, are \
                     not as this version makes them: {repair}"
                ),
            ),
            None => Check::warned(title, format!("it is missing: {repair}")),
        }
    }));
    Ok(())
}

/// Reads the domain of the cluster's routes as model services do.
pub(super) async fn domain(cluster: &Cluster, checks: &mut Vec<Check>) {
    let title = "the cluster names the domain of its routes";
    checks.push(match cluster.ingress_domain().await {
        Ok(Some(domain)) => Check::passed(title, domain),
        Ok(None) => Check::failed(
            title,
            "ingresses.config.openshift.io has no object cluster with a domain: set \
             model_services.cluster_domain to the domain, or leave it empty",
        ),
        Err(ClusterError::Refused(_)) => {
            Check::failed(title, "the broker may not read it: run tenant-broker install --apply")
        }
        Err(error) => Check::failed(title, error_chain(&error)),
    });
}
