//! `tenant-broker install`: print, compare, apply, remove.

use std::time::Duration;

use integration::binaries::Binaries;
use integration::probe::{self, Probe};
use integration::process::Finished;
use integration::world::World;

/// Time limit of a command that only prints.
const PRINT_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs `tenant-broker install` with an administrator's kubeconfig.
pub(super) async fn install(world: &World, args: &[&str]) -> Finished {
    let admin = world.cluster().admin_kubeconfig().display().to_string();
    let all: Vec<&str> = ["install", "--kubeconfig", &admin].iter().chain(args).copied().collect();
    world.broker().run(&all).await.unwrap()
}

#[tokio::test]
async fn installed_objects_are_compared_repaired_and_removed_but_tenants_stay() {
    let world = World::builder().own_control_plane().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    // Her token is cached before the broker loses the right to request one.
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
    let admin = world.admin_kubectl().unwrap();

    let same = install(&world, &["--diff"]).await.success().unwrap();
    assert_eq!(same.stdout, "");
    let again = install(&world, &["--apply"]).await.success().unwrap();
    assert!(again.stdout.lines().all(|line| line.ends_with(" unchanged")), "{}", again.stdout);

    // A well-meant manual change, and the commands that show and undo it.
    let ignore = r#"{"spec":{"failurePolicy":"Ignore"}}"#;
    let weaken = ["patch", "validatingadmissionpolicy", "tenant-pods", "-p", ignore];
    admin.run(weaken).await.unwrap().success().unwrap();
    let more = r#"[{"op":"add","path":"/rules/-","value":{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}}]"#;
    let widen = ["patch", "clusterrole", "tenant-broker", "--type=json", "-p", more];
    admin.run(widen).await.unwrap().success().unwrap();
    let differs = install(&world, &["--diff"]).await;
    assert_eq!(differs.status.code(), Some(1), "{}", differs.stderr);
    for line in ["-  failurePolicy: Ignore", "+  failurePolicy: Fail", "-  - secrets"] {
        assert!(differs.stdout.lines().any(|there| there == line), "{line}: {}", differs.stdout);
    }
    let repaired = install(&world, &["--apply"]).await.success().unwrap();
    for line in
        ["ValidatingAdmissionPolicy tenant-pods changed", "ClusterRole tenant-broker changed"]
    {
        assert!(repaired.stdout.lines().any(|there| there == line), "{}", repaired.stdout);
    }
    assert_eq!(install(&world, &["--diff"]).await.success().unwrap().stdout, "");

    // FlowSchemas are created on request, and removed otherwise.
    let with = install(&world, &["--apply", "--flow-schema"]).await.success().unwrap();
    assert!(with.stdout.contains("FlowSchema tenant-broker-kill created"), "{}", with.stdout);
    let there = install(&world, &["--diff", "--flow-schema"]).await.success().unwrap();
    assert_eq!(there.stdout, "");
    requests_of_a_suspension_have_a_priority_level_of_their_own(&world).await;
    let without = install(&world, &["--apply"]).await.success().unwrap();
    assert!(without.stdout.contains("FlowSchema tenant-broker-kill deleted"), "{}", without.stdout);

    let gone = install(&world, &["--uninstall"]).await.success().unwrap();
    assert!(gone.stdout.contains("1 namespaces of tenants stay"), "{}", gone.stdout);
    for kind in ["validatingadmissionpolicies", "validatingadmissionpolicybindings"] {
        let left = admin.run(["get", kind, "-o", "name"]).await.unwrap().success().unwrap();
        assert!(!left.stdout.contains("tenant"), "{}", left.stdout);
    }
    let role = admin.run(["get", "clusterrole", "tenant-broker"]).await.unwrap();
    assert!(role.stderr.contains("NotFound"), "{}", role.stderr);
    // The tenant keeps her own rights.
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
}

/// The API server names the `FlowSchema` of a request in a header of the response. What does not exist,
/// or RBAC refuses, has one as well.
async fn requests_of_a_suspension_have_a_priority_level_of_their_own(world: &World) {
    let (admin, broker) = (world.admin_kubectl().unwrap(), world.broker_kubectl().unwrap());
    let mut uids = Vec::new();
    for name in ["tenant-broker-kill", "tenant-broker"] {
        let uid = ["get", "flowschema", name, "-o", "jsonpath={.metadata.uid}"];
        uids.push(admin.run(uid).await.unwrap().success().unwrap().stdout.to_lowercase());
    }
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let binding = format!("{rbac}/x");
    let [account, quota] = ["serviceaccounts", "resourcequotas"]
        .map(|kind| format!("/api/v1/namespaces/default/{kind}/x"));
    // kubectl sends one request with `--raw`, and asks for nothing else.
    for (args, uid) in [
        (["get", "--raw", "/api/v1/namespaces/default", "-v=8"], &uids[0]),
        (["get", "--raw", rbac, "-v=8"], &uids[0]),
        (["get", "--raw", &binding, "-v=8"], &uids[0]),
        (["delete", "--raw", &binding, "-v=8"], &uids[0]),
        (["get", "--raw", &account, "-v=8"], &uids[0]),
        (["delete", "--raw", &account, "-v=8"], &uids[0]),
        (["get", "--raw", &quota, "-v=8"], &uids[1]),
    ] {
        // The API server knows a new FlowSchema a moment later.
        probe::until("the FlowSchema of a request", PRINT_TIMEOUT, || async {
            let log = broker.run(args).await?.stderr.to_lowercase();
            let header = log.lines().rfind(|line| line.contains("x-kubernetes-pf-flowschema-uid"));
            let is_it = header.is_some_and(|line| line.contains(uid.as_str()));
            Ok(if is_it { Probe::Ready(()) } else { Probe::NotYet(format!("{args:?}: {log}")) })
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn the_manifest_follows_the_configuration_and_needs_an_administrator_to_apply() {
    let world = World::builder().start().await.unwrap();
    let settings = [
        "--set=tiers.gold.role=gold-role",
        "--set=tiers.gold.pod_security=restricted",
        "--set=cluster.identity=system:serviceaccount:brokers:tenant-broker",
        "--set=cluster.audiences=https://one,https://two",
        "--flow-schema",
    ];
    let printed = install(&world, &settings).await.success().unwrap().stdout;
    for part in [
        r#"resourceNames: ["admin", "gold-role"]"#,
        r#"in ["admin", "gold-role"]"#,
        r#"in ["baseline", "restricted"]"#,
        r#"request.userInfo.username == "system:serviceaccount:brokers:tenant-broker""#,
        r#"object.spec.audiences == ["https://one", "https://two"]"#,
        "- kind: ServiceAccount\n  namespace: \"brokers\"\n  name: \"tenant-broker\"\n",
        "serviceAccount: {namespace: \"brokers\", name: \"tenant-broker\"}",
    ] {
        assert!(printed.contains(part), "{part} is not in:\n{printed}");
    }
    let admin = world.admin_kubectl().unwrap();
    admin.run(["create", "namespace", "brokers"]).await.unwrap().success().unwrap();
    let dry = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-"];
    admin.run_with_input(dry, printed).await.unwrap().success().unwrap();

    let broker = world.cluster().broker_kubeconfig().display().to_string();
    let refused =
        world.broker().run(&["install", "--apply", "--kubeconfig", &broker]).await.unwrap();
    assert!(!refused.status.success());
    assert!(refused.stderr.contains("cannot"), "{}", refused.stderr);
}

#[tokio::test]
async fn other_audiences_of_the_api_server_cause_a_warning() {
    let world = World::builder().start().await.unwrap();
    let same = install(&world, &["--diff"]).await;
    assert!(!same.stderr.contains("audiences"), "{}", same.stderr);
    let other = install(&world, &["--diff", "--set=cluster.audiences=https://other"]).await;
    let warning = "warning: tokens of this API server have the audiences \
                   [\"https://kubernetes.default.svc\"], and cluster.audiences is \
                   [\"https://other\"]";
    assert!(other.stderr.contains(warning), "{}", other.stderr);
    let broker = world.cluster().broker_kubeconfig().display().to_string();
    let refused =
        world.broker().run(&["install", "--diff", "--kubeconfig", &broker]).await.unwrap();
    assert!(refused.stderr.contains("cannot compare cluster.audiences"), "{}", refused.stderr);
}

#[tokio::test]
async fn a_configuration_file_without_settings_causes_a_warning() {
    let world = World::builder().start().await.unwrap();
    let file = world.folder().join("empty.toml");
    let program = Binaries::shared().await.unwrap().tenant_broker();
    let admin = world.admin_kubectl().unwrap();
    for (text, warns) in [("", true), ("# public_url = \"\"\n", true), ("[tiers.basic]\n", false)] {
        std::fs::write(&file, text).unwrap();
        let install = admin.other(&program).args(["install", "--config"]).arg(&file);
        let printed = install.run(PRINT_TIMEOUT).await.unwrap().success().unwrap();
        assert!(printed.stdout.contains("kind: ClusterRole"), "{text:?}: {}", printed.stdout);
        let warning = format!("warning: {} has no settings", file.display());
        assert_eq!(printed.stderr.contains(&warning), warns, "{text:?}: {}", printed.stderr);
    }
}

#[tokio::test]
async fn the_cluster_signs_the_brokers_credential() {
    use std::os::unix::fs::PermissionsExt as _;

    let world = World::builder().start().await.unwrap();
    let file = world.folder().join("new.kubeconfig");
    let args = ["--apply", "--credential", file.to_str().unwrap(), "--credential-days", "1"];
    let made = install(&world, &args).await.success().unwrap();
    assert!(made.stdout.contains("new.kubeconfig written: the credential of tenant-broker"));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    // The identity is the broker's user, without a group, and sufficient to serve.
    let kubectl = world.kubectl_with(&file).unwrap();
    let who = kubectl.json(["auth", "whoami"]).await.unwrap();
    assert_eq!(who["status"]["userInfo"]["username"], "tenant-broker", "{who}");
    assert_eq!(who["status"]["userInfo"]["groups"], serde_json::json!(["system:authenticated"]));
    let broker = world.broker();
    broker.stop().await.unwrap();
    broker.use_kubeconfig(&file);
    broker.start().await.unwrap();
    world.person("alice").await.unwrap().login(&[]).await.unwrap().success().unwrap();

    // A broker in the cluster uses its pod's identity.
    let inside = "--set=cluster.identity=system:serviceaccount:default:tenant-broker";
    let dry = ["--apply", "--credential", file.to_str().unwrap(), inside];
    let refused = install(&world, &dry).await;
    assert!(refused.stderr.contains("cluster.identity is a ServiceAccount"), "{}", refused.stderr);
}
