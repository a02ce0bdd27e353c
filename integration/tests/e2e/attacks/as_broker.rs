//! Attacks with the broker's stolen credential.

use integration::world::World;
use serde_json::json;

use super::{are_refused, is_refused, token_is_refused, until_creation_is_refused};
use crate::{until_accepted, until_refused};

const RBAC: &str = "cannot";
const NAMESPACES: &str = "tenant-broker-fence-namespaces";
const TOKENS: &str = "tenant-tokens";
const OBJECTS: &str = "tenant-broker-fence-objects";
const SUBJECT: &str = "may bind sa-tenant-admin of the same namespace only";
const ROLE: &str = "may bind the ClusterRoles of tiers only: admin";
const SECRETS: &str = "tenant-broker-fence-secrets";
const OUTSIDE: &str = "tenant-broker-fence-outside";
const SUSPENDED: &str = "tenant-suspended";

#[tokio::test]
async fn the_brokers_credential_reads_nothing_beyond_its_tasks() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    let namespace = alice.namespace();
    are_refused(
        &world.broker_kubectl().unwrap(),
        &[
            (&["get", "secrets", "-A"], RBAC),
            (&["get", "secrets", "-n", &namespace], RBAC),
            (&["get", "secrets", "-n", "kube-system"], RBAC),
            (&["get", "pods", "-A"], RBAC),
            (&["get", "pods", "-n", &namespace], RBAC),
            (&["get", "deployments", "-n", &namespace], RBAC),
            (&["get", "configmaps", "-n", &namespace], RBAC),
            (&["get", "validatingadmissionpolicies"], RBAC),
            (&["get", "rolebindings", "-A", "-w", "--output-watch-events"], RBAC),
            (
                &["get", "namespaces", "--as", "admin", "--as-group", "system:masters"],
                "impersonate",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn the_brokers_credential_cannot_change_its_rights() {
    let world = World::builder().start().await.unwrap();
    let rule = r#"[{"op":"add","path":"/rules/-","value":{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}}]"#;
    let binding = |role: &'static str| format!("--clusterrole={role}");
    let (everything, own) = (binding("cluster-admin"), binding("tenant-broker"));
    are_refused(
        &world.broker_kubectl().unwrap(),
        &[
            (&["patch", "clusterrole", "tenant-broker", "--type=json", "-p", rule], RBAC),
            (&["patch", "clusterrole", "admin", "--type=json", "-p", rule], RBAC),
            (&["create", "clusterrolebinding", "evil", &everything, "--user=tenant-broker"], RBAC),
            (&["create", "clusterrolebinding", "evil", &own, "--user=mallory"], RBAC),
            (&["create", "role", "evil", "--verb=get", "--resource=secrets"], RBAC),
            (&["create", "clusterrole", "evil", "--verb=get", "--resource=secrets"], RBAC),
            (&["delete", "validatingadmissionpolicy", "tenant-tokens"], RBAC),
            (&["delete", "validatingadmissionpolicybinding", "tenant-tokens"], RBAC),
            (
                &[
                    "patch",
                    "validatingadmissionpolicybinding",
                    "tenant-pods",
                    "-p",
                    r#"{"spec":{"validationActions":["Warn"]}}"#,
                ],
                RBAC,
            ),
            (
                &[
                    "patch",
                    "validatingadmissionpolicy",
                    "tenant-suspended",
                    "-p",
                    r#"{"spec":{"failurePolicy":"Ignore"}}"#,
                ],
                RBAC,
            ),
        ],
    )
    .await;
}

/// RBAC lets the broker write accounts and bindings in any namespace, because it knows no prefixes:
/// `admin` in kube-system would give control of the cluster.
#[tokio::test]
async fn namespaces_of_others_are_out_of_reach() {
    let world = World::builder().start().await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    // A namespace whose name looks like a tenant's but is not, and one that an attacker would like
    // to adopt.
    let foreign = "tenant-01940000-0000-7000-8000-000000000001";
    for namespace in ["tenant-evil", foreign] {
        admin.run(["create", "namespace", namespace]).await.unwrap().success().unwrap();
        let account = ["create", "serviceaccount", "sa-tenant-admin", "-n", namespace];
        admin.run(account).await.unwrap().success().unwrap();
    }
    // The account name for which RBAC lets the broker request tokens, in the most valuable
    // namespace.
    let account = ["create", "serviceaccount", "sa-tenant-admin", "-n", "kube-system"];
    admin.run(account).await.unwrap().success().unwrap();
    let broker = world.broker_kubectl().unwrap();
    for namespace in ["kube-system", "default", "tenant-evil", foreign] {
        let subject = format!("--serviceaccount={namespace}:sa-tenant-admin");
        let binding = [
            "create",
            "rolebinding",
            "rb-tenant-admin",
            "--clusterrole=admin",
            &subject,
            "-n",
            namespace,
        ];
        let quota = ["create", "quota", "tenant-quota", "--hard=pods=0", "-n", namespace];
        let label = ["label", "namespace", namespace, "tenant-broker.io/workspace=mine"];
        let suspend = ["label", "namespace", namespace, "tenant-broker.io/suspended=true"];
        are_refused(
            &broker,
            &[
                (&["create", "token", "default", "-n", namespace], RBAC),
                (&binding, OUTSIDE),
                (&quota, OUTSIDE),
                (&label, NAMESPACES),
                (&suspend, NAMESPACES),
                (&["delete", "namespace", namespace], RBAC),
            ],
        )
        .await;
        if namespace == "default" {
            let create = ["create", "serviceaccount", "sa-tenant-admin", "-n", namespace];
            are_refused(&broker, &[(&create, OUTSIDE)]).await;
        } else {
            let token = ["create", "token", "sa-tenant-admin", "-n", namespace];
            let delete = ["delete", "serviceaccount", "sa-tenant-admin", "-n", namespace];
            are_refused(&broker, &[(&token, OUTSIDE)]).await;
            if namespace == foreign {
                // Removing the label from a tenant's namespace keeps no right alive: the broker may
                // revoke access wherever the name is a tenant's.
                broker.run(delete).await.unwrap().success().unwrap();
            } else {
                are_refused(&broker, &[(&delete, OUTSIDE)]).await;
            }
        }
    }
    are_refused(
        &broker,
        &[
            (&["create", "token", "namespace-controller", "-n", "kube-system"], RBAC),
            (&["create", "token", "clusterrole-aggregation-controller", "-n", "kube-system"], RBAC),
            (&["delete", "rolebindings", "--all", "-n", "kube-system"], OUTSIDE),
        ],
    )
    .await;
    admin.run(["delete", "serviceaccount", "sa-tenant-admin", "-n", "kube-system"]).await.unwrap();
}

#[tokio::test]
async fn the_brokers_credential_creates_tenant_namespaces_only() {
    let world = World::builder().start().await.unwrap();
    let broker = world.broker_kubectl().unwrap();
    let name = "tenant-01940000-0000-7000-8000-000000000002";
    let good = json!({
        "app.kubernetes.io/managed-by": "tenant-broker",
        "tenant-broker.io/workspace": "01940000-0000-7000-8000-000000000003",
        "tenant-broker.io/tier": "basic",
        "pod-security.kubernetes.io/enforce": "baseline",
    });
    let namespace = |name: &str, labels: &serde_json::Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    let create = ["create", "-f", "-"];
    for name in ["evil", "tenant-evil", "kube-tenant", "tenant-0194000000007000800000000000002"] {
        is_refused(&broker, &create, &namespace(name, &good), NAMESPACES).await;
    }
    for (label, value) in [
        ("app.kubernetes.io/managed-by", json!("helm")),
        ("pod-security.kubernetes.io/enforce", json!("privileged")),
        ("pod-security.kubernetes.io/enforce", json!(null)),
        ("pod-security.kubernetes.io/enforce-version", json!("v1.0")),
        ("pod-security.kubernetes.io/enforce-version", json!("latest")),
        ("tenant-broker.io/workspace", json!(null)),
        // Labels that other software trusts: network policies, exemptions of policy engines, access
        // to devices.
        ("name", json!("monitoring")),
        ("admission.gatekeeper.sh/ignore", json!("")),
        ("resource.kubernetes.io/admin-access", json!("true")),
        ("tenant-broker.io/suspended", json!("false")),
        ("tenant-broker.io/tier", json!(null)),
    ] {
        let mut labels = good.clone();
        labels[label] = value;
        labels.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        is_refused(&broker, &create, &namespace(name, &labels), NAMESPACES).await;
    }
    for metadata in [
        json!({"annotations": {"scheduler.alpha.kubernetes.io/node-selector": "pool=secret"}}),
        json!({"finalizers": ["a.example.com/b"]}),
        json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "default",
            "uid": "6ba7b810-9dad-11d1-80b4-00c04fd430c8"}]}),
    ] {
        let mut other = namespace(name, &good);
        other["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        is_refused(&broker, &create, &other, NAMESPACES).await;
    }
    let mut held = namespace(name, &good);
    held["spec"] = json!({"finalizers": ["a.example.com/b"]});
    is_refused(&broker, &create, &held, NAMESPACES).await;
    // The same request without the forbidden field is allowed, so that field was refused.
    let dry = ["create", "--dry-run=server", "-f", "-"];
    let made = broker.run_with_input(dry, namespace(name, &good).to_string()).await.unwrap();
    made.success().unwrap();
}

#[tokio::test]
async fn in_a_tenants_namespace_the_brokers_credential_does_its_work_and_no_more() {
    // The broker would restore what the test changes.
    let world = World::builder().setting("drift_seconds", 3600).start().await.unwrap();
    let (alice, bob) = (world.person("alice").await.unwrap(), world.person("bob").await.unwrap());
    alice.login(&[]).await.unwrap().success().unwrap();
    bob.login(&[]).await.unwrap().success().unwrap();
    let namespace = alice.namespace();
    let broker = world.broker_kubectl().unwrap();

    let audience = "https://kubernetes.default.svc";
    for spec in [
        json!({"expirationSeconds": 7201}),
        json!({"expirationSeconds": 315_360_000}),
        // Requests an hour and gets a year.
        json!({"expirationSeconds": 3607, "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}),
        json!({"expirationSeconds": 3600, "audiences": ["sts.amazonaws.com"]}),
        json!({"expirationSeconds": 3600, "audiences": [audience, "vault"]}),
    ] {
        token_is_refused(&broker, &namespace, "sa-tenant-admin", &spec, TOKENS).await;
    }
    token_is_refused(&broker, &namespace, "default", &json!({}), RBAC).await;

    let to = |namespace: &str| format!("--serviceaccount={namespace}:sa-tenant-admin");
    let (alices, bobs) = (to(&namespace), to(&bob.namespace()));
    // A suspension deletes all bindings of a namespace one by one; the broker may not delete them
    // as a collection.
    let bindings =
        format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
    are_refused(&broker, &[(&["delete", "--raw", &bindings], RBAC)]).await;
    let unbind = ["delete", "rolebindings", "--all", "-n", &namespace];
    broker.run(unbind).await.unwrap().success().unwrap();
    let bind = |name: &'static str, role: &'static str, subjects: &[&str]| {
        let mut args = vec!["create", "rolebinding", name, role];
        args.extend(subjects);
        args.extend(["-n", &namespace]);
        args.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    for (args, who) in [
        (bind("evil", "--clusterrole=admin", &[&alices]), "may not write rolebindings evil"),
        (bind("tenant-quota", "--clusterrole=admin", &[&alices]), "may not write rolebindings"),
        (bind("rb-tenant-admin", "--clusterrole=admin", &[&bobs]), SUBJECT),
        (bind("rb-tenant-admin", "--clusterrole=admin", &[&alices, &bobs]), SUBJECT),
        (bind("rb-tenant-admin", "--clusterrole=admin", &["--user=tenant-broker"]), SUBJECT),
        (
            bind("rb-tenant-admin", "--clusterrole=admin", &["--group=system:authenticated"]),
            OBJECTS,
        ),
        (bind("rb-tenant-admin", "--clusterrole=cluster-admin", &[&alices]), "not currently held"),
        (bind("rb-tenant-admin", "--clusterrole=tenant-broker", &[&alices]), ROLE),
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        are_refused(&broker, &[(&args, who)]).await;
    }
    let good = bind("rb-tenant-admin", "--clusterrole=admin", &[&alices]);
    broker.run(good).await.unwrap().success().unwrap();
    let label = |text: &'static str| {
        ["label", "--overwrite", "namespace", &namespace, text].map(str::to_owned)
    };
    for text in [
        "pod-security.kubernetes.io/enforce=privileged",
        "pod-security.kubernetes.io/enforce-",
        "app.kubernetes.io/managed-by-",
        "tenant-broker.io/workspace=other",
        "a=b",
    ] {
        let args = label(text);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        are_refused(&broker, &[(&args, NAMESPACES)]).await;
    }
    are_refused(
        &broker,
        &[
            (&["annotate", "namespace", &namespace, "a=b"], NAMESPACES),
            (&["create", "serviceaccount", "other", "-n", &namespace], OBJECTS),
            (&["create", "quota", "other", "--hard=pods=1", "-n", &namespace], OBJECTS),
            (&["delete", "serviceaccount", "default", "-n", &namespace], RBAC),
            (&["delete", "quota", "tenant-quota", "-n", &namespace], RBAC),
            (&["delete", "namespace", &namespace], RBAC),
            (&["create", "deployment", "x", "--image=x", "-n", &namespace], RBAC),
            (&["create", "secret", "generic", "x", "-n", &namespace], RBAC),
        ],
    )
    .await;

    // Suspended: the broker grants no rights and issues no tokens until it removes the label.
    let suspend = label("tenant-broker.io/suspended=true");
    broker.run(suspend).await.unwrap().success().unwrap();
    broker.run(unbind).await.unwrap().success().unwrap();
    let again = bind("rb-tenant-admin", "--clusterrole=admin", &[&alices]);
    let again: Vec<&str> = again.iter().map(String::as_str).collect();
    // Admission follows the label a moment later.
    let dry = [&again[..], &["--dry-run=server"]].concat();
    until_refused(&broker, &dry, SUSPENDED).await;
    are_refused(
        &broker,
        &[
            (&again, SUSPENDED),
            (&["create", "token", "sa-tenant-admin", "-n", &namespace], SUSPENDED),
        ],
    )
    .await;
    broker.run(label("tenant-broker.io/suspended-")).await.unwrap().success().unwrap();
    until_accepted(&broker, &dry).await;
    broker.run(again).await.unwrap().success().unwrap();
    alice.kubectl().until_allowed(&["list", "pods"]).await.unwrap();
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
}

/// With the right on Secrets (`cluster.bind_tokens_to_secrets`) an attacker can create and delete
/// empty ones for tokens, and nothing else.
#[tokio::test]
async fn the_right_on_secrets_covers_empty_ones_only() {
    let world = World::builder().bind_tokens().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    let api = alice.api().await.unwrap();
    let workspace = api.workspaces(false).await.unwrap().items.remove(0);
    let namespace = alice.namespace();
    let own = ["create", "secret", "generic", "own", "--from-literal=password=hunter2"];
    alice.kubectl().run(own).await.unwrap().success().unwrap();
    let (admin, broker) = (world.admin_kubectl().unwrap(), world.broker_kubectl().unwrap());
    // A Secret that looks like the broker's in a namespace that is not a tenant's, and one with
    // data.
    let good = |namespace: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true,
        "metadata": {"name": "tenant-credential-x", "namespace": namespace, "labels": {
            "app.kubernetes.io/managed-by": "tenant-broker",
            "tenant-broker.io/workspace": workspace.id,
        }}})
    };
    let create = ["create", "-f", "-"];
    admin.run_with_input(create, good("kube-system").to_string()).await.unwrap().success().unwrap();
    let mut full = good(&namespace);
    full["metadata"]["name"] = "tenant-credential-full".into();
    full["data"] = json!({"a": "Yg=="});
    admin.run_with_input(create, full.to_string()).await.unwrap().success().unwrap();

    are_refused(
        &broker,
        &[
            (&["get", "secret", "own", "-n", &namespace], RBAC),
            (&["get", "secrets", "-n", &namespace], RBAC),
            (&["get", "secrets", "-A", "-w"], RBAC),
            (&["delete", "secrets", "--all", "-n", &namespace], RBAC),
            (&["label", "secret", "own", "a=b", "-n", &namespace], RBAC),
        ],
    )
    .await;
    // kubectl would read it first.
    let delete =
        |namespace: &str, name: &str| format!("/api/v1/namespaces/{namespace}/secrets/{name}");
    for path in [
        delete(&namespace, "own"),
        delete(&namespace, "tenant-credential-full"),
        delete("kube-system", "tenant-credential-x"),
        format!("{}?dryRun=All", delete(&namespace, "own")),
    ] {
        are_refused(&broker, &[(&["delete", "--raw", &path], SECRETS)]).await;
    }
    let all = format!("/api/v1/namespaces/{namespace}/secrets");
    are_refused(&broker, &[(&["delete", "--raw", &all], RBAC)]).await;

    let changed = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut secret = good(&namespace);
        change(&mut secret);
        secret
    };
    let attempts = [
        good("kube-system"),
        good("default"),
        changed(&|it| it["data"] = json!({"a": "Yg=="})),
        changed(&|it| it["stringData"] = json!({"a": "b"})),
        changed(&|it| it["type"] = "bootstrap.kubernetes.io/token".into()),
        changed(&|it| it["metadata"]["name"] = "own2".into()),
        changed(&|it| it["metadata"]["labels"] = json!({})),
        changed(&|it| it["metadata"]["labels"]["tenant-broker.io/workspace"] = "other".into()),
        changed(&|it| it["metadata"]["finalizers"] = json!(["a.example.com/b"])),
        changed(&|it| it["immutable"] = false.into()),
        changed(&|it| {
            it["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1",
                "kind": "ConfigMap", "name": "x", "uid": "6ba7b810-9dad-11d1-80b4-00c04fd430c8"}]);
        }),
    ];
    for secret in attempts {
        is_refused(&broker, &create, &secret, SECRETS).await;
    }
    let token = changed(&|it| {
        it["type"] = "kubernetes.io/service-account-token".into();
        it["metadata"]["annotations"] =
            json!({"kubernetes.io/service-account.name": "sa-tenant-admin"});
    });
    // Two policies refuse it, for the broker and for everybody; the API server names either.
    is_refused(&broker, &create, &token, "-secrets' with binding").await;
    // The same request without the forbidden field is allowed, so that field was refused.
    broker.run_with_input(create, good(&namespace).to_string()).await.unwrap().success().unwrap();
    let path = delete(&namespace, "tenant-credential-x");
    broker.run(["delete", "--raw", &path]).await.unwrap().success().unwrap();
    // Suspended: nothing can be created, and existing Secrets can be deleted.
    let path = delete(&namespace, "tenant-credential-y");
    let mut other = good(&namespace);
    other["metadata"]["name"] = "tenant-credential-y".into();
    broker.run_with_input(create, other.to_string()).await.unwrap().success().unwrap();
    let suspend = ["label", "namespace", &namespace, "tenant-broker.io/suspended=true"];
    broker.run(suspend).await.unwrap().success().unwrap();
    until_creation_is_refused(&broker, &good(&namespace), SUSPENDED).await;
    is_refused(&broker, &create, &good(&namespace), SUSPENDED).await;
    broker.run(["delete", "--raw", &path]).await.unwrap().success().unwrap();
}
