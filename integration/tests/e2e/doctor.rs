//! `tenant-broker doctor`: what it says of a sound cluster, and of others.

use integration::world::World;
use serde_json::Value;

/// Runs it, and returns whether it passed and its checks.
async fn doctor(world: &World, args: &[&str]) -> (bool, Vec<Value>) {
    let all: Vec<&str> = ["doctor", "-o", "json"].iter().chain(args).copied().collect();
    let finished = world.broker().run(&all).await.unwrap();
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(finished.status.success(), report["passed"].as_bool().unwrap(), "{report}");
    (finished.status.success(), report["checks"].as_array().unwrap().clone())
}

/// The checks with this outcome, as text.
fn with(outcome: &str, checks: &[Value]) -> Vec<String> {
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
async fn what_was_weakened_is_found() {
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
    // The API server looks for changed policies once a second.
    let failed = integration::probe::until(
        "the fence to be gone",
        std::time::Duration::from_secs(20),
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

    // Away altogether.
    let nowhere = world.folder().join("nowhere.kubeconfig");
    let there = std::fs::read_to_string(world.cluster().broker_kubeconfig()).unwrap();
    let url = world.cluster().url().as_str().trim_end_matches('/').to_owned();
    std::fs::write(&nowhere, there.replace(&url, "https://127.0.0.1:9")).unwrap();
    let file = format!("--set=cluster.kubeconfig={}", nowhere.display());
    let (passed, checks) = doctor(&world, &[&file]).await;
    assert!(!passed);
    has(&with("fail", &checks), "the API server answers");
}
