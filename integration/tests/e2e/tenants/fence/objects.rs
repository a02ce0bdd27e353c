//! Requests for the objects in tenants' namespaces and homes.

use integration::control_plane::BROKER_USER;
use serde_json::{Value, json};

use super::{
    Attempt, MEMBER, NO_RIGHT, account, create, delete, group, object, patch, role_binding,
    service_account, user,
};

const OBJECTS: &str = "tenant-broker-fence-tenant-objects";
const OUTSIDE: &str = "tenant-broker-fence-outside";
const TOKENS: &str = "tenant-tokens";

/// ServiceAccounts of members, and the binding of owners.
pub(super) fn in_homes() -> Vec<Attempt> {
    let other = "member-01940000-0000-7000-8000-000000000002";
    let owners = json!([account("tenant-solar", other), user("alice"), group("solar-users")]);
    let binding = |home: &str, name: &str, role: &str| role_binding(home, name, role, &owners);
    let owner = "tenant-solar-tenant-owner";
    vec![
        create(service_account("tenant-solar", other, "solar"), None),
        create(binding("tenant-solar", owner, "tenant-owner"), None),
        delete(&["serviceaccount", MEMBER, "-n", "tenant-solar"], None),
        create(service_account("tenant-solar", "sa-tenant-admin", "solar"), Some(OBJECTS)),
        create(service_account("tenant-solar", "member-x", "solar"), Some(OBJECTS)),
        create(service_account("tenant-solar", other, "lunar"), Some(OBJECTS)),
        create(service_account("solar-prod", other, "solar"), Some(OBJECTS)),
        create(service_account("default", other, "solar"), Some(OUTSIDE)),
        delete(&["serviceaccount", "other", "-n", "tenant-solar"], Some(OBJECTS)),
        create(binding("tenant-solar", "tenant-solar-admin", "admin"), Some(OBJECTS)),
        create(binding("tenant-solar", "owners", "tenant-owner"), Some(OBJECTS)),
        create(binding("tenant-lunar", "tenant-lunar-tenant-owner", "tenant-owner"), Some(OBJECTS)),
        create(object("ResourceQuota", "tenant-solar", "tenant-quota-0", "solar"), Some(OBJECTS)),
    ]
}

/// Quotas and limits.
pub(super) fn limits() -> Vec<Attempt> {
    let hard = json!({"spec": {"hard": {"pods": "2"}}});
    let held = json!({"metadata": {"finalizers": ["example.com/held"]}});
    let quota = |name: &'static str| ["resourcequota", name, "-n", "solar-prod"];
    let mut changed = object("ResourceQuota", "solar-prod", "tenant-quota-0", "solar");
    changed["spec"] = hard["spec"].clone();
    let mut with_finalizer = changed.clone();
    with_finalizer["metadata"]["finalizers"] = held["metadata"]["finalizers"].clone();
    let replace = |object: Value, refusal| {
        let mut attempt = create(object, refusal);
        "replace".clone_into(&mut attempt.args[0]);
        attempt
    };
    vec![
        create(object("ResourceQuota", "solar-prod", "tenant-quota-1", "solar"), None),
        create(object("LimitRange", "solar-prod", "tenant-limits-0", "solar"), None),
        replace(changed, None),
        delete(&quota("tenant-quota-0"), None),
        create(object("ResourceQuota", "solar-prod", "tenant-quota", "solar"), Some(OBJECTS)),
        create(object("ResourceQuota", "solar-prod", "tenant-limits-1", "solar"), Some(OBJECTS)),
        create(object("LimitRange", "solar-prod", "limits", "solar"), Some(OBJECTS)),
        create(object("ResourceQuota", "solar-prod", "tenant-quota-1", "lunar"), Some(OBJECTS)),
        create(object("ResourceQuota", "kube-system", "tenant-quota-1", "solar"), Some(OUTSIDE)),
        delete(&quota("own"), Some(OBJECTS)),
        replace(with_finalizer, Some(OBJECTS)),
    ]
}

/// RoleBindings that give rights.
pub(super) fn bindings() -> Vec<Attempt> {
    let to = |role: &str, subject: Value| {
        let name = format!("tenant-solar-{role}");
        role_binding("solar-prod", &name, role, &json!([subject]))
    };
    let of_role = |role: &str| to(role, user("bob"));
    let add = |namespace: &str, subject: Value, refusal| {
        let subjects = json!({"subjects": [subject]});
        patch(&["rolebinding", "tenant-solar-view", "-n", namespace], &subjects, refusal)
    };
    let refused = Some(OBJECTS);
    let everybody = "system:serviceaccounts";
    vec![
        create(of_role("admin"), None),
        create(of_role("tenant-namespace-deleter"), None),
        create(to("admin", group("developers")), None),
        create(to("admin", account("tenant-solar", MEMBER)), None),
        create(to("admin", account("argocd", "controller")), None),
        // No home has a reserved word in its name.
        create(to("admin", account("tenant-system", "robot")), None),
        create(to("admin", group("system:serviceaccounts:ci")), None),
        add("solar-prod", user("bob"), None),
        // Roles.
        create(of_role("cluster-admin"), Some("attempting to grant")),
        create(of_role("tenant-owner"), refused),
        create(role_binding("solar-prod", "other", "admin", &json!([user("bob")])), refused),
        // Subjects.
        create(to("admin", group("system:authenticated")), refused),
        create(to("admin", group(everybody)), refused),
        create(to("admin", user(BROKER_USER)), Some("the broker binds neither itself")),
        create(to("admin", group("system:serviceaccounts:kube-system")), refused),
        create(to("admin", group("system:serviceaccounts:tenant-lunar")), refused),
        create(to("admin", user("system:kube-scheduler")), refused),
        create(to("admin", user("system:serviceaccount:ci:robot")), refused),
        create(to("admin", account("kube-system", "default")), refused),
        create(to("admin", account("tenant-lunar", MEMBER)), refused),
        create(to("admin", account("tenant-solar", "other")), refused),
        add("solar-prod", group("system:authenticated"), refused),
        // Namespaces.
        create(
            role_binding("default", "tenant-solar-admin", "admin", &json!([user("bob")])),
            Some(OUTSIDE),
        ),
        create(
            role_binding("solar-held", "tenant-solar-edit", "edit", &json!([user("bob")])),
            Some("is suspended"),
        ),
        add("solar-held", user("bob"), refused),
        // The name of the namespace is protected.
        create(
            role_binding("cert-manager", "tenant-cert-admin", "admin", &json!([user("bob")])),
            refused,
        ),
    ]
}

/// The broker takes rights away also where it may give none, and from bindings of owners.
pub(super) fn revocations() -> Vec<Attempt> {
    let emptied = json!({"subjects": null});
    let mut attempts = Vec::new();
    for namespace in ["solar-prod", "solar-held"] {
        for name in ["tenant-solar-view", "made-by-owner"] {
            attempts.push(delete(&["rolebinding", name, "-n", namespace], None));
        }
        let own = ["rolebinding", "tenant-solar-view", "-n", namespace];
        attempts.push(patch(&own, &emptied, None));
    }
    // Without the label of the namespace it takes away its own ones only.
    for (name, refusal) in [
        ("tenant-solar-view", None),
        ("tenant-solar-other", Some(OUTSIDE)),
        ("made-by-owner", Some(OUTSIDE)),
    ] {
        attempts.push(delete(&["rolebinding", name, "-n", "solar-gone"], refusal));
    }
    let gone = ["rolebinding", "tenant-solar-view", "-n", "solar-gone"];
    attempts.push(patch(&gone, &emptied, Some(OUTSIDE)));
    let labelled = json!({"metadata": {"labels": {"tenant-broker.io/tenant": "lunar"}}});
    let own = ["rolebinding", "tenant-solar-view", "-n", "solar-prod"];
    attempts.push(patch(&own, &labelled, Some(OBJECTS)));
    let foreign = ["rolebinding", "made-by-owner", "-n", "solar-prod"];
    let bound = json!({"subjects": [user("mallory")]});
    attempts.push(patch(&foreign, &bound, Some("attempting to grant")));
    attempts
}

/// TokenRequests. The API server has no dry run of them.
pub(super) fn tokens() -> Vec<Attempt> {
    let request = |namespace: &str, name: &str, refusal| {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        Attempt {
            args: ["create", "--raw", &path, "-f", "-"].map(str::to_owned).into(),
            object: Some(json!({
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": 3600},
            })),
            refusal,
        }
    };
    vec![
        request("tenant-solar", MEMBER, None),
        request("tenant-solar", "other", Some(TOKENS)),
        request("solar-prod", "robot", Some(TOKENS)),
        request("default", "default", Some(OUTSIDE)),
        request("kube-system", "default", Some(OUTSIDE)),
        delete(&["serviceaccount", "default", "-n", "kube-system"], Some(OUTSIDE)),
        delete(&["clusterrole", "tenant-owner"], Some(NO_RIGHT)),
    ]
}
