//! Checks of the admission policies for tenants (`tenants.enabled`): dry runs of requests that RBAC
//! allows the broker and that the policies must refuse.

use http::Method;
use serde_json::{Value, json};
use tenant_shared::{
    HOME_LABEL, MANAGED_BY_LABEL, MANAGED_BY_VALUE, MEMBER_PREFIX, SERVICE_ACCOUNT_NAME,
    SUSPENDED_LABEL, TENANT_LABEL, TENANT_OWNER_ROLE, TIER_LABEL,
};

use super::{
    Check,
    policy_checks::{
        ForbiddenRequest, NAMESPACES, any_tier, try_allowed, try_forbidden, valid_level,
    },
};
use crate::{
    base::clock::Clock,
    cluster::{Cluster, ClusterError, POD_SECURITY, RBAC},
    install::Parameters,
    tenant::ClusterRoleName,
};

/// Name of a tenant that need not exist: the requests change nothing.
const TENANT: &str = "doctor";

/// Tries to create a namespace of a tenant, which must be allowed, and then requests that must be
/// refused. Those inside of a home and of a tenant's namespace need one that exists.
pub(super) async fn run(
    cluster: &Cluster,
    parameters: &Parameters,
    clock: &Clock,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    if !parameters.tenants.enabled {
        return Ok(());
    }
    let name = format!("{TENANT}-{}", clock.random_id());
    let title = "can create a namespace of a tenant with several people";
    checks.push(try_allowed(cluster, title, &namespace(parameters, TENANT, &name)).await?);
    let mut requests = Vec::from(on_namespaces(parameters));
    let home = cluster.some_namespace(&format!("{TENANT_LABEL},{HOME_LABEL}")).await?;
    requests.extend(home.map(|home| account_in_home(&home)));
    let selector = format!("{TENANT_LABEL},!{HOME_LABEL},!{SUSPENDED_LABEL}");
    if let Some(namespace) = cluster.some_namespace(&selector).await? {
        requests.extend(inside(parameters, &namespace));
    }
    for request in requests {
        checks.push(try_forbidden(cluster, request).await?);
    }
    Ok(())
}

/// A namespace with the labels that the broker gives those of tenants.
fn namespace(parameters: &Parameters, tenant: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {
            MANAGED_BY_LABEL: MANAGED_BY_VALUE, TENANT_LABEL: tenant,
            TIER_LABEL: any_tier(parameters), POD_SECURITY: valid_level(parameters),
        }},
    })
}

/// Requests that would take a name of others, or adopt a namespace of others for a tenant.
fn on_namespaces(parameters: &Parameters) -> [ForbiddenRequest; 4] {
    let create = |what, tenant: &str, name: &str| ForbiddenRequest {
        what,
        method: Method::POST,
        path: NAMESPACES.to_owned(),
        body: namespace(parameters, tenant, name),
    };
    [
        create("a namespace kube-* of a tenant", "kube", "kube-doctor"),
        create("a namespace tenant-* that is no home", TENANT, "tenant-other-doctor"),
        create("a namespace of a tenant whose name is reserved", "system", "system-doctor"),
        ForbiddenRequest {
            what: "the adoption of a foreign namespace for a tenant",
            method: Method::PATCH,
            path: format!("{NAMESPACES}/default"),
            body: json!({"metadata": {"labels": {TENANT_LABEL: TENANT}}}),
        },
    ]
}

/// A ServiceAccount in the home of a tenant that is no member's.
fn account_in_home(home: &str) -> ForbiddenRequest {
    ForbiddenRequest {
        what: "a ServiceAccount in a home of a tenant that is no member's",
        method: Method::POST,
        path: format!("{NAMESPACES}/{home}/serviceaccounts"),
        body: json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": SERVICE_ACCOUNT_NAME}}),
    }
}

/// Requests that would give more in the namespace of a tenant than a Tenant can.
fn inside(parameters: &Parameters, namespace: &str) -> [ForbiddenRequest; 3] {
    let bind = |what, role: &str, group: &str| ForbiddenRequest {
        what,
        method: Method::POST,
        path: format!("/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings"),
        body: json!({"apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding",
            "metadata": {"name": format!("tenant-{TENANT}-{role}")},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": group}]}),
    };
    let role = parameters.tenants.cluster_roles.first().map_or("view", ClusterRoleName::as_str);
    [
        // RBAC allows the broker to bind this role, because it does so in homes. RBAC itself refuses
        // cluster-admin, before any policy sees the request.
        bind("a binding of tenant-owner in a tenant's namespace", TENANT_OWNER_ROLE, TENANT),
        bind("a binding of everybody in a tenant's namespace", role, "system:authenticated"),
        ForbiddenRequest {
            what: "a ServiceAccount in a tenant's namespace",
            method: Method::POST,
            path: format!("{NAMESPACES}/{namespace}/serviceaccounts"),
            body: json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": format!("{MEMBER_PREFIX}{TENANT}")}}),
        },
    ]
}
