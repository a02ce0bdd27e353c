//! Attacks on objects: what the broker keeps, whom others bind, homes, ownership, and what belongs to
//! others.

use http::Method;
use integration::control_plane::BROKER_USER;
use serde_json::{Value, json};
use tenant_shared::TENANT_LABEL;

use super::attack::{Attack, Right};
use super::{OTHER, OWN};
use crate::tenants::attempt::{attempt, patch, post};
use crate::tenants::cluster::{account, group, role_binding, user};

const RBAC: &str = "apis/rbac.authorization.k8s.io/v1";
const TENANTS: &str = "apis/tenant-broker.io/v1alpha1/tenants";
const POLICIES: &str = "apis/admissionregistration.k8s.io/v1";
/// Policy for RoleBindings, quotas and limits.
const OBJECTS: &[&str] = &["tenant-guard-tenant-objects"];
const LABELS: &[&str] = &["tenant-guard-labels"];
/// Several policies refuse it, and the API server names one.
pub(super) const SEVERAL: &[&str] = &["ValidatingAdmissionPolicy 'tenant-"];
/// Nobody gives a role rights that they do not have.
const ESCALATION: &[&str] = &["attempting to grant"];

pub(super) fn path_in(namespace: &str, resource: &str) -> String {
    format!("api/v1/namespaces/{namespace}/{resource}")
}

pub(super) fn bindings_in(namespace: &str) -> String {
    format!("{RBAC}/namespaces/{namespace}/rolebindings")
}

/// A container whose Pod Security suits every level.
fn containers() -> Value {
    json!([{"name": "c", "image": "registry.k8s.io/pause", "securityContext": {
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}])
}

pub(super) fn pod(name: &str, more: &Value) -> Value {
    let mut spec = json!({"containers": containers(), "securityContext": {
        "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}});
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

/// RoleBindings for outsiders, members of other tenants, everybody and the broker.
pub(super) fn bindings() -> Vec<Attack> {
    let bind = |namespace: &str, right: Right, subject: Value| {
        let binding = role_binding(namespace, "extra", "view", &json!([subject]));
        Attack::new(post(bindings_in(namespace), binding), right, OBJECTS)
    };
    let mut attacks: Vec<Attack> = [
        user("mallory"),
        group("developers"),
        group("system:authenticated"),
        group("system:serviceaccounts"),
        group("system:serviceaccounts:tenant-lunar"),
        user("system:serviceaccount:solar-a:robot"),
        user(BROKER_USER),
        account(OTHER, "default"),
        account("others", "robot"),
        account("tenant-lunar", "member-x"),
        account("tenant-solar", "member-x"),
    ]
    .into_iter()
    .map(|subject| bind(OWN, Right::Admin, subject))
    .collect();
    attacks.push(bind(OTHER, Right::WriteEverywhere, user("mallory")));
    let extra = || role_binding(OWN, "extra", "view", &json!([account(OWN, "robot")]));
    let mut held = extra();
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let mut labelled = extra();
    labelled["metadata"]["labels"] = json!({TENANT_LABEL: "solar"});
    let reserved = role_binding(OWN, "tenant-solar-edit", "edit", &json!([account(OWN, "robot")]));
    let everything = role_binding(OWN, "extra", "cluster-admin", &json!([account(OWN, "robot")]));
    let create =
        |binding, right, policy| Attack::new(post(bindings_in(OWN), binding), right, policy);
    attacks.extend([
        create(held, Right::Admin, OBJECTS),
        create(labelled, Right::Admin, LABELS),
        create(reserved, Right::Admin, OBJECTS),
        create(everything, Right::ClusterAdmin, &[]),
    ]);
    attacks
}

/// What the broker keeps in namespaces of tenants.
pub(super) fn of_the_broker() -> Vec<Attack> {
    let binding = format!("{}/tenant-solar-admin", bindings_in(OWN));
    let all = format!("{}?labelSelector={TENANT_LABEL}%3Dsolar", bindings_in(OWN));
    let mine = json!({"subjects": [user("mallory")]});
    let quota = path_in(OWN, "resourcequotas/tenant-quota-0");
    let more = json!({"hard": {"pods": "1000"}});
    let limits = path_in(OWN, "limitranges/tenant-limits-0");
    let own_quota = json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "tenant-quota-9"}, "spec": more});
    let delete = |path: &str| attempt(Method::DELETE, path);
    let everywhere = |attempt| Attack::new(attempt, Right::WriteEverywhere, OBJECTS);
    vec![
        Attack::new(delete(&binding), Right::Admin, OBJECTS).of_broker(),
        Attack::new(delete(&all), Right::Admin, OBJECTS).of_broker(),
        Attack::new(patch(&binding, mine), Right::Admin, OBJECTS).of_broker(),
        everywhere(patch(&quota, json!({"spec": more}))).of_broker(),
        everywhere(patch(format!("{quota}/status"), json!({"status": more}))),
        everywhere(delete(&quota)).of_broker(),
        everywhere(delete(&limits)).of_broker(),
        everywhere(post(path_in(OWN, "resourcequotas"), own_quota)),
    ]
}

/// Objects of the attackers' own namespace that steer the scheduler, last for ever, or are taken for
/// the broker's.
pub(super) fn in_own_namespace() -> Vec<Attack> {
    let create = |resource: &str, object: Value, policy| {
        Attack::new(post(path_in(OWN, resource), object), Right::Admin, policy)
    };
    let forever = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "forever",
            "annotations": {"kubernetes.io/service-account.name": "robot"}},
        "type": "kubernetes.io/service-account-token"});
    let labelled = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "mine", "labels": {TENANT_LABEL: "solar"}}});
    let rules = json!([{"apiGroups": ["tenant-broker.io"], "resources": ["tenants"],
        "verbs": ["own"]}]);
    let owner = json!({"metadata": {"name": "owner"}, "rules": rules});
    let path = format!("{RBAC}/namespaces/{OWN}/roles");
    vec![
        create("secrets", forever, &["tenant-guard-secrets"]),
        create("serviceaccounts", labelled, LABELS),
        create("serviceaccounts/default/token", token_request(), &["tenant-tokens"]),
        create("pods", pod("placed", &json!({"nodeName": "some-node"})), &["tenant-pods"]),
        Attack::new(post(path, owner), Right::Admin, ESCALATION),
    ]
}

pub(super) fn token_request() -> Value {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
}

/// Writes and reads in a home, with the ServiceAccount of a member. A binding there makes owners.
pub(super) fn in_home(home: &str, member: &str) -> Vec<Attack> {
    let write = |attempt| Attack::new(attempt, Right::WriteEverywhere, SEVERAL);
    let create = |resource: &str, object: Value| write(post(path_in(home, resource), object));
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "member-x"}});
    let mine = role_binding(home, "mine", "tenant-owner", &json!([user("mallory")]));
    let owners = format!("{}/{home}-tenant-owner", bindings_in(home));
    let token = format!("serviceaccounts/{member}/token");
    let as_member = pod("p", &json!({"serviceAccountName": member}));
    let read = |resource| {
        Attack::new(attempt(Method::GET, path_in(home, resource)), Right::ClusterAdmin, &[])
    };
    vec![
        create("configmaps", config_map),
        create("serviceaccounts", account),
        create(&token, token_request()).of_broker(),
        create("pods", as_member),
        write(post(bindings_in(home), mine)),
        write(patch(&owners, json!({"subjects": [user("mallory")]}))).of_broker(),
        write(attempt(Method::DELETE, &owners)).of_broker(),
        read("serviceaccounts").of_broker(),
        read("secrets"),
        read("pods"),
    ]
}

/// Tenants, roles of the whole cluster, and the policies.
pub(super) fn of_administrators() -> Vec<Attack> {
    let attack = |attempt| Attack::new(attempt, Right::ClusterAdmin, &[]);
    let owners = json!({"spec": {"owners": [{"kind": "User", "name": "mallory"}]}});
    let mut mine = owners.clone();
    mine["apiVersion"] = json!("tenant-broker.io/v1alpha1");
    mine["kind"] = json!("Tenant");
    mine["metadata"] = json!({"name": "mine"});
    let role_ref = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "cluster-admin"});
    let everything =
        json!({"metadata": {"name": "x"}, "roleRef": role_ref, "subjects": [user("mallory")]});
    let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let policy = format!("{POLICIES}/validatingadmissionpolicies/tenant-guard-namespaces");
    let in_force = format!("{POLICIES}/validatingadmissionpolicybindings/tenant-guard-namespaces");
    vec![
        attack(attempt(Method::GET, TENANTS)).of_broker(),
        attack(post(TENANTS, mine)),
        attack(patch(format!("{TENANTS}/solar"), owners)),
        attack(patch(format!("{TENANTS}/solar/status"), json!({"status": {"size": 0}})))
            .of_broker(),
        attack(attempt(Method::DELETE, format!("{TENANTS}/solar"))),
        attack(post(format!("{RBAC}/clusterrolebindings"), everything)),
        attack(patch(format!("{RBAC}/clusterroles/admin"), json!({"rules": rules}))),
        attack(patch(policy, json!({"spec": {"failurePolicy": "Ignore"}}))),
        attack(attempt(Method::DELETE, in_force)),
    ]
}

/// Reads and writes in a namespace of another tenant, and in all namespaces.
pub(super) fn of_others() -> Vec<Attack> {
    let attack = |attempt| Attack::new(attempt, Right::ClusterAdmin, &[]);
    let read = |path: &str| attack(attempt(Method::GET, path));
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"},
        "spec": {"ports": [{"port": 80}]}});
    vec![
        read(&path_in(OTHER, "configmaps")),
        read(&path_in(OTHER, "configmaps?watch=1")),
        read(&path_in(OTHER, "secrets?labelSelector=a")),
        read(&path_in(OTHER, "pods?limit=1&fieldSelector=metadata.namespace%3Dsolar-a")),
        read("api/v1/secrets"),
        read("api/v1/pods?fieldSelector=metadata.namespace%3Dlunar-a"),
        attack(post(path_in(OTHER, "services"), service.clone())),
        attack(post(path_in("kube-system", "services"), service)),
    ]
}
