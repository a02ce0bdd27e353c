//! What the admission policies refuse the broker although RBAC allows it. Tried for real, as dry
//! runs.

use http::Method;
use serde_json::{Value, json};
use tenant_shared::{
    MANAGED_BY_LABEL, MANAGED_BY_VALUE, ROLE_BINDING_NAME, SERVICE_ACCOUNT_NAME, TIER_LABEL,
    TOKEN_SECRET_PREFIX, WORKSPACE_LABEL,
};

use super::Check;
use crate::{
    clock::Clock,
    cluster::{Cluster, ClusterError, Rehearsal},
    install::Parameters,
    workspace::QUOTA_NAME,
};

const NAMESPACES: &str = "/api/v1/namespaces";
const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";

struct Attempt {
    what: &'static str,
    method: Method,
    path: String,
    body: Value,
}

/// Tries to make a tenant's namespace, which must work, and then what must not.
pub(super) async fn hold(
    cluster: &Cluster,
    parameters: &Parameters,
    clock: &Clock,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    let id = clock.random_id();
    let level = parameters.pod_security.first().map_or("baseline", String::as_str);
    let tier = parameters.host_suffixes.first().map_or("basic", |(tier, _)| tier.as_str());
    let namespace = |name: &str, managed_by: &str, level: &str| {
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {
                MANAGED_BY_LABEL: managed_by, WORKSPACE_LABEL: id, TIER_LABEL: tier,
                POD_SECURITY: level,
            }},
        })
    };
    let good = format!("tenant-{id}");
    let rehearsal = cluster
        .rehearse(Method::POST, NAMESPACES, &namespace(&good, MANAGED_BY_VALUE, level))
        .await?;
    checks.push(match rehearsal {
        Rehearsal::Allowed => Check::passed("can make a tenant's namespace", ""),
        Rehearsal::Refused(why) | Rehearsal::Otherwise(why) => {
            Check::failed("can make a tenant's namespace", why)
        }
    });
    let make =
        |what, body| Attempt { what, method: Method::POST, path: NAMESPACES.to_owned(), body };
    let mut attempts = vec![
        make(
            "a namespace with another name",
            namespace(&format!("doctor-{id}"), MANAGED_BY_VALUE, level),
        ),
        make("a namespace that others manage", namespace(&good, "doctor", level)),
        make("a namespace without pod security", namespace(&good, MANAGED_BY_VALUE, "privileged")),
        Attempt {
            what: "the adoption of a foreign namespace",
            method: Method::PATCH,
            path: format!("{NAMESPACES}/default"),
            body: json!({"metadata": {"labels": {WORKSPACE_LABEL: id}}}),
        },
    ];
    attempts.extend(
        ["kube-system", "default"].into_iter().flat_map(|place| outside(parameters, place)),
    );
    if parameters.bind_tokens {
        attempts.extend(["kube-system", "default"].map(|place| secret(place, &id.to_string())));
    }
    for Attempt { what, method, path, body } in attempts {
        let title = format!("is refused: {what}");
        checks.push(match cluster.rehearse(method, &path, &body).await? {
            Rehearsal::Refused(_) => Check::passed(title, ""),
            Rehearsal::Allowed => Check::failed(
                title,
                "it is not: the fence is missing, weakened, or for another name than the \
                 broker's; run tenant-broker install --apply",
            ),
            Rehearsal::Otherwise(why) => Check::warned(title, format!("could not be tried: {why}")),
        });
    }
    Ok(())
}

/// What would make a thief of the credential the owner of a foreign namespace.
fn outside(parameters: &Parameters, place: &'static str) -> [Attempt; 3] {
    let foreign = |what: [&'static str; 2], path: String, body| Attempt {
        what: if place == "default" { what[1] } else { what[0] },
        method: Method::POST,
        path,
        body,
    };
    let role = parameters.roles.first().map_or("admin", String::as_str);
    [
        foreign(
            ["an account in kube-system", "an account in default"],
            format!("{NAMESPACES}/{place}/serviceaccounts"),
            json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": SERVICE_ACCOUNT_NAME}}),
        ),
        foreign(
            ["a binding in kube-system", "a binding in default"],
            format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{place}/rolebindings"),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": ROLE_BINDING_NAME},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                    "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": SERVICE_ACCOUNT_NAME,
                    "namespace": place}]}),
        ),
        foreign(
            ["a quota in kube-system", "a quota in default"],
            format!("{NAMESPACES}/{place}/resourcequotas"),
            json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": QUOTA_NAME},
                "spec": {"hard": {"pods": "0"}}}),
        ),
    ]
}

/// What the right to make Secrets must not come to: one that is filled with a token that never ends.
fn secret(place: &str, id: &str) -> Attempt {
    Attempt {
        what: if place == "default" { "a Secret in default" } else { "a Secret in kube-system" },
        method: Method::POST,
        path: format!("{NAMESPACES}/{place}/secrets"),
        body: json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": format!("{TOKEN_SECRET_PREFIX}{id}"),
                "labels": {MANAGED_BY_LABEL: MANAGED_BY_VALUE}}}),
    }
}
