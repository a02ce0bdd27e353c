//! Isolation of tenants: rights inside the namespace, and none outside.

use integration::world::World;

#[tokio::test]
async fn a_tenant_is_admin_in_its_namespace_and_has_no_rights_outside() {
    let world = World::builder().start().await.unwrap();
    let (alice, bob) = (world.person("alice").await.unwrap(), world.person("bob").await.unwrap());
    alice.login(&[]).await.unwrap().success().unwrap();
    bob.login(&[]).await.unwrap().success().unwrap();

    let refusals: [&[&str]; 5] = [
        &["get", "configmaps", "-n", &bob.namespace()],
        &["get", "secrets", "-n", "kube-system"],
        &["get", "namespaces"],
        &["get", "pods", "-A"],
        &["create", "namespace", "mine"],
    ];
    for args in refusals {
        let finished = alice.kubectl().run(args).await.unwrap();
        assert!(!finished.status.success(), "{args:?} should be refused");
        assert!(finished.stderr.contains("Forbidden"), "{args:?}: {}", finished.stderr);
    }

    let can = alice.kubectl().run(["auth", "can-i", "--list"]).await.unwrap().success().unwrap();
    for line in ["deployments.apps", "secrets", "rolebindings.rbac.authorization.k8s.io"] {
        assert!(can.stdout.contains(line), "the admin role has {line}:\n{}", can.stdout);
    }
}

#[tokio::test]
async fn the_quota_is_enforced_by_the_api_server() {
    let world = World::builder().setting("tiers.basic.pods", "1").start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();

    // The quota's controller fills in the status that admission uses.
    integration::probe::until(
        "the quota to be counted",
        std::time::Duration::from_mins(1),
        || async {
            let quota =
                super::object(&world, &["resourcequota", "tenant-quota", "-n", &alice.namespace()])
                    .await?;
            Ok(match quota {
                Some(quota) if quota["status"]["hard"].is_object() => {
                    integration::probe::Probe::Ready(())
                }
                other => integration::probe::Probe::NotYet(format!("{other:?}")),
            })
        },
    )
    .await
    .unwrap();
    let run =
        |name: &'static str| alice.kubectl().run(["run", name, "--image=registry.k8s.io/pause"]);
    run("one").await.unwrap().success().unwrap();
    let second = run("two").await.unwrap();
    assert!(second.stderr.contains("exceeded quota"), "{}", second.stderr);

    // The LimitRange sets limits, so that a pod without any is admitted and counted.
    let pod = alice.kubectl().json(["get", "pod", "one"]).await.unwrap();
    assert!(pod["spec"]["containers"][0]["resources"]["limits"]["memory"].is_string(), "{pod}");
}

#[tokio::test]
async fn a_privileged_pod_is_refused() {
    let world = World::builder().start().await.unwrap();
    let mallory = world.person("mallory").await.unwrap();
    mallory.login(&[]).await.unwrap().success().unwrap();
    let finished = mallory
        .kubectl()
        .run([
            "run",
            "root",
            "--image=registry.k8s.io/pause",
            "--overrides={\"spec\":{\"hostPID\":true}}",
        ])
        .await
        .unwrap();
    assert!(finished.stderr.contains("PodSecurity"), "{}", finished.stderr);
}

#[tokio::test]
async fn the_broker_runs_under_the_rights_that_install_prints() {
    let world = World::builder().start().await.unwrap();
    world.person("alice").await.unwrap().login(&[]).await.unwrap().success().unwrap();
    let broker = world.broker_kubectl().unwrap();
    let refusals: [&[&str]; 7] = [
        &["get", "secrets", "-A"],
        &["get", "pods", "-A"],
        &["get", "deployments", "-A"],
        &["delete", "namespace", "default"],
        &["create", "token", "namespace-controller", "-n", "kube-system"],
        &[
            "create",
            "clusterrolebinding",
            "evil",
            "--clusterrole=cluster-admin",
            "--user=tenant-broker",
        ],
        &["create", "rolebinding", "evil", "--clusterrole=cluster-admin", "--user=tenant-broker"],
    ];
    for args in refusals {
        let finished = broker.run(args).await.unwrap();
        assert!(!finished.status.success(), "{args:?} should be refused");
        assert!(
            finished.stderr.to_lowercase().contains("forbidden"),
            "{args:?}: {}",
            finished.stderr
        );
    }
}
