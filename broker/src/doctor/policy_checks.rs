//! Checks of the admission policies: requests that RBAC allows the broker and that the policies
//! must refuse. They are sent to the API server as dry runs.

use http::Method;
use serde_json::{Value, json};
use tenant_shared::{
    MANAGED_BY_LABEL, MANAGED_BY_VALUE, ROLE_BINDING_NAME, SERVICE_ACCOUNT_NAME, TIER_LABEL,
    TOKEN_SECRET_PREFIX, WORKSPACE_LABEL, tenant_namespace,
};
use uuid::Uuid;

use super::Check;
use crate::{
    base::clock::Clock,
    cluster::{Cluster, ClusterError, DryRunResult, POD_SECURITY, RBAC},
    install::Parameters,
    workspace::QUOTA_NAME,
};

pub(super) const NAMESPACES: &str = "/api/v1/namespaces";

/// A request that must be refused.
pub(super) struct ForbiddenRequest {
    pub(super) what: &'static str,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Value,
}

/// Tries to create a tenant's namespace, which must be allowed, and then requests that must be
/// refused.
pub(super) async fn run(
    cluster: &Cluster,
    parameters: &Parameters,
    clock: &Clock,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    let id = clock.random_id();
    let namespace = valid_namespace(parameters, id);
    checks.push(try_allowed(cluster, "can create a tenant's namespace", &namespace).await?);
    for request in forbidden_requests(parameters, id) {
        checks.push(try_forbidden(cluster, request).await?);
    }
    Ok(())
}

/// Checks that the broker can create this namespace.
pub(super) async fn try_allowed(
    cluster: &Cluster,
    title: &'static str,
    namespace: &Value,
) -> Result<Check, ClusterError> {
    Ok(match cluster.dry_run(Method::POST, NAMESPACES, namespace).await? {
        DryRunResult::Allowed => Check::passed(title, ""),
        DryRunResult::Refused(why) | DryRunResult::Inconclusive(why) => Check::failed(title, why),
    })
}

/// Checks that a request is refused.
pub(super) async fn try_forbidden(
    cluster: &Cluster,
    request: ForbiddenRequest,
) -> Result<Check, ClusterError> {
    let ForbiddenRequest { what, method, path, body } = request;
    let title = format!("is refused: {what}");
    Ok(match cluster.dry_run(method, &path, &body).await? {
        DryRunResult::Refused(_) => Check::passed(title, ""),
        DryRunResult::Allowed => Check::failed(
            title,
            "it is not: the policy is missing, weakened, or for another name than the \
             broker's; run tenant-broker install --apply",
        ),
        DryRunResult::Inconclusive(why) => {
            Check::warned(title, format!("could not be tried: {why}"))
        }
    })
}

/// All requests that must be refused.
fn forbidden_requests(parameters: &Parameters, id: Uuid) -> Vec<ForbiddenRequest> {
    const FOREIGN: [&str; 2] = ["kube-system", "default"];
    let mut requests = Vec::from(on_namespaces(parameters, id));
    requests.extend(FOREIGN.into_iter().flat_map(|namespace| outside(parameters, namespace)));
    if parameters.bind_tokens {
        requests.extend(FOREIGN.map(|namespace| secret(namespace, &id.to_string())));
    }
    requests
}

/// A Pod Security level that a tier enforces.
pub(super) fn valid_level(parameters: &Parameters) -> &str {
    parameters.pod_security.first().map_or("baseline", String::as_str)
}

/// The name of a tier.
pub(super) fn any_tier(parameters: &Parameters) -> &str {
    parameters.host_suffixes.first().map_or("basic", |(tier, _)| tier.as_str())
}

/// A tenant's namespace as the broker may create it.
fn valid_namespace(parameters: &Parameters, id: Uuid) -> Value {
    namespace(parameters, id, &tenant_namespace(id), MANAGED_BY_VALUE, valid_level(parameters))
}

/// A namespace with the labels of a tenant's.
fn namespace(
    parameters: &Parameters,
    id: Uuid,
    name: &str,
    managed_by: &str,
    level: &str,
) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {
            MANAGED_BY_LABEL: managed_by, WORKSPACE_LABEL: id, TIER_LABEL: any_tier(parameters),
            POD_SECURITY: level,
        }},
    })
}

/// Requests that would create a namespace that is not a tenant's, or adopt one.
fn on_namespaces(parameters: &Parameters, id: Uuid) -> [ForbiddenRequest; 4] {
    let (good, level) = (tenant_namespace(id), valid_level(parameters));
    let create = |what, name: &str, managed_by: &str, level: &str| ForbiddenRequest {
        what,
        method: Method::POST,
        path: NAMESPACES.to_owned(),
        body: namespace(parameters, id, name, managed_by, level),
    };
    [
        create("a namespace with another name", &format!("doctor-{id}"), MANAGED_BY_VALUE, level),
        create("a namespace that others manage", &good, "doctor", level),
        create("a namespace without pod security", &good, MANAGED_BY_VALUE, "privileged"),
        ForbiddenRequest {
            what: "the adoption of a foreign namespace",
            method: Method::PATCH,
            path: format!("{NAMESPACES}/default"),
            body: json!({"metadata": {"labels": {WORKSPACE_LABEL: id}}}),
        },
    ]
}

/// Requests that would let a thief of the credential take over a foreign namespace.
fn outside(parameters: &Parameters, namespace: &'static str) -> [ForbiddenRequest; 3] {
    let foreign = |what: [&'static str; 2], path: String, body| ForbiddenRequest {
        what: if namespace == "default" { what[1] } else { what[0] },
        method: Method::POST,
        path,
        body,
    };
    let role = parameters.roles.first().map_or("admin", String::as_str);
    [
        foreign(
            ["an account in kube-system", "an account in default"],
            format!("{NAMESPACES}/{namespace}/serviceaccounts"),
            json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": SERVICE_ACCOUNT_NAME}}),
        ),
        foreign(
            ["a binding in kube-system", "a binding in default"],
            format!("/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings"),
            json!({"apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding",
                "metadata": {"name": ROLE_BINDING_NAME},
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": SERVICE_ACCOUNT_NAME,
                    "namespace": namespace}]}),
        ),
        foreign(
            ["a quota in kube-system", "a quota in default"],
            format!("{NAMESPACES}/{namespace}/resourcequotas"),
            json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": QUOTA_NAME},
                "spec": {"hard": {"pods": "0"}}}),
        ),
    ]
}

/// A request that the permission to create Secrets must not allow: a Secret outside of tenants'
/// namespaces, which could be filled with a token that never expires.
fn secret(namespace: &str, id: &str) -> ForbiddenRequest {
    ForbiddenRequest {
        what: if namespace == "default" {
            "a Secret in default"
        } else {
            "a Secret in kube-system"
        },
        method: Method::POST,
        path: format!("{NAMESPACES}/{namespace}/secrets"),
        body: json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": format!("{TOKEN_SECRET_PREFIX}{id}"),
                "labels": {MANAGED_BY_LABEL: MANAGED_BY_VALUE}}}),
    }
}
