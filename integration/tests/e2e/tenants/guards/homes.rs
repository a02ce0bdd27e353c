//! `tenant-guard-homes`, and the deletion of homes.

use serde_json::json;

use crate::tenants::cluster::{
    CREATE, TenantCluster, are_accepted, are_refused, is_refused, role_binding, send,
    until_allowed, user,
};

const HOME: &str = "tenant-solar";
const POLICY: &str = "tenant-guard-homes";

/// Eve has every right of the role `admin` in the home, and may update the policies later.
pub(super) async fn nothing_is_written_in_a_home(cluster: &TenantCluster) {
    let eve = cluster.person("eve", None);
    cluster.make(&role_binding(HOME, "too-much", "admin", &json!([user("eve")]))).await;
    until_allowed(&eve, &json!({"namespace": HOME, "verb": "create", "resource": "configmaps"}))
        .await;
    let member = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"namespace": HOME, "name": "member-1"}});
    cluster.make(&member).await;
    let config_map = ["create", "configmap", "c", "-n", HOME];
    are_refused(
        &eve,
        &[
            (&config_map, POLICY),
            (&["create", "serviceaccount", "member-x", "-n", HOME], POLICY),
            (
                &["create", "rolebinding", "b", "--clusterrole=view", "--user=eve", "-n", HOME],
                "tenant-guard-",
            ),
            (&["delete", "rolebinding", "too-much", "-n", HOME], POLICY),
            (&["delete", "serviceaccount", "member-1", "-n", HOME], POLICY),
            (&["label", "serviceaccount", "member-1", "a=b", "-n", HOME], POLICY),
            // Two policies refuse it; the API server names one.
            (&["create", "token", "member-1", "-n", HOME], "ValidatingAdmissionPolicy 'tenant-"),
        ],
    )
    .await;
    // A binding here would make its subjects owners.
    let owner = role_binding(HOME, "mine", "tenant-owner", &json!([user("eve")]));
    cluster.give("eve", "bind-owner", "bind", "clusterroles").await;
    let bind =
        json!({"group": "rbac.authorization.k8s.io", "verb": "bind", "resource": "clusterroles"});
    until_allowed(&eve, &bind).await;
    is_refused(&send(&eve, CREATE, &owner).await, "an owner", "tenant-guard-");

    // Nobody runs a pod with the token of a member: neither administrators nor controllers. The Pod
    // Security of the home allows this one.
    let container = json!([{"name": "c", "image": "registry.k8s.io/pause", "securityContext": {
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": HOME, "name": "p"},
        "spec": {"serviceAccountName": "member-1", "containers": container, "securityContext": {
            "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}}});
    is_refused(&send(&cluster.admin, CREATE, &pod).await, "a pod", POLICY);

    cluster.give("eve", "namespaces-go", "delete", "namespaces").await;
    let delete = json!({"verb": "delete", "resource": "namespaces"});
    until_allowed(&eve, &delete).await;
    let text = "administrators alone delete the home of a tenant";
    are_refused(
        &eve,
        &[(&["delete", "namespace", HOME, "--dry-run=server", "--wait=false"], text)],
    )
    .await;

    // The same person as an administrator of the policies.
    let policies = "validatingadmissionpolicies.admissionregistration.k8s.io";
    cluster.give("eve", "policies", "update", policies).await;
    let update = json!({"group": "admissionregistration.k8s.io", "verb": "update",
        "resource": "validatingadmissionpolicies"});
    until_allowed(&eve, &update).await;
    are_accepted(
        &eve,
        &[
            &config_map,
            &["delete", "configmap", "c", "-n", HOME],
            &["delete", "namespace", HOME, "--dry-run=server", "--wait=false"],
        ],
    )
    .await;
    is_refused(&send(&eve, CREATE, &pod).await, "a pod", POLICY);
    cluster.as_admin(&["delete", "clusterrolebinding", "policies"]).await;
}
