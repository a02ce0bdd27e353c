//! Bypass attempts against rules that name only the resource itself: subresources, and whole
//! collections.

use integration::world::World;
use serde_json::json;
use tenant_shared::SuspendRequest;

use super::{are_refused, is_refused};

const RBAC: &str = "cannot";
const SUSPENDED: &str = "tenant-suspended";

/// `status` and `finalize` write the namespace too, labels included. RBAC grants neither to anybody
/// here; the policies refuse a user who has the right by mistake.
#[tokio::test]
async fn a_namespace_is_not_written_through_its_subresources() {
    let world = World::builder().own_control_plane().start().await.unwrap();
    let mallory = world.person("mallory").await.unwrap();
    mallory.login(&[]).await.unwrap().success().unwrap();
    let (broker, admin) = (world.broker_kubectl().unwrap(), world.admin_kubectl().unwrap());
    let namespace = mallory.namespace();
    let there = admin.json(["get", "namespace", &namespace]).await.unwrap();
    let mut attempts = Vec::new();
    for subresource in ["status", "finalize"] {
        let path = format!("/api/v1/namespaces/{namespace}/{subresource}");
        let mut changed = there.clone();
        changed["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = json!("privileged");
        attempts.push((path, changed));
    }
    let both = [
        (&broker, "tenant-broker-fence-namespaces"),
        (mallory.kubectl(), "tenant-guard-namespaces"),
    ];
    for (path, changed) in &attempts {
        for (kubectl, _) in both {
            is_refused(kubectl, &["replace", "--raw", path, "-f", "-"], changed, RBAC).await;
        }
    }
    let account = format!("--serviceaccount={namespace}:sa-tenant-admin");
    let resources = "--resource=namespaces/status,namespaces/finalize";
    let give: [&[&str]; 2] = [
        &["create", "clusterrole", "too-much", "--verb=update", resources],
        &[
            "create",
            "clusterrolebinding",
            "too-much",
            "--clusterrole=too-much",
            "--user=tenant-broker",
            &account,
        ],
    ];
    for args in give {
        admin.run(args).await.unwrap().success().unwrap();
    }
    for (kubectl, _) in both {
        let may = ["update", "namespaces", "--subresource=status"];
        kubectl.until_allowed(&may).await.unwrap();
    }
    for (path, changed) in &attempts {
        for (kubectl, policy) in both {
            is_refused(kubectl, &["replace", "--raw", path, "-f", "-"], changed, policy).await;
        }
    }
}

/// A collection is deleted one by one, and the policies check each object.
#[tokio::test]
async fn a_collection_is_not_deleted_at_once() {
    let world = World::builder().start().await.unwrap();
    let mallory = world.person("mallory").await.unwrap();
    mallory.login(&[]).await.unwrap().success().unwrap();
    let path = |namespace: &str, what: &str| match what {
        "rolebindings" => {
            format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{what}")
        }
        _ => format!("/api/v1/namespaces/{namespace}/{what}"),
    };
    let (system, own) = ("kube-system", mallory.namespace());
    let delete = |path: &str| ["delete".to_owned(), "--raw".to_owned(), path.to_owned()];
    for (kubectl, path, who) in [
        (&world.broker_kubectl().unwrap(), path(system, "rolebindings"), RBAC),
        (&world.broker_kubectl().unwrap(), path(&own, "rolebindings"), RBAC),
        (&world.broker_kubectl().unwrap(), path(&own, "serviceaccounts"), RBAC),
        (&world.broker_kubectl().unwrap(), path(&own, "resourcequotas"), RBAC),
        (mallory.kubectl(), path(&own, "rolebindings"), "tenant-guard-objects"),
        (mallory.kubectl(), path(&own, "serviceaccounts"), "tenant-guard-objects"),
        (mallory.kubectl(), path(&own, "resourcequotas"), RBAC),
        (mallory.kubectl(), "/api/v1/namespaces".to_owned(), RBAC),
    ] {
        let args = delete(&path);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        are_refused(kubectl, &[(&args, who)]).await;
    }
    mallory.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
}

/// A pod on a node without a kubelet: a connection that the tenant may open fails at the kubelet, a
/// suspended one is refused before.
#[tokio::test]
async fn in_a_suspended_namespace_nothing_is_connected_to_nor_written_by_a_subresource() {
    // The broker would delete the bindings that the test adds.
    let world = World::builder().setting("drift_seconds", 3600).start().await.unwrap();
    let mallory = world.person("mallory").await.unwrap();
    mallory.login(&[]).await.unwrap().success().unwrap();
    let (kubectl, namespace) = (mallory.kubectl(), mallory.namespace());
    let admin = world.admin_kubectl().unwrap();
    let node_name = format!("node-of-{namespace}");
    let create = ["create", "-f", "-"];
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node_name}});
    admin.run_with_input(create, node.to_string()).await.unwrap().success().unwrap();
    // No server listens on this port.
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 9}},
    }});
    let status = status.to_string();
    let patch = ["patch", "node", &node_name, "--subresource=status", "-p", &status];
    admin.run(patch).await.unwrap().success().unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace},
        "spec": {"nodeName": node_name, "containers": [{"name": "c", "image": "registry.k8s.io/pause"}]}});
    admin.run_with_input(create, pod.to_string()).await.unwrap().success().unwrap();
    for args in [
        &["create", "configmap", "c", "--from-literal=a=b"][..],
        &["create", "deployment", "web", "--image=registry.k8s.io/pause", "--replicas=0"],
        &["create", "serviceaccount", "app"],
    ] {
        kubectl.run(args).await.unwrap().success().unwrap();
    }

    let in_it = ["-n", &namespace];
    let connections: [&[&str]; 3] =
        [&["exec", "p", "--", "true"], &["attach", "p"], &["port-forward", "pod/p", ":80"]];
    // kubectl forwards a port only to a running pod.
    let running = r#"{"status":{"phase":"Running"}}"#;
    let run = ["patch", "pod", "p", "-n", &namespace, "--subresource=status", "-p", running];
    admin.run(run).await.unwrap().success().unwrap();
    let open = kubectl.run(connections[0]).await.unwrap();
    assert!(!open.status.success() && open.stderr.contains("dial"), "{}", open.stderr);
    are_refused(
        &world.broker_kubectl().unwrap(),
        &[(&["exec", "p", "-n", &namespace, "--", "true"], RBAC)],
    )
    .await;

    let id = mallory.api().await.unwrap().workspaces(false).await.unwrap().items[0].id;
    let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
    operator.suspend(id, &SuspendRequest::default()).await.unwrap();
    // The rights are still there: the label alone has to protect.
    let outsider = world.cluster().kubeconfig_for("connecting", None, world.folder()).unwrap();
    let outsider = world.kubectl_with(&outsider).unwrap();
    let role = format!("pod-status-{namespace}");
    let role_argument = format!("--clusterrole={role}");
    let give: [&[&str]; 3] = [
        &["create", "rolebinding", "left", "--clusterrole=admin", "--user=connecting"],
        &["create", "clusterrole", &role, "--verb=patch", "--resource=pods/status"],
        &["create", "rolebinding", "status", &role_argument, "--user=connecting"],
    ];
    for args in give {
        admin.run(args.iter().chain(&in_it)).await.unwrap().success().unwrap();
    }
    for may in [&["create", "configmaps"][..], &["patch", "pods", "--subresource=status"]] {
        outsider.until_allowed(&[may, &in_it].concat()).await.unwrap();
    }
    let config_maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let others: [&[&str]; 4] = [
        &["scale", "deployment", "web", "--replicas=1"],
        &["patch", "pod", "p", "--subresource=status", "-p", running],
        &["delete", "configmap", "c"],
        &["delete", "--raw", &config_maps],
    ];
    for args in connections.into_iter().chain(others) {
        // The arguments after "--" are the command in the pod; a raw path contains the namespace.
        let mut args = args.to_vec();
        if !args.contains(&"--raw") {
            args.splice(1..1, in_it);
        }
        are_refused(&outsider, &[(&args, SUSPENDED)]).await;
    }
    let mut token = vec!["create", "token", "app"];
    token.extend(in_it);
    // Two policies refuse it; the API server names one.
    are_refused(&outsider, &[(&token, "ValidatingAdmissionPolicy 'tenant-")]).await;
    admin.run(["delete", "node", &node_name]).await.unwrap().success().unwrap();
    admin.run(["delete", "clusterrole", &role]).await.unwrap().success().unwrap();
}
