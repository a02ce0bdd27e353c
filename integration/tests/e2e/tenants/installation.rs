//! `tenant-broker install` and the definitions.

use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::process::Finished;
use integration::world::World;
use serde_json::json;

use super::{CAPSULE, Group, SERVED_TIMEOUT, TENANT_BROKER, delete, until_served, with_object};
use crate::install::install;

fn object((_, api_version): Group, name: &str) -> String {
    let owner = json!({"kind": "User", "name": "alice"});
    let object = json!({
        "apiVersion": api_version,
        "kind": "Tenant",
        "metadata": {"name": name},
        "spec": {"owners": [owner]},
    });
    object.to_string()
}

fn has_line(finished: &Finished, line: &str) {
    let found = finished.stdout.lines().any(|there| there.starts_with(line));
    assert!(found, "{line} is not in:\n{}", finished.stdout);
}

async fn definitions(admin: &Kubectl) -> String {
    let args = ["get", "customresourcedefinitions", "-o", "name"];
    admin.run(args).await.unwrap().success().unwrap().stdout
}

#[tokio::test]
async fn definitions_are_repaired_and_stay_with_their_objects() {
    let world = World::builder()
        .own_control_plane()
        .installed("tenants.enabled", true)
        .start()
        .await
        .unwrap();
    let admin = world.admin_kubectl().unwrap();
    let both = install(&world, &["--apply", "--capsule-api"]).await.success().unwrap();
    has_line(&both, "CustomResourceDefinition tenants.capsule.clastix.io created");
    for group in [TENANT_BROKER, CAPSULE] {
        until_served(&admin, group).await;
        with_object(&admin, &["create"], object(group, "solar")).await.success().unwrap();
    }
    let same = install(&world, &["--diff", "--capsule-api"]).await.success().unwrap();
    assert_eq!(same.stdout, "");

    a_tenant_that_breaks_rules_is_reported(&world, &admin).await;
    a_namespace_with_the_name_of_a_home_is_reported(&world, &admin).await;

    // Neither a forgotten flag nor a removal deletes anybody's Tenants.
    let ours = "CustomResourceDefinition tenants.tenant-broker.io";
    let capsule = "CustomResourceDefinition tenants.capsule.clastix.io";
    let kept = "stays, because deleting it would delete its objects, 1 in number";
    let without_flag = install(&world, &["--diff"]).await;
    assert!(!without_flag.status.success());
    // The broker would lose its permissions on the other group.
    assert!(without_flag.stdout.contains("ClusterRole tenant-broker"), "{}", without_flag.stdout);
    assert!(!without_flag.stdout.contains(capsule), "{}", without_flag.stdout);
    let forgotten = install(&world, &["--apply"]).await.success().unwrap();
    has_line(&forgotten, &format!("{capsule} {kept}"));
    let removed = install(&world, &["--uninstall"]).await.success().unwrap();
    has_line(&removed, &format!("{ours} {kept}"));
    has_line(&removed, &format!("{capsule} {kept}"));
    has_line(&removed, "ClusterRole tenant-broker deleted");
    for group in [TENANT_BROKER, CAPSULE] {
        delete(&admin, group, "solar").await;
    }
    let removed = install(&world, &["--uninstall"]).await.success().unwrap();
    has_line(&removed, &format!("{ours} deleted"));
    has_line(&removed, &format!("{capsule} deleted"));
    probe::until("the definitions to be gone", SERVED_TIMEOUT, || async {
        let left = definitions(&admin).await;
        Ok(if left.contains("tenants.") { Probe::NotYet(left) } else { Probe::Ready(()) })
    })
    .await
    .unwrap();
    definition_of_another_program_is_left_alone(&world, &admin).await;
}

/// The API server checks a Tenant when it is written, not when its definition changes.
async fn a_tenant_that_breaks_rules_is_reported(world: &World, admin: &Kubectl) {
    let rules = "/spec/versions/0/schema/openAPIV3Schema/x-kubernetes-validations";
    let patch = json!([{"op": "remove", "path": rules}]).to_string();
    let weaken = ["patch", "crd", TENANT_BROKER.0, "--type=json", "-p", &patch];
    admin.run(weaken).await.unwrap().success().unwrap();
    // The API server goes on with the old definition for a moment.
    probe::until("the weaker definition", SERVED_TIMEOUT, || async {
        let bad = object(TENANT_BROKER, "kube-wind");
        let tried = with_object(admin, &["apply"], bad).await;
        let is_made = tried.status.success();
        Ok(if is_made { Probe::Ready(()) } else { Probe::NotYet(tried.stderr) })
    })
    .await
    .unwrap();

    assert_eq!(install(world, &["--diff", "--capsule-api"]).await.code(), 1);
    let repaired = install(world, &["--apply", "--capsule-api"]).await.success().unwrap();
    has_line(&repaired, "CustomResourceDefinition tenants.tenant-broker.io changed");
    let reported = "Tenant kube-wind (tenant-broker.io) breaks a rule: metadata.name: kube, tenant";
    has_line(&repaired, reported);
    delete(admin, TENANT_BROKER, "kube-wind").await;
    let again = install(world, &["--apply", "--capsule-api"]).await.success().unwrap();
    assert!(!again.stdout.contains("breaks a rule"), "{}", again.stdout);
}

/// The policies would take a binding in it for ownership.
async fn a_namespace_with_the_name_of_a_home_is_reported(world: &World, admin: &Kubectl) {
    let line = "Namespace tenant-ops has the name of a tenant's home";
    admin.run(["create", "namespace", "tenant-ops"]).await.unwrap().success().unwrap();
    has_line(&install(world, &["--apply", "--capsule-api"]).await.success().unwrap(), line);
    let delete = ["delete", "namespace", "tenant-ops"];
    admin.run(delete).await.unwrap().success().unwrap();
    let again = install(world, &["--apply", "--capsule-api"]).await.success().unwrap();
    assert!(!again.stdout.contains("tenant's home"), "{}", again.stdout);
}

/// `install` would take Capsule's own definition over, and its fields away.
async fn definition_of_another_program_is_left_alone(world: &World, admin: &Kubectl) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let other = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CAPSULE.0},
        "spec": {
            "group": "capsule.clastix.io",
            "scope": "Cluster",
            "names": {"kind": "Tenant", "plural": "tenants"},
            "versions": [{
                "name": "v1beta2",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    with_object(admin, &["create"], other.to_string()).await.success().unwrap();
    for mode in ["--apply", "--diff"] {
        let refused = install(world, &[mode, "--capsule-api"]).await;
        assert!(!refused.status.success(), "{}", refused.stdout);
        assert!(refused.stderr.contains("install did not make it"), "{}", refused.stderr);
    }
    // Nothing else was applied, and nothing is removed.
    let policies = ["get", "validatingadmissionpolicies", "-o", "name"];
    let policies = admin.run(policies).await.unwrap().success().unwrap();
    assert!(!policies.stdout.contains("tenant"), "{}", policies.stdout);
    assert!(!definitions(admin).await.contains(TENANT_BROKER.0));
    install(world, &["--apply"]).await.success().unwrap();
    until_served(admin, TENANT_BROKER).await;
    install(world, &["--uninstall"]).await.success().unwrap();
    assert!(definitions(admin).await.contains(CAPSULE.0));
}

#[tokio::test]
async fn without_the_setting_there_is_no_definition() {
    let world = World::builder().start().await.unwrap();
    let without = install(&world, &[]).await.success().unwrap().stdout;
    for absent in ["CustomResourceDefinition", "tenant-owner", "tenant-guard-homes", "-tenants\n"] {
        assert!(!without.contains(absent), "{absent}: {without}");
    }
    let enabled = "--set=tenants.enabled=true";
    let with = install(&world, &[enabled]).await.success().unwrap().stdout;
    for present in
        ["name: tenants.tenant-broker.io", "name: tenant-owner", "name: tenant-guard-homes"]
    {
        assert!(with.contains(present), "{present}: {with}");
    }
    for absent in ["name: tenants.capsule.clastix.io", "name: tenant-guard-capsule-tenants"] {
        assert!(!with.contains(absent), "{absent}: {with}");
    }
    let both = install(&world, &[enabled, "--capsule-api"]).await.success().unwrap().stdout;
    assert!(both.contains("name: tenants.capsule.clastix.io"), "{both}");

    let refused = install(&world, &["--capsule-api"]).await;
    assert!(!refused.status.success(), "{}", refused.stdout);
    assert!(refused.stderr.contains("set tenants.enabled = true"), "{}", refused.stderr);
}
