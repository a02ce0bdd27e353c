//! `tenant-pods` and `tenant-network` in namespaces of tenants, where members are users, groups and
//! ServiceAccounts of any name.

use serde_json::{Value, json};

use crate::tenants::cluster::{
    CREATE, TenantCluster, account, are_accepted, are_refused, is_refused, namespace, role_binding,
    send, until_allowed, user,
};

const OWN: &str = "solar-production";
const UNTIERED: &str = "solar-untiered";
const NETWORK: &str = "tenant-network";
const PODS: &str = "tenant-pods";

fn ingress(namespace: &str, host: &str) -> Value {
    let backend = json!({"service": {"name": "site", "port": {"number": 80}}});
    let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"namespace": namespace, "name": "site"},
        "spec": {"rules": [{"host": host, "http": {"paths": paths}}]}})
}

/// A Tenant gives a role that may write a status and bind pods, which the role `admin` does not
/// allow.
pub(super) async fn no_member_writes_a_status_or_binds_a_pod(cluster: &TenantCluster) {
    let alice = cluster.person("alice", None);
    let rights = "--resource=services,services/status,pods/binding,bindings";
    let verbs = "--verb=get,create,update,patch";
    cluster.as_admin(&["create", "clusterrole", "by-mistake", verbs, rights]).await;
    let members = json!([user("alice"), account(OWN, "robot")]);
    cluster.make(&role_binding(OWN, "by-mistake", "by-mistake", &members)).await;
    for (resource, subresource, verb) in
        [("services", "status", "patch"), ("pods", "binding", "create")]
    {
        let may = json!({"namespace": OWN, "verb": verb, "resource": resource,
            "subresource": subresource});
        until_allowed(&alice, &may).await;
    }
    a_status_is_for_controllers(cluster).await;
    a_binding_is_for_schedulers(cluster).await;
}

async fn a_status_is_for_controllers(cluster: &TenantCluster) {
    let alice = cluster.person("alice", None);
    // For other types the API server refuses the status itself.
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": OWN, "name": "site"},
        "spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
            "ports": [{"port": 80}]}});
    send(&alice, CREATE, &service).await.success().unwrap();
    let status = r#"{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}"#;
    let patch = ["patch", "service", "site", "-n", OWN, "--subresource=status", "-p", status];
    are_refused(&alice, &[(&patch, NETWORK)]).await;
    let robot = [&patch[..], &["--as=system:serviceaccount:solar-production:robot"]].concat();
    are_refused(&cluster.admin, &[(&robot[..], NETWORK)]).await;
    // A controller of the operator may, without any right on the policies.
    let controller = cluster.person("metallb", None);
    cluster.give("metallb", "load-balancers", "get,patch", "services,services/status").await;
    let may = json!({"verb": "patch", "resource": "services", "subresource": "status"});
    until_allowed(&controller, &may).await;
    are_accepted(&controller, &[&patch]).await;
}

async fn a_binding_is_for_schedulers(cluster: &TenantCluster) {
    let alice = cluster.person("alice", None);
    are_accepted(&alice, &[&["create", "serviceaccount", "pending", "-n", OWN]]).await;
    let container = json!([{"name": "c", "image": "registry.k8s.io/pause"}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": OWN, "name": "pending"},
        "spec": {"serviceAccountName": "pending", "containers": container}});
    send(&alice, CREATE, &pod).await.success().unwrap();
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "pending"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "some-node"}});
    let pods = format!("/api/v1/namespaces/{OWN}/pods/pending/binding");
    let bindings = format!("/api/v1/namespaces/{OWN}/bindings");
    for path in [&pods, &bindings] {
        let bound = send(&alice, &["create", "--raw", path, "-f", "-"], &binding).await;
        is_refused(&bound, path, PODS);
    }
    let scheduler = cluster.person("volcano", None);
    cluster.give("volcano", "schedulers", "create", "pods/binding").await;
    let may = json!({"verb": "create", "resource": "pods", "subresource": "binding"});
    until_allowed(&scheduler, &may).await;
    let bind = ["create", "--raw", &pods, "-f", "-"];
    send(&scheduler, &bind, &binding).await.success().unwrap();
}

/// One tier has a suffix for hosts. A namespace whose Tenant has no tier needs it, too.
pub(super) async fn hosts_end_with_the_suffix_also_without_a_tier(cluster: &TenantCluster) {
    let alice = cluster.person("alice", None);
    let labels = json!({
        "tenant-broker.io/tenant": "solar",
        "pod-security.kubernetes.io/enforce": "baseline",
    });
    cluster.make(&namespace(UNTIERED, &labels)).await;
    let owners = json!([user("alice")]);
    cluster.make(&role_binding(UNTIERED, "tenant-solar-admin", "admin", &owners)).await;
    let may = json!({"namespace": UNTIERED, "group": "networking.k8s.io", "verb": "create",
        "resource": "ingresses"});
    until_allowed(&alice, &may).await;
    let try_it = &["create", "--dry-run=server", "-f", "-"];
    for namespace in [OWN, UNTIERED] {
        let suffix = format!(".{namespace}.apps.example.com");
        let own = ingress(namespace, &format!("site{suffix}"));
        send(&alice, try_it, &own).await.success().unwrap();
        let other = ingress(namespace, "site.example.net");
        let text = format!("hosts of this namespace end with {suffix}");
        is_refused(&send(&alice, try_it, &other).await, "a host of others", &text);
    }
}
