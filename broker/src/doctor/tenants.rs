//! What the tenants have: through their roles, in their namespaces.

use k8s_openapi::api::core::v1::ResourceQuota;

use super::Check;
use crate::{
    cluster::{Cluster, ClusterError, HeldBinding},
    install::Parameters,
    tier_role::{self, Seen},
    workspace::QUOTA_NAME,
};

/// Names that one detail shows at most.
const MAX_NAMED: usize = 5;
/// What a quota of an earlier version of the broker has not.
const NEWER_KEY: &str = "limits.cpu";

/// Looks at each tier's ClusterRole.
pub(super) async fn roles(
    cluster: &Cluster,
    parameters: &Parameters,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    for role in &parameters.roles {
        let seen = tier_role::look(cluster, role).await?;
        match &seen {
            Seen::Missing => {
                let title = format!("the tiers' role {role} is there");
                checks.push(Check::failed(title, "there is no such ClusterRole: make it"));
            }
            Seen::Refused => checks.push(Check::failed(
                format!("the tiers' role {role} can be read"),
                "the broker may not: run tenant-broker install --apply",
            )),
            Seen::Gives(all) => {
                let detail = match all.as_slice() {
                    [] => "it gives no more".to_owned(),
                    all => format!("it gives besides {}", tier_role::named(all)),
                };
                let title = format!("the tiers' role {role} was compared with the built-in admin");
                checks.push(Check::passed(title, detail));
                let title = format!("the tiers' role {role} does not lead out of the namespace");
                let out = seen.leading_out();
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

/// Looks for bindings that somebody could hold on to, before a suspension has to delete them.
pub(super) async fn bindings(
    cluster: &Cluster,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    let held = cluster.held_bindings().await?;
    let title = "no RoleBinding of a tenant has finalizers or owners";
    checks.push(if held.is_empty() {
        Check::passed(title, "")
    } else {
        let names: Vec<String> = held
            .iter()
            .take(MAX_NAMED)
            .map(|HeldBinding { namespace, name }| format!("{namespace}/{name}"))
            .collect();
        Check::warned(
            title,
            format!(
                "{} have, {} among them: a suspension has to take these off first, and RBAC grants \
                 through a binding as long as it is there; kubectl patch rolebinding NAME --type=merge \
                 -p '{{\"metadata\":{{\"finalizers\":null,\"ownerReferences\":null}}}}'",
                held.len(),
                names.join(", ")
            ),
        )
    });
    Ok(())
}

/// Looks for quotas that an earlier version of the broker made.
pub(super) async fn quotas(cluster: &Cluster, checks: &mut Vec<Check>) -> Result<(), ClusterError> {
    let mut older = 0_u32;
    cluster
        .survey(|quota: ResourceQuota| {
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
                "{older} are of an earlier version: no limits.cpu, and nothing counts Services, \
                 Deployments, Jobs and more; kubectl delete limitrange tenant-limits and then resourcequota \
                 {QUOTA_NAME} of such a namespace, and the broker makes them anew"
            ),
        )
    });
    Ok(())
}

/// With a rule for hosts, looks for namespaces that it passes over.
pub(super) async fn tier_labels(
    cluster: &Cluster,
    parameters: &Parameters,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    if parameters.host_suffixes.iter().all(|(_, suffix)| suffix.is_none()) {
        return Ok(());
    }
    let without = cluster.namespaces_without_tier().await?;
    let title = "ingress_host_suffix holds every namespace of a tenant";
    checks.push(Check::when(
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
