//! Checks of the tenants: their roles, and the objects in their namespaces.

use k8s_openapi::api::core::v1::ResourceQuota;

use super::Check;
use crate::{
    cluster::{BindingWithFinalizers, Cluster, ClusterError},
    install::Parameters,
    tier_role::{self, RoleReport},
    workspace::QUOTA_NAME,
};

/// Limit of names in one detail.
pub(super) const MAX_NAMED: usize = 5;
/// A key that quotas of earlier versions of the broker lack.
const NEWER_KEY: &str = "limits.cpu";

/// Checks the permissions of each tier's ClusterRole.
pub(super) async fn roles(
    cluster: &Cluster,
    parameters: &Parameters,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    for role in &parameters.roles {
        let report = tier_role::inspect(cluster, role).await?;
        match &report {
            RoleReport::Missing => {
                let title = format!("the tiers' role {role} exists");
                checks.push(Check::failed(title, "there is no such ClusterRole: create it"));
            }
            RoleReport::Refused => checks.push(Check::failed(
                format!("the tiers' role {role} can be read"),
                "the broker may not: run tenant-broker install --apply",
            )),
            RoleReport::Grants(all) => {
                let detail = match all.as_slice() {
                    [] => "it grants no further permission".to_owned(),
                    all => format!("it also grants {}", tier_role::summary(all)),
                };
                let title = format!("the tiers' role {role} was compared with the built-in admin");
                checks.push(Check::passed(title, detail));
                let title =
                    format!("the tiers' role {role} grants no known escape from the namespace");
                let out = report.escapes();
                if out.is_empty() {
                    checks.push(Check::passed(title.clone(), ""));
                }
                checks.extend(out.into_iter().map(|(right, why)| {
                    Check::warned(
                        title.clone(),
                        format!(
                            "{right}: {why}; give the tier a ClusterRole of its own, without \
                             aggregationRule"
                        ),
                    )
                }));
            }
        }
    }
    Ok(())
}

/// Finds bindings with finalizers or owners, which would delay their deletion by a suspension.
pub(super) async fn bindings(
    cluster: &Cluster,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    let held = cluster.bindings_with_finalizers().await?;
    let title = "no RoleBinding of a tenant has finalizers or owners";
    checks.push(if held.is_empty() {
        Check::passed(title, "")
    } else {
        let names: Vec<String> = held
            .iter()
            .take(MAX_NAMED)
            .map(|BindingWithFinalizers { namespace, name }| format!("{namespace}/{name}"))
            .collect();
        Check::warned(
            title,
            format!(
                "{} have, {} among them: a suspension has to remove these first, and RBAC grants \
                 through a binding as long as it exists; kubectl patch rolebinding NAME --type=merge \
                 -p '{{\"metadata\":{{\"finalizers\":null,\"ownerReferences\":null}}}}'",
                held.len(),
                names.join(", ")
            ),
        )
    });
    Ok(())
}

/// Counts quotas of earlier versions of the broker.
pub(super) async fn quotas(cluster: &Cluster, checks: &mut Vec<Check>) -> Result<(), ClusterError> {
    let mut older = 0_u32;
    cluster
        .list_managed(|quota: ResourceQuota| {
            let hard = quota.spec.and_then(|spec| spec.hard).unwrap_or_default();
            let is_ours = quota.metadata.name.as_deref() == Some(QUOTA_NAME);
            older += u32::from(is_ours && !hard.contains_key(NEWER_KEY));
        })
        .await?;
    let title = "the quotas count everything that is shared";
    checks.push(if older == 0 {
        Check::passed(title, "")
    } else {
        Check::warned(
            title,
            format!(
                "{older} are of an earlier version: without limits.cpu and counts of Services, \
                 Deployments, Jobs and more; suspend such a workspace, kubectl delete its limitrange \
                 tenant-limits and its resourcequota {QUOTA_NAME}, and resume it: the broker recreates them"
            ),
        )
    });
    Ok(())
}

/// If a tier has `ingress_host_suffix` or `network_policy`, finds namespaces without a tier label, to
/// which these do not apply, or apply whatever the tier.
pub(super) async fn tier_labels(
    cluster: &Cluster,
    parameters: &Parameters,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    if parameters.host_suffixes.iter().all(|(_, suffix)| suffix.is_none())
        && parameters.network_policy_tiers.is_empty()
    {
        return Ok(());
    }
    let without = cluster.namespaces_without_tier().await?;
    let title = "every namespace of a tenant has the label of its tier";
    checks.push(Check::expect(
        without.is_empty(),
        title,
        format!(
            "{} have no label of their tier, such as {}: they were made by an earlier version; \
             kubectl label namespace NAME {}=TIER",
            without.len(),
            without.first().map_or("", String::as_str),
            tenant_shared::TIER_LABEL
        ),
    ));
    Ok(())
}
