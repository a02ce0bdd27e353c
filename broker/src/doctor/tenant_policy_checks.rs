//! Checks of the admission policies for tenants (`tenants.enabled`): dry runs of requests that RBAC
//! allows the broker and that the policies must refuse.

use http::Method;
use serde_json::{Value, json};
use tenant_shared::{
    HOME_LABEL, MANAGED_BY_LABEL, MANAGED_BY_VALUE, MEMBER_PREFIX, NAME_PREFIX,
    SERVICE_ACCOUNT_NAME, SUSPENDED_LABEL, TENANT_LABEL, TENANT_OWNER_ROLE, TIER_LABEL,
};
use uuid::Uuid;

use super::{
    Check,
    policy_checks::{
        ForbiddenRequest, NAMESPACES, any_tier, try_allowed, try_forbidden, valid_level,
    },
};
use crate::{
    base::clock::Clock,
    cluster::{Cluster, ClusterError, POD_SECURITY, RBAC},
    install::{Parameters, ROLE_NAME},
    tenant::{ApiGroup, ClusterRoleName, member_account_name},
};

/// Name of a tenant that need not exist: the requests change nothing.
const TENANT: &str = "doctor";

/// A namespace that exists, and the tenant of its label.
struct Sample {
    namespace: String,
    tenant: String,
}

/// Tries to create a namespace of a tenant, which must be allowed, and then requests that must be
/// refused. Those inside of a home and of a tenant's namespace, and changes of its labels, need one
/// that exists.
///
/// A token of anybody but a member is not tried: a TokenRequest has no dry run.
pub(super) async fn run(
    cluster: &Cluster,
    parameters: &Parameters,
    clock: &Clock,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    if !parameters.tenants.enabled {
        return Ok(());
    }
    let id = clock.random_id();
    // No tenant has a name as long as this.
    let nobody = format!("{TENANT}-{id}");
    let title = "can create a namespace of a tenant with several people";
    checks.push(try_allowed(cluster, title, &namespace(parameters, TENANT, &nobody)).await?);
    let mut requests = Vec::from(on_namespaces(parameters));
    let home = sample(cluster, &format!("{TENANT_LABEL},{HOME_LABEL}")).await?;
    requests.extend(home.map(|home| account_in_home(&home.namespace)));
    let selector = format!("{TENANT_LABEL},!{HOME_LABEL},!{SUSPENDED_LABEL}");
    if let Some(sample) = sample(cluster, &selector).await? {
        requests.extend(changes_of_tenant(&sample.namespace, &nobody));
        requests.extend(inside(parameters, &sample, &nobody, id));
    }
    // In one without this label, or with privileged, they would change nothing.
    let selector = format!("{selector},{POD_SECURITY} in (baseline,restricted)");
    if let Some(sample) = sample(cluster, &selector).await? {
        requests.extend(changes_of_pod_security(&sample.namespace));
    }
    if parameters.tenants.write {
        requests.extend(tenants());
    }
    for request in requests {
        checks.push(try_forbidden(cluster, request).await?);
    }
    Ok(())
}

/// Any namespace with these labels.
async fn sample(cluster: &Cluster, selector: &str) -> Result<Option<Sample>, ClusterError> {
    let Some(metadata) = cluster.some_namespace(selector).await? else {
        return Ok(None);
    };
    let tenant = metadata.labels.unwrap_or_default().remove(TENANT_LABEL).unwrap_or_default();
    Ok(metadata.name.map(|namespace| Sample { namespace, tenant }))
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
        change_label(
            "the adoption of a foreign namespace for a tenant",
            "default",
            TENANT_LABEL,
            Some(TENANT),
        ),
    ]
}

/// The change of a label of a namespace; none: its removal.
fn change_label(
    what: &'static str,
    namespace: &str,
    label: &str,
    value: Option<&str>,
) -> ForbiddenRequest {
    ForbiddenRequest {
        what,
        method: Method::PATCH,
        path: format!("{NAMESPACES}/{namespace}"),
        body: json!({"metadata": {"labels": {label: value}}}),
    }
}

/// Requests that would give the namespace of a tenant to another one, or make a home of it, whose
/// owners decide over the tenant.
fn changes_of_tenant(namespace: &str, other: &str) -> [ForbiddenRequest; 2] {
    let change = |what, label, value| change_label(what, namespace, label, Some(value));
    [
        change("the move of a tenant's namespace to another tenant", TENANT_LABEL, other),
        change("a home made of a tenant's namespace", HOME_LABEL, "true"),
    ]
}

/// Requests that would let privileged pods run in the namespace of a tenant.
fn changes_of_pod_security(namespace: &str) -> [ForbiddenRequest; 2] {
    let change = |what, value| change_label(what, namespace, POD_SECURITY, value);
    [
        change("weaker pod security of a tenant's namespace", Some("privileged")),
        change("a tenant's namespace without pod security", None),
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
fn inside(
    parameters: &Parameters,
    Sample { namespace, tenant }: &Sample,
    other: &str,
    id: Uuid,
) -> [ForbiddenRequest; 5] {
    // But for what each is about, the bindings are as the broker makes them.
    let bind = |what, role: &str, subject: &Value| ForbiddenRequest {
        what,
        method: Method::POST,
        path: format!("/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings"),
        body: json!({"apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding",
            "metadata": {"name": format!("{NAME_PREFIX}{tenant}-{role}"),
                "labels": {TENANT_LABEL: tenant}},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [subject]}),
    };
    let group = |name: &str| json!({"apiGroup": RBAC, "kind": "Group", "name": name});
    let member = json!({"kind": "ServiceAccount", "name": member_account_name(id),
        "namespace": format!("{NAME_PREFIX}{other}")});
    let role = parameters.tenants.cluster_roles.first().map_or("view", ClusterRoleName::as_str);
    [
        // RBAC allows the broker to bind these roles: the first because it does so in homes, the second
        // because it has all of its permissions. RBAC itself refuses cluster-admin, before any policy
        // sees the request.
        bind(
            "a binding of tenant-owner in a tenant's namespace",
            TENANT_OWNER_ROLE,
            &group(TENANT),
        ),
        bind(
            "a binding of the broker's own role in a tenant's namespace",
            ROLE_NAME,
            &group(TENANT),
        ),
        bind(
            "a binding of everybody in a tenant's namespace",
            role,
            &group("system:authenticated"),
        ),
        bind("a binding of a member of another tenant", role, &member),
        ForbiddenRequest {
            what: "a ServiceAccount in a tenant's namespace",
            method: Method::POST,
            path: format!("{NAMESPACES}/{namespace}/serviceaccounts"),
            body: json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": format!("{MEMBER_PREFIX}{TENANT}")}}),
        },
    ]
}

/// Tenants with metadata that no administrator can ask the broker for (`tenants.write`). They are
/// valid, because the API server looks at that before any policy sees the request.
fn tenants() -> [ForbiddenRequest; 2] {
    let group = ApiGroup::TenantBroker;
    let api_version = format!("{}/{}", group.name(), group.version());
    let create = |what, field: &str, value: &Value| ForbiddenRequest {
        what,
        method: Method::POST,
        path: format!("/apis/{api_version}/tenants"),
        body: json!({"apiVersion": api_version, "kind": "Tenant",
            "metadata": {"name": TENANT, field: value},
            "spec": {"owners": [{"kind": "User", "name": TENANT}]}}),
    };
    [
        create("a Tenant with a finalizer", "finalizers", &json!(["tenant-broker.io/doctor"])),
        create("a Tenant with labels", "labels", &json!({"team": "doctor"})),
    ]
}
