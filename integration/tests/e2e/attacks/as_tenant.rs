//! Attacks of a tenant with the role `admin`, and ordinary use that must keep working.

use std::time::Duration;

use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::json;

use super::{are_refused, is_refused, token_is_refused};

const TOKENS: &str = "tenant-tokens";
const SECRETS: &str = "tenant-guard-secrets";
const OBJECTS: &str = "tenant-guard-objects";
const OUTSIDERS: &str = "may name ServiceAccounts of the same namespace only";
const OWN: &str = "rb-tenant-admin belong to the broker";
const PODS: &str = "tenant-pods";
const CREATE: [&str; 3] = ["create", "-f", "-"];

#[tokio::test]
async fn no_token_comes_from_anywhere_but_the_broker() {
    let world = World::builder().start().await.unwrap();
    let mallory = world.person("mallory").await.unwrap();
    mallory.login(&[]).await.unwrap().success().unwrap();
    let (kubectl, namespace) = (mallory.kubectl(), mallory.namespace());
    kubectl.run(["create", "serviceaccount", "app"]).await.unwrap().success().unwrap();

    for account in ["sa-tenant-admin", "app", "default"] {
        for spec in [
            json!({}),
            json!({"expirationSeconds": 315_360_000}),
            json!({"expirationSeconds": 3607, "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}),
            json!({"audiences": ["vault"]}),
        ] {
            token_is_refused(kubectl, &namespace, account, &spec, TOKENS).await;
        }
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"name": "forever", "annotations": {"kubernetes.io/service-account.name": account}},
        });
        is_refused(kubectl, &CREATE, &secret, SECRETS).await;
    }
    // As an account of its own, which the role lets it impersonate.
    let app = format!("system:serviceaccount:{namespace}:app");
    let subject = format!("--serviceaccount={namespace}:app");
    let bind = ["create", "rolebinding", "app", "--clusterrole=admin", &subject];
    kubectl.run(bind).await.unwrap().success().unwrap();
    let may = ["create", "serviceaccounts", "--subresource=token", "--as", &app];
    kubectl.until_allowed(&may).await.unwrap();
    are_refused(kubectl, &[(&["create", "token", "app", "--as", &app], TOKENS)]).await;
    // Through a pod with the session's account.
    let run = |name| {
        let overrides = r#"--overrides={"spec":{"serviceAccountName":"sa-tenant-admin"}}"#;
        ["run", name, "--image=registry.k8s.io/pause", overrides]
    };
    are_refused(kubectl, &[(&run("p"), PODS)]).await;
}

/// Controllers create the pods of tenants, so the policy must match them too.
#[tokio::test]
async fn a_deployment_makes_no_pod_that_carries_the_sessions_account() {
    let world = World::builder().start().await.unwrap();
    let mallory = world.person("mallory").await.unwrap();
    mallory.login(&[]).await.unwrap().success().unwrap();
    let kubectl = mallory.kubectl();
    let deployment = |name: &str, account: &str| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {
                "serviceAccountName": account,
                "containers": [{"name": "c", "image": "registry.k8s.io/pause"}]}}}})
    };
    for (name, account) in [("honest", "default"), ("evil", "sa-tenant-admin")] {
        let deployment = deployment(name, account).to_string();
        kubectl.run_with_input(CREATE, deployment).await.unwrap().success().unwrap();
    }
    let failed = ["get", "events", "--field-selector=reason=FailedCreate"];
    probe::until("the ReplicaSets to try", Duration::from_mins(1), || async {
        let events = kubectl.json(failed).await?["items"].to_string();
        let honest = kubectl.json(["get", "pods", "-l", "app=honest"]).await?;
        let tried = events.contains(PODS) && honest["items"][0].is_object();
        Ok(if tried { Probe::Ready(()) } else { Probe::NotYet(format!("{events} {honest}")) })
    })
    .await
    .unwrap();
    let pods = kubectl.json(["get", "pods", "-l", "app=evil"]).await.unwrap();
    assert_eq!(pods["items"], json!([]));
}

#[tokio::test]
async fn no_binding_names_a_subject_from_outside() {
    let world = World::builder().start().await.unwrap();
    let (mallory, bob) =
        (world.person("mallory").await.unwrap(), world.person("bob").await.unwrap());
    mallory.login(&[]).await.unwrap().success().unwrap();
    bob.login(&[]).await.unwrap().success().unwrap();
    let kubectl = mallory.kubectl();
    let own = format!("--serviceaccount={}:sa-tenant-admin", mallory.namespace());
    let bobs = format!("--serviceaccount={}:sa-tenant-admin", bob.namespace());
    for subject in [
        "--user=bob",
        "--group=system:unauthenticated",
        "--group=system:serviceaccounts",
        "--serviceaccount=kube-system:default",
        &bobs,
        // A second binding for itself would survive the deletion of the broker's.
        &own,
    ] {
        let bind = ["create", "rolebinding", "evil", "--clusterrole=admin", subject];
        are_refused(kubectl, &[(&bind, OUTSIDERS)]).await;
    }
    // First an allowed binding, then a foreign subject added to it.
    kubectl.run(["create", "serviceaccount", "app"]).await.unwrap().success().unwrap();
    let app = format!("--serviceaccount={}:app", mallory.namespace());
    let bind = ["create", "rolebinding", "app", "--clusterrole=view", &app];
    kubectl.run(bind).await.unwrap().success().unwrap();
    let subjects =
        r#"{"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"bob"}]}"#;
    are_refused(
        kubectl,
        &[
            (&["patch", "rolebinding", "app", "-p", subjects], OUTSIDERS),
            (&["delete", "rolebinding", "rb-tenant-admin"], OWN),
            (&["patch", "rolebinding", "rb-tenant-admin", "-p", subjects], OWN),
            (&["delete", "rolebindings", "--all"], OWN),
            (&["delete", "serviceaccount", "sa-tenant-admin"], OBJECTS),
            (&["annotate", "serviceaccount", "sa-tenant-admin", "a=b"], OBJECTS),
        ],
    )
    .await;
    kubectl.run(["get", "pods"]).await.unwrap().success().unwrap();
}

/// The role `admin` may not write quotas and namespaces; a tier's role might by mistake.
#[tokio::test]
async fn labels_and_limits_hold_whatever_the_role_grants() {
    let world = World::builder().start().await.unwrap();
    let mallory = world.person("mallory").await.unwrap();
    mallory.login(&[]).await.unwrap().success().unwrap();
    let (kubectl, namespace) = (mallory.kubectl(), mallory.namespace());
    let unlabel = ["label", "namespace", &namespace, "pod-security.kubernetes.io/enforce-"];
    // The API server admits by the amounts in the status of a quota.
    let status = ["patch", "quota", "tenant-quota", "--subresource=status", "--type=merge", "-p"];
    let status = [&status[..], &[r#"{"status":{"hard":{"pods":"1000"}}}"#]].concat();
    let attempts: [&[&str]; 5] = [
        &unlabel,
        &["delete", "namespace", &namespace],
        &["delete", "quota", "tenant-quota"],
        &["delete", "limitrange", "tenant-limits"],
        &status,
    ];
    for args in attempts {
        are_refused(kubectl, &[(args, "cannot")]).await;
    }
    let admin = world.admin_kubectl().unwrap();
    let account = format!("--serviceaccount={namespace}:sa-tenant-admin");
    let name = format!("too-much-{namespace}");
    let give = ["create", "clusterrolebinding", &name, "--clusterrole=edit-all", &account];
    let role = ["create", "clusterrole", "edit-all", "--verb=*"];
    let resources = "--resource=namespaces,namespaces/status,resourcequotas,\
                     resourcequotas/status,limitranges";
    admin.run(role.into_iter().chain([resources])).await.unwrap().success().unwrap();
    admin.run(give).await.unwrap().success().unwrap();
    kubectl.until_allowed(&["patch", "resourcequotas", "--subresource=status"]).await.unwrap();
    let namespaces = "tenant-guard-namespaces";
    let policies = [namespaces, namespaces, OBJECTS, OBJECTS, OBJECTS];
    for (args, policy) in attempts.into_iter().zip(policies) {
        are_refused(kubectl, &[(args, policy)]).await;
    }
    let other = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": "other", "labels": {"tenant-broker.io/workspace": "x"}}});
    is_refused(kubectl, &CREATE, &other, "tenant-guard-namespaces").await;
    admin.run(["delete", "clusterrolebinding", &name]).await.unwrap().success().unwrap();
    admin.run(["delete", "clusterrole", "edit-all"]).await.unwrap().success().unwrap();
}

#[tokio::test]
async fn the_node_stays_out_of_reach() {
    let world = World::builder().start().await.unwrap();
    let mallory = world.person("mallory").await.unwrap();
    mallory.login(&[]).await.unwrap().success().unwrap();
    for spec in [
        json!({"hostPID": true}),
        json!({"hostNetwork": true}),
        json!({"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}),
        json!({"containers": [{"name": "c", "image": "x", "securityContext": {"privileged": true}}]}),
    ] {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "root"},
            "spec": {"containers": [{"name": "c", "image": "registry.k8s.io/pause"}]}});
        for (key, value) in spec.as_object().unwrap() {
            pod["spec"][key] = value.clone();
        }
        is_refused(mallory.kubectl(), &CREATE, &pod, "PodSecurity").await;
    }
}

#[tokio::test]
async fn ordinary_use_is_not_refused() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    let (kubectl, namespace) = (alice.kubectl(), alice.namespace());
    let app = format!("--serviceaccount={namespace}:app");
    let commands: [&[&str]; 14] = [
        &["create", "deployment", "web", "--image=registry.k8s.io/pause", "--replicas=2"],
        &["expose", "deployment", "web", "--port=80"],
        &["create", "configmap", "c", "--from-literal=a=b"],
        &["create", "secret", "generic", "s", "--from-literal=a=b"],
        &["create", "serviceaccount", "app"],
        &["create", "role", "reader", "--verb=get,list", "--resource=configmaps"],
        &["create", "rolebinding", "reader", "--role=reader", &app],
        &["create", "rolebinding", "editor", "--clusterrole=edit", &app],
        &["annotate", "serviceaccount", "app", "a=b"],
        &[
            "run",
            "p",
            "--image=registry.k8s.io/pause",
            r#"--overrides={"spec":{"serviceAccountName":"app"}}"#,
        ],
        &["create", "job", "j", "--image=registry.k8s.io/pause"],
        &["scale", "deployment", "web", "--replicas=1"],
        &["delete", "rolebinding", "editor"],
        &["delete", "pod", "p", "--now", "--wait=false"],
    ];
    for args in commands {
        let finished = kubectl.run(args).await.unwrap();
        assert!(finished.status.success(), "{args:?}: {}", finished.stderr);
    }
    // A kubelet requests the token for a pod, and programs read it from there.
    let node =
        world.cluster().kubeconfig_for("kubelet", Some("system:nodes"), world.folder()).unwrap();
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3607}});
    let admin = world.admin_kubectl().unwrap();
    // This control plane runs without the node authorizer, so the right comes from a binding.
    let role = format!("node-{namespace}");
    let rights: [&[&str]; 2] = [
        &["create", "clusterrole", &role, "--verb=create", "--resource=serviceaccounts/token"],
        &[
            "create",
            "clusterrolebinding",
            &role,
            &format!("--clusterrole={role}"),
            "--group=system:nodes",
        ],
    ];
    for args in rights {
        admin.run(args).await.unwrap().success().unwrap();
    }
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/app/token");
    let kubelet = world.kubectl_with(&node).unwrap();
    let may = ["create", "serviceaccounts", "--subresource=token", "-n", &namespace];
    kubelet.until_allowed(&may).await.unwrap();
    let token = kubelet
        .run_with_input(["create", "--raw", &path, "-f", "-"], request.to_string())
        .await
        .unwrap();
    for kind in ["clusterrolebinding", "clusterrole"] {
        admin.run(["delete", kind, &role]).await.unwrap().success().unwrap();
    }
    assert!(token.status.success(), "{}", token.stderr);
}
