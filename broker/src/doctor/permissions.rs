//! Checks of RBAC: the broker has every permission that it needs, and no dangerous one.

use super::Check;
use crate::{
    cluster::{AccessReview, Cluster, ClusterError, RBAC},
    install::{self, Parameters},
    tenant::ApiGroup,
};

const ADMISSION: &str = "admissionregistration.k8s.io";

/// Checks every permission of the ClusterRole (`SelfSubjectAccessReview`).
pub(super) async fn needed(
    cluster: &Cluster,
    parameters: &Parameters,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    for permission in parameters.permissions() {
        let review = AccessReview {
            verb: permission.verb,
            group: permission.group,
            resource: permission.resource,
            name: &permission.name,
            namespace: "",
        };
        let may = cluster.is_allowed(review).await?;
        let name = if permission.name.is_empty() { "" } else { &format!(" {}", permission.name) };
        checks.push(Check::expect(
            may,
            format!("may {} {}{name}", permission.verb, permission.resource),
            "missing: run tenant-broker install --apply",
        ));
    }
    let title = "has no right on Secrets that it does not need";
    if !parameters.bind_tokens {
        checks.push(if install::unneeded_permission(cluster, parameters).await? {
            Check::warned(
                title,
                "cluster.bind_tokens_to_secrets is off: two hours after it was switched off run \
                 tenant-broker install --apply",
            )
        } else {
            Check::passed(title, "")
        });
    }
    Ok(())
}

/// A permission: verb, group, resource, namespace, name.
type Named = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// Permissions that the broker must not have.
const FORBIDDEN: [Named; 26] = [
    ("*", "*", "*", "", ""),
    ("get", "", "secrets", "", ""),
    ("list", "", "secrets", "", ""),
    ("get", "", "secrets", "kube-system", ""),
    ("watch", "", "secrets", "", ""),
    ("update", "", "secrets", "", ""),
    ("deletecollection", "", "secrets", "", ""),
    ("get", "", "pods", "", ""),
    ("create", "", "pods", "", ""),
    ("create", "", "pods/exec", "", ""),
    ("get", "apps", "deployments", "", ""),
    ("create", "apps", "deployments", "", ""),
    ("delete", "", "namespaces", "", ""),
    ("update", "", "namespaces", "", ""),
    ("update", "", "namespaces/finalize", "", ""),
    ("create", RBAC, "clusterrolebindings", "", ""),
    ("create", RBAC, "clusterroles", "", ""),
    ("create", RBAC, "roles", "", ""),
    ("update", RBAC, "clusterroles", "", "tenant-broker"),
    ("escalate", RBAC, "clusterroles", "", ""),
    ("bind", RBAC, "clusterroles", "", "cluster-admin"),
    ("impersonate", "", "users", "", ""),
    ("impersonate", "", "serviceaccounts", "", ""),
    ("delete", ADMISSION, "validatingadmissionpolicies", "", ""),
    ("update", ADMISSION, "validatingadmissionpolicybindings", "", ""),
    ("approve", "certificates.k8s.io", "signers", "", ""),
];

/// Permissions that it must not have without tenants. The names of members' ServiceAccounts are not
/// known before, so that only the admission policies limit these with tenants.
const FORBIDDEN_WITHOUT_TENANTS: [Named; 3] = [
    ("create", "", "serviceaccounts/token", "", ""),
    ("create", "", "serviceaccounts/token", "kube-system", "default"),
    ("delete", "", "serviceaccounts", "", ""),
];

/// Verbs on Tenants that the broker must not have, because a Tenant says who owns what. With
/// `tenants.write` it has some of them, on those of its own group.
const FORBIDDEN_ON_TENANTS: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// Checks that the broker has none of the [`FORBIDDEN`] permissions, nor of
/// [`FORBIDDEN_WITHOUT_TENANTS`] and [`FORBIDDEN_ON_TENANTS`].
pub(super) async fn forbidden(
    cluster: &Cluster,
    parameters: &Parameters,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    let without_tenants: &[Named] =
        if parameters.tenants.enabled { &[] } else { &FORBIDDEN_WITHOUT_TENANTS };
    let may_write = parameters.tenants.enabled && parameters.tenants.write;
    let groups = ApiGroup::ALL.into_iter();
    let groups = groups.filter(|group| !may_write || *group != ApiGroup::TenantBroker);
    let on_tenants = groups
        .flat_map(|group| FORBIDDEN_ON_TENANTS.map(|verb| (verb, group.name(), "tenants", "", "")));
    let all = FORBIDDEN.iter().chain(without_tenants).copied().chain(on_tenants);
    for (verb, group, resource, namespace, name) in all {
        let may =
            cluster.is_allowed(AccessReview { verb, group, resource, namespace, name }).await?;
        let title = match (verb, namespace, name) {
            ("*", ..) => "is not cluster-admin".to_owned(),
            (_, "", "") if resource == "tenants" => format!("may not {verb} {resource}.{group}"),
            (_, "", "") => format!("may not {verb} {resource}"),
            (_, "", name) => format!("may not {verb} {resource} {name}"),
            (_, namespace, "") => format!("may not {verb} {resource} in {namespace}"),
            (_, namespace, name) => format!("may not {verb} {resource} {name} in {namespace}"),
        };
        checks.push(Check::expect(
            !may,
            title,
            "it may: somebody bound more to it than tenant-broker install does; \
             kubectl get clusterrolebindings,rolebindings -A -o wide",
        ));
    }
    Ok(())
}
