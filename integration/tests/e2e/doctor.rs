//! `tenant-broker doctor`: its checks of a sound cluster, and of others.

use integration::world::World;
use serde_json::Value;
use std::fmt::Write as _;

use crate::until_logged;

/// Runs the doctor, and returns whether it passed and its checks.
pub(crate) async fn doctor(world: &World, args: &[&str]) -> (bool, Vec<Value>) {
    let all: Vec<&str> = ["doctor", "-o", "json"].iter().chain(args).copied().collect();
    let finished = world.broker().run(&all).await.unwrap();
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(finished.status.success(), report["passed"].as_bool().unwrap(), "{report}");
    (finished.status.success(), report["checks"].as_array().unwrap().clone())
}

/// Returns the checks with this outcome, as text.
pub(crate) fn with(outcome: &str, checks: &[Value]) -> Vec<String> {
    checks
        .iter()
        .filter(|check| check["outcome"] == outcome)
        .map(|check| {
            format!("{}: {}", check["check"].as_str().unwrap(), check["detail"].as_str().unwrap())
        })
        .collect()
}

fn has(lines: &[String], part: &str) {
    assert!(lines.iter().any(|line| line.contains(part)), "{part} is not in {lines:#?}");
}

#[tokio::test]
async fn a_sound_cluster_passes_and_nothing_is_left_behind() {
    let world = World::builder().own_control_plane().start().await.unwrap();
    let before = super::object(&world, &["namespaces"]).await.unwrap().unwrap()["items"].clone();
    let (passed, checks) = doctor(&world, &[]).await;
    assert!(passed, "{:#?}", with("fail", &checks));
    has(&with("warn", &checks), "there is no workspace yet");
    let after = super::object(&world, &["namespaces"]).await.unwrap().unwrap()["items"].clone();
    assert_eq!(before.as_array().map(Vec::len), after.as_array().map(Vec::len));

    world.person("alice").await.unwrap().login(&[]).await.unwrap().success().unwrap();
    let (passed, checks) = doctor(&world, &[]).await;
    assert!(passed, "{:#?}", with("fail", &checks));
    assert_eq!(with("warn", &checks), Vec::<String>::new());
    has(&with("pass", &checks), "it signs tokens with an EC key: ES256");
    let table = world.broker().run(&["doctor"]).await.unwrap().success().unwrap();
    assert!(table.stdout.contains(" passed, 0 to look at, 0 failed"), "{}", table.stdout);
    assert!(!table.stdout.contains("eyJ"), "no token is shown");
}

#[tokio::test]
async fn a_deleted_service_account_is_not_taken_for_a_missing_workspace() {
    // The drift detection would recreate it.
    let builder = World::builder().own_control_plane().setting("drift_seconds", 86_400);
    let world = builder.start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    let namespace = alice.namespace();
    let delete = ["delete", "serviceaccount", "sa-tenant-admin", "-n", namespace.as_str()];
    world.admin_kubectl().unwrap().run(delete).await.unwrap().success().unwrap();
    let (passed, checks) = doctor(&world, &[]).await;
    assert!(passed, "{:#?}", with("fail", &checks));
    has(&with("warn", &checks), &format!("{namespace} has no sa-tenant-admin to try it with"));
}

#[tokio::test]
async fn weakened_policies_are_found() {
    let world = World::builder().own_control_plane().start().await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    let commands: [&[&str]; 4] = [
        &["delete", "validatingadmissionpolicybinding", "tenant-broker-fence-outside"],
        &[
            "patch",
            "validatingadmissionpolicybinding",
            "tenant-guard-secrets",
            "-p",
            r#"{"spec":{"validationActions":["Warn"]}}"#,
        ],
        &[
            "create",
            "clusterrolebinding",
            "oops",
            "--clusterrole=cluster-admin",
            "--user=tenant-broker",
        ],
        &["delete", "validatingadmissionpolicy", "tenant-pods"],
    ];
    for args in commands {
        admin.run(args).await.unwrap().success().unwrap();
    }
    // The API server reloads changed policies once a second.
    let failed = integration::probe::until(
        "the fence to be gone",
        std::time::Duration::from_mins(1),
        || async {
            let (_, checks) = doctor(&world, &[]).await;
            let failed = with("fail", &checks);
            let gone = failed.iter().any(|line| line.contains("a binding in kube-system"));
            Ok(if gone {
                integration::probe::Probe::Ready(failed)
            } else {
                integration::probe::Probe::NotYet(failed.join("\n"))
            })
        },
    )
    .await
    .unwrap();
    for part in [
        "is not cluster-admin",
        "may not get secrets in kube-system",
        "may not bind clusterroles cluster-admin",
        "may not create tenants.tenant-broker.io",
        "may not update tenants.capsule.clastix.io",
        "may not deletecollection tenants.tenant-broker.io",
        "the binding tenant-broker-fence-outside is missing",
        "the binding tenant-guard-secrets is not as this version makes it",
        "the policy tenant-pods is missing",
        "is refused: a binding in default",
    ] {
        has(&failed, part);
    }
}

#[tokio::test]
async fn a_low_maximum_and_another_name_are_found() {
    let world = World::builder()
        .apiserver_flag("--service-account-max-token-expiration=1h")
        .start()
        .await
        .unwrap();
    world.person("alice").await.unwrap().login(&[]).await.unwrap().success().unwrap();
    let (passed, checks) = doctor(&world, &[]).await;
    assert!(passed, "{:#?}", with("fail", &checks));
    has(&with("warn", &checks), "the API server allows 3600 s");

    let (passed, checks) = doctor(&world, &["--set=cluster.identity=somebody-else"]).await;
    assert!(!passed);
    has(&with("fail", &checks), "knows the broker as tenant-broker");

    // A cluster that is unreachable.
    let nowhere = world.folder().join("nowhere.kubeconfig");
    let there = std::fs::read_to_string(world.cluster().broker_kubeconfig()).unwrap();
    let url = world.cluster().url().as_str().trim_end_matches('/').to_owned();
    std::fs::write(&nowhere, there.replace(&url, "https://127.0.0.1:9")).unwrap();
    let file = format!("--set=cluster.kubeconfig={}", nowhere.display());
    let (passed, checks) = doctor(&world, &[&file]).await;
    assert!(!passed);
    has(&with("fail", &checks), "the API server answers");
}

/// Adds a ClusterRole whose label aggregates it into `admin` without a change of `admin`.
async fn aggregate(world: &World, name: &str, group: &str, resource: &str) {
    let role = serde_json::json!({"apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}},
        "rules": [{"apiGroups": [group], "resources": [resource], "verbs": ["get", "create"]}]});
    let admin = world.admin_kubectl().unwrap();
    let args = ["create", "-f", "-"];
    admin.run_with_input(args, role.to_string()).await.unwrap().success().unwrap();
}

#[tokio::test]
async fn rights_of_a_role_beyond_the_built_in_admin_are_listed() {
    let world =
        World::builder().own_control_plane().setting("sweep_seconds", 1).start().await.unwrap();
    let (_, checks) = doctor(&world, &[]).await;
    has(
        &with("pass", &checks),
        "role admin was compared with the built-in admin: it grants no further permission",
    );

    aggregate(&world, "metrics", "metrics.k8s.io", "pods").await;
    aggregate(&world, "flux-edit", "kustomize.toolkit.fluxcd.io", "kustomizations").await;
    let checks = integration::probe::until(
        "the role to be aggregated",
        std::time::Duration::from_secs(30),
        || async {
            let (passed, checks) = doctor(&world, &[]).await;
            assert!(passed, "a warning is no failure");
            let warned = with("warn", &checks).iter().any(|line| line.contains("kustomizations"));
            Ok(if warned {
                integration::probe::Probe::Ready(checks)
            } else {
                integration::probe::Probe::NotYet(with("warn", &checks).join("\n"))
            })
        },
    )
    .await
    .unwrap();
    has(
        &with("warn", &checks),
        "the tiers' role admin grants no known escape from the namespace: \
         kustomizations.kustomize.toolkit.fluxcd.io (create, get): Flux applies it as cluster-admin",
    );
    has(&with("pass", &checks), "pods.metrics.k8s.io (create, get)");

    // The running broker reports it too.
    let broker = world.broker();
    integration::probe::until("the metric", std::time::Duration::from_secs(30), || async {
        let metrics = broker.metrics().await?;
        let wanted = "tenant_broker_role_rights_beyond_admin{role=\"admin\",leads_out=\"yes\"} 1";
        let there = metrics.lines().any(|line| line == wanted);
        Ok(if there {
            integration::probe::Probe::Ready(())
        } else {
            integration::probe::Probe::NotYet(metrics)
        })
    })
    .await
    .unwrap();
    until_logged(broker, "a tier's ClusterRole allows an escape from the namespace").await;

    // A role that does not exist, and one that the broker may not read.
    let (passed, checks) = doctor(&world, &["--set=tiers.gold.role=edit"]).await;
    assert!(!passed);
    has(&with("fail", &checks), "the tiers' role edit can be read: the broker may not");
}

/// Compares the table of the built-in `admin` with the API server's role, right by right.
#[tokio::test]
async fn the_table_of_the_built_in_admin_is_that_of_the_api_server() {
    use std::collections::{BTreeMap, BTreeSet};

    let world = World::builder().start().await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    let mut rights: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for part in ["admin", "edit", "view"] {
        let name = format!("system:aggregate-to-{part}");
        let role = admin.json(["get", "clusterrole", &name]).await.unwrap();
        let texts = |value: &Value| -> Vec<String> {
            let items = value.as_array().into_iter().flatten();
            items.map(|item| item.as_str().unwrap().to_owned()).collect()
        };
        for rule in role["rules"].as_array().unwrap() {
            for group in texts(&rule["apiGroups"]) {
                let group = if group.is_empty() { "core".to_owned() } else { group };
                for resource in texts(&rule["resources"]) {
                    let verbs = rights.entry((group.clone(), resource)).or_default();
                    verbs.extend(texts(&rule["verbs"]));
                }
            }
        }
    }
    let mut table = String::new();
    for ((group, resource), verbs) in rights {
        let verbs: Vec<String> = verbs.into_iter().collect();
        writeln!(table, "{group} {resource} {}", verbs.join(" ")).unwrap();
    }
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../broker/src/tier_role/builtin_admin.txt");
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap();
    assert!(there == table, "{} is not what the API server says:\n{table}", path.display());
}

#[tokio::test]
async fn bindings_that_would_survive_their_deletion_are_found_before_a_suspension() {
    let world = World::builder().own_control_plane().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    let (_, checks) = doctor(&world, &[]).await;
    has(&with("pass", &checks), "no RoleBinding of a tenant has finalizers or owners");

    // A binding from before the policies, or an operator's.
    let admin = world.admin_kubectl().unwrap();
    let namespace = alice.namespace();
    for (place, name) in [(namespace.as_str(), "held"), ("default", "elsewhere")] {
        let binding = serde_json::json!({"apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, "finalizers": ["x.example/keep"]},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "view"}});
        let create = ["create", "-n", place, "-f", "-"];
        admin.run_with_input(create, binding.to_string()).await.unwrap().success().unwrap();
    }
    // A namespace whose workspace is not in the database, as after the restore of an older backup.
    let workspace = "tenant-broker.io/workspace";
    let orphan = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": "tenant-of-nobody",
        "labels": {workspace: "0ce0d5a0-0000-4000-8000-000000000000"}}});
    let create = ["create", "-f", "-"];
    admin.run_with_input(create, orphan.to_string()).await.unwrap().success().unwrap();
    let (passed, checks) = doctor(&world, &[]).await;
    assert!(passed, "{:#?}", with("fail", &checks));
    let warned = with("warn", &checks);
    has(&warned, &format!("1 have, {namespace}/held among them"));
    has(&warned, "1 have none, tenant-of-nobody among them");
}

#[tokio::test]
async fn namespaces_that_a_host_rule_misses_are_found() {
    let world = World::builder()
        .installed("tiers.basic.ingress_host_suffix", ".{namespace}.apps.example.com")
        .start()
        .await
        .unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    let (passed, checks) = doctor(&world, &[]).await;
    assert!(passed, "{:#?}", with("fail", &checks));
    // The namespace as an earlier version created it.
    let label = ["label", "namespace", &alice.namespace(), "tenant-broker.io/tier-"];
    world.admin_kubectl().unwrap().run(label).await.unwrap().success().unwrap();
    let (passed, checks) = doctor(&world, &[]).await;
    assert!(!passed);
    has(
        &with("fail", &checks),
        &format!("1 have no label of their tier, such as {}", alice.namespace()),
    );
}
