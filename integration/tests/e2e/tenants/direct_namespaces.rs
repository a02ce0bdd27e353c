//! Namespaces that owners create directly at the API server (`tenants.direct_namespaces`).

use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::{Value, json};

use super::cluster::{
    CREATE, RIGHTS_TIMEOUT, TenantCluster, are_refused, group, is_refused, namespace, role_binding,
    send, until_allowed, until_refused, user,
};
use crate::install::install;

/// kubectl without an effect in the cluster.
const DRY_RUN: &[&str] = &["create", "--dry-run=server", "-o", "json", "-f", "-"];
const TENANT: &str = "tenant-broker.io/tenant";
const LEVEL: &str = "pod-security.kubernetes.io/enforce";
const EXCESSIVE_METADATA: &str = "a new namespace has at most 64 labels and 64 annotations";
const NO_TENANT: &str = "the namespace belongs to no tenant of yours: name it TENANT-NAME, or give \
                         it the label tenant-broker.io/tenant";

/// A cluster in which alice owns solar and cert, carol owns solar, solar-wind and lunar, and
/// everybody of the group `solar-users` owns solar.
async fn cluster() -> TenantCluster {
    let builder = World::builder()
        .installed("tenants.enabled", true)
        .installed("tenants.direct_namespaces", true)
        .installed("tenants.groups", "developers,solar-users")
        .installed("tenants.protected_labels", "^control-plane$");
    let cluster = TenantCluster::start(builder).await;
    cluster.home("solar", &user("alice")).await;
    for (tenant, owner) in
        [("cert", user("alice")), ("solar-wind", user("carol")), ("lunar", user("carol"))]
    {
        cluster.home(tenant, &owner).await;
    }
    let others = json!([
        user("carol"),
        group("solar-users"),
        user("joe"),
        user("system:serviceaccount:robots:robot")
    ]);
    cluster.make(&role_binding("tenant-solar", "others", "tenant-owner", &others)).await;
    cluster
}

fn owning(tenant: &str) -> Value {
    json!({"group": "tenant-broker.io", "resource": "tenants", "verb": "own", "name": tenant,
        "namespace": format!("tenant-{tenant}")})
}

/// Waits until the policies are in force for this owner, the mutating one included.
async fn until_labelled(owner: &Kubectl, name: &str) {
    probe::until("the label of the tenant", RIGHTS_TIMEOUT, || async {
        let tried = owner.run_with_input(DRY_RUN, namespace(name, &json!({})).to_string()).await?;
        let is_labelled = tried.stdout.contains(TENANT);
        Ok(if is_labelled { Probe::Ready(()) } else { Probe::NotYet(tried.stderr) })
    })
    .await
    .unwrap();
}

/// The labels that a namespace would have.
async fn labels(person: &Kubectl, object: &Value) -> Value {
    let made = send(person, DRY_RUN, object).await.success().unwrap();
    let made: Value = serde_json::from_str(&made.stdout).unwrap();
    made["metadata"]["labels"].clone()
}

#[tokio::test]
async fn owners_create_namespaces_of_their_own_tenants_only() {
    let cluster = cluster().await;
    let alice = cluster.person("alice", Some("developers"));
    until_allowed(&alice, &owning("cert")).await;
    until_labelled(&alice, "solar-production").await;
    labels_are_filled_in(&cluster).await;
    what_an_owner_may_not_write_is_refused(&alice).await;
    others_are_refused_or_unlabelled(&cluster).await;

    // A real one; the owner's rights in it are the broker's to give.
    let production = namespace("solar-production", &json!({}));
    send(&alice, CREATE, &production).await.success().unwrap();
    let made = cluster.admin.json(["get", "namespace", "solar-production"]).await.unwrap();
    assert_eq!(made["metadata"]["labels"][TENANT], "solar", "{made}");
    let delete = ["delete", "namespace", "solar-production", "--wait=false"];
    are_refused(&alice, &[(&delete, "cannot delete resource")]).await;
    the_objects_are_verified_and_removed(&cluster).await;
}

async fn labels_are_filled_in(cluster: &TenantCluster) {
    let alice = cluster.person("alice", Some("developers"));
    let filled = labels(&alice, &namespace("solar-production", &json!({}))).await;
    assert_eq!(filled[TENANT], "solar");
    assert_eq!(filled[LEVEL], "baseline");
    assert_eq!(filled["app.kubernetes.io/managed-by"], "tenant-broker");
    let given = json!({LEVEL: "restricted", "app.kubernetes.io/managed-by": "Helm", "team": "x"});
    let kept = labels(&alice, &namespace("solar-production", &given)).await;
    assert_eq!(kept[LEVEL], "restricted");
    assert_eq!(kept["app.kubernetes.io/managed-by"], "Helm");
    assert_eq!(kept["team"], "x");
    let generated = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"generateName": "solar-"}});
    assert_eq!(labels(&alice, &generated).await[TENANT], "solar");

    // The longest prefix of several tenants wins, and a label that is given.
    let carol = cluster.person("carol", Some("developers"));
    for tenant in ["solar", "solar-wind", "lunar"] {
        until_allowed(&carol, &owning(tenant)).await;
    }
    for (name, tenant) in [
        ("solar-x", "solar"),
        ("solar-wind-x", "solar-wind"),
        ("solar-wind-a-b-c-d", "solar-wind"),
        ("solar-wind", "solar"),
        ("lunar-solar", "lunar"),
    ] {
        assert_eq!(labels(&carol, &namespace(name, &json!({}))).await[TENANT], tenant, "{name}");
    }
    let given = namespace("solar-wind-x", &json!({TENANT: "solar"}));
    assert_eq!(labels(&carol, &given).await[TENANT], "solar");

    // Owners as a group, as a ServiceAccount, and with the role view only.
    let robot = ["clusterrolebinding", "robots", "--clusterrole=tenant-namespace-provisioner"];
    let subject = ["--serviceaccount=robots:robot"];
    cluster.as_admin(&[&["create"][..], &robot, &subject].concat()).await;
    for (person, more) in [
        (cluster.person("gina", Some("solar-users")), None),
        (cluster.person("joe", Some("developers")), None),
        (cluster.admin.clone(), Some("--as=system:serviceaccount:robots:robot")),
    ] {
        let command: Vec<&str> = DRY_RUN.iter().copied().chain(more).collect();
        probe::until("another owner", RIGHTS_TIMEOUT, || async {
            let object = namespace("solar-x", &json!({})).to_string();
            let tried = person.run_with_input(&command, object).await?;
            let is_made = tried.status.success() && tried.stdout.contains(TENANT);
            Ok(if is_made { Probe::Ready(()) } else { Probe::NotYet(tried.stderr) })
        })
        .await
        .unwrap();
    }
}

/// Objects that alice may not create, and the text of the refusal.
fn refused() -> Vec<(Value, &'static str)> {
    let of_solar = |labels: Value| namespace("solar-x", &labels);
    let with = |field: &str, value: Value| {
        let mut object = namespace("solar-x", &json!({}));
        object["metadata"][field] = value;
        object
    };
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "c",
        "uid": "00000000-0000-4000-8000-000000000000"}]);
    let mut held = namespace("solar-x", &json!({}));
    held["spec"] = json!({"finalizers": ["kubernetes", "example.com/hold"]});
    let labels_of_broker = "labels tenant-broker.io/*";
    let when_it_is_gone = "no ownerReferences and no finalizers";
    let nodes = json!({"scheduler.alpha.kubernetes.io/node-selector": "pool=gpu"});
    // The broker would take the labels of others for those that the Tenant adds, and remove them.
    let keys = json!({"tenant-broker.io/added-keys": "{\"labels\":[\"example.com/zone\"]}"});
    let network = json!({"net.beta.kubernetes.io/network-policy": "x"});
    vec![
        (namespace("lunar-x", &json!({})), NO_TENANT),
        (namespace("plain", &json!({})), NO_TENANT),
        (namespace("solar", &json!({})), NO_TENANT),
        (namespace("solarium-x", &json!({})), NO_TENANT),
        (of_solar(json!({TENANT: "lunar"})), "you do not own tenant lunar"),
        (of_solar(json!({TENANT: "nothing"})), "you do not own tenant nothing"),
        (
            namespace("other", &json!({TENANT: "solar"})),
            "namespace names of tenant solar begin with solar-",
        ),
        (namespace("cert-manager", &json!({})), "tenants.protected_names"),
        (of_solar(json!({LEVEL: "privileged"})), "enforce=baseline or restricted"),
        (of_solar(json!({"pod-security.kubernetes.io/enforce-version": "v1.0"})), labels_of_broker),
        (of_solar(json!({"tenant-broker.io/home": "true"})), labels_of_broker),
        (of_solar(json!({"tenant-broker.io/bindings": "any"})), labels_of_broker),
        (of_solar(json!({"tenant-broker.io/workspace": "x"})), labels_of_broker),
        (of_solar(json!({"control-plane": "x"})), "tenants.protected_labels"),
        (with("ownerReferences", owner), when_it_is_gone),
        (with("finalizers", json!(["example.com/hold"])), when_it_is_gone),
        (held, when_it_is_gone),
        (with("annotations", nodes), "no annotations *.kubernetes.io/*"),
        (with("annotations", network), "no annotations *.kubernetes.io/*"),
        (with("annotations", keys), "and tenant-broker.io/*"),
        // Two policies refuse it; the API server names one.
        (namespace("tenant-mine", &json!({})), "tenant-guard-"),
        (of_solar(many(65)), EXCESSIVE_METADATA),
        (with("annotations", many(65)), EXCESSIVE_METADATA),
        (
            with("annotations", json!({"example.com/long": "x".repeat(64 * 1024)})),
            EXCESSIVE_METADATA,
        ),
    ]
}

/// So many labels or annotations.
fn many(count: usize) -> Value {
    (0..count).map(|number| (format!("example.com/{number}"), json!("x"))).collect()
}

async fn what_an_owner_may_not_write_is_refused(alice: &Kubectl) {
    for (object, text) in refused() {
        is_refused(&send(alice, DRY_RUN, &object).await, &object.to_string(), text);
    }
    for annotation in ["example.com/owner", "kubectl.kubernetes.io/last-applied-configuration"] {
        let mut object = namespace("solar-x", &json!({}));
        object["metadata"]["annotations"] = json!({annotation: "{}"});
        send(alice, DRY_RUN, &object).await.success().unwrap();
    }
    // Labels are filled in: three by the policy, and one by the API server.
    let mut much = namespace("solar-x", &many(60));
    much["metadata"]["annotations"] = many(64);
    send(alice, DRY_RUN, &much).await.success().unwrap();
    // The name of a tenant of theirs that is protected otherwise.
    send(alice, DRY_RUN, &namespace("cert-other", &json!({}))).await.success().unwrap();
}

async fn others_are_refused_or_unlabelled(cluster: &TenantCluster) {
    let plain = namespace("plain", &json!({}));
    let solar = namespace("solar-x", &json!({}));
    let bob = cluster.person("bob", Some("developers"));
    until_allowed(&bob, &json!({"verb": "create", "resource": "namespaces"})).await;
    for object in [&plain, &solar] {
        is_refused(&send(&bob, DRY_RUN, object).await, "a person without a tenant", NO_TENANT);
    }
    let mallory = cluster.person("mallory", None);
    is_refused(&send(&mallory, DRY_RUN, &solar).await, "a stranger", "cannot create resource");

    // A program with the name of an owner's in another namespace, and one of a tenant's namespace.
    let namesake =
        ["clusterrolebinding", "namesakes", "--clusterrole=tenant-namespace-provisioner"];
    let subject = ["--serviceaccount=others:robot"];
    cluster.as_admin(&[&["create"][..], &namesake, &subject].concat()).await;
    for (account, text) in [
        ("--as=system:serviceaccount:others:robot", NO_TENANT),
        ("--as=system:serviceaccount:solar-x:default", "cannot create resource"),
    ] {
        let command: Vec<&str> = DRY_RUN.iter().copied().chain([account]).collect();
        probe::until("the refusal of a program", RIGHTS_TIMEOUT, || async {
            let tried = cluster.admin.run_with_input(&command, solar.to_string()).await?;
            assert!(!tried.status.success(), "{account}: {tried:?}");
            // The right to create namespaces was just given to the first one.
            let is_expected = tried.stderr.contains(text);
            Ok(if is_expected { Probe::Ready(()) } else { Probe::NotYet(tried.stderr) })
        })
        .await
        .unwrap();
    }

    // Somebody who may delete every namespace also creates those of nobody.
    let mary = cluster.person("mary", None);
    cluster.give("mary", "manager", "create,delete", "namespaces").await;
    until_allowed(&mary, &json!({"verb": "delete", "resource": "namespaces"})).await;
    assert_eq!(labels(&mary, &solar).await.get(TENANT), None);
    for (object, text) in [
        (namespace("plain", &json!({TENANT: "solar"})), "you do not own tenant solar"),
        (namespace("plain", &json!({TENANT: ""})), "labels tenant-broker.io/*"),
        (namespace("tenant-mine", &json!({})), "namespaces tenant-* are made by the broker"),
        (
            namespace("plain", &json!({"tenant-broker.io/suspended": "x"})),
            "labels tenant-broker.io/*",
        ),
    ] {
        is_refused(&send(&mary, DRY_RUN, &object).await, &object.to_string(), text);
    }

    // An administrator owns every tenant by the verb `*`, and so none in particular.
    let olga = cluster.person("olga", None);
    let role = ["create", "clusterrolebinding", "olga", "--clusterrole=cluster-admin"];
    cluster.as_admin(&[&role[..], &["--user=olga"]].concat()).await;
    until_allowed(&olga, &owning("solar")).await;
    assert_eq!(labels(&olga, &solar).await.get(TENANT), None);
    let given = namespace("solar-x", &json!({TENANT: "solar"}));
    assert_eq!(labels(&olga, &given).await[TENANT], "solar");
    send(&olga, DRY_RUN, &namespace("tenant-mine", &json!({}))).await.success().unwrap();
}

async fn the_objects_are_verified_and_removed(cluster: &TenantCluster) {
    let (world, broker) = (&cluster.world, cluster.world.broker());
    let same = install(world, &["--diff"]).await.success().unwrap();
    assert_eq!(same.stdout, "");
    broker.start().await.unwrap();
    broker.stop().await.unwrap();
    let weaken = r#"{"spec":{"failurePolicy":"Ignore"}}"#;
    let weaken = [
        "patch",
        "mutatingadmissionpolicy",
        "tenant-namespace-labels",
        "--type=merge",
        "-p",
        weaken,
    ];
    cluster.as_admin(&weaken).await;
    let binding = ["delete", "mutatingadmissionpolicybinding", "tenant-namespace-labels"];
    cluster.as_admin(&binding).await;
    let refused = format!("{:#}", broker.start().await.unwrap_err());
    for text in [
        "the policy tenant-namespace-labels is not as this version makes it (spec.failurePolicy)",
        "the binding tenant-namespace-labels is missing",
    ] {
        assert!(refused.contains(text), "{text} is not in: {refused}");
    }

    // As on an API server without mutating policies: the labels have to be in the file.
    let alice = cluster.person("alice", Some("developers"));
    probe::until("no labels", RIGHTS_TIMEOUT, || async {
        let tried = send(&alice, DRY_RUN, &namespace("solar-x", &json!({}))).await;
        let is_refused = tried.stderr.contains(NO_TENANT);
        Ok(if is_refused { Probe::Ready(()) } else { Probe::NotYet(tried.stdout) })
    })
    .await
    .unwrap();
    let without_level = namespace("solar-x", &json!({TENANT: "solar"}));
    let text = "enforce=baseline or restricted";
    is_refused(&send(&alice, DRY_RUN, &without_level).await, "a namespace without a level", text);
    let whole = namespace("solar-x", &json!({TENANT: "solar", LEVEL: "baseline"}));
    send(&alice, DRY_RUN, &whole).await.success().unwrap();

    install(world, &["--apply"]).await.success().unwrap();
    the_right_to_read_the_policy_is_needed(cluster).await;
    install(world, &["--apply"]).await.success().unwrap();
    assert_eq!(install(world, &["--diff"]).await.success().unwrap().stdout, "");
    let removed = install(world, &["--uninstall"]).await.success().unwrap().stdout;
    for line in [
        "ClusterRoleBinding tenant-namespace-provisioner deleted",
        "ClusterRole tenant-namespace-provisioner deleted",
        "MutatingAdmissionPolicyBinding tenant-namespace-labels deleted",
        "MutatingAdmissionPolicy tenant-namespace-labels deleted",
        "ValidatingAdmissionPolicy tenant-guard-creation deleted",
    ] {
        assert!(removed.lines().any(|there| there == line), "{line} is not in: {removed}");
    }
}

async fn the_right_to_read_the_policy_is_needed(cluster: &TenantCluster) {
    let mut role = cluster.admin.json(["get", "clusterrole", "tenant-broker"]).await.unwrap();
    let rules = role["rules"].as_array_mut().unwrap();
    let before = rules.len();
    rules.retain(|rule| rule["resources"][0] != "mutatingadmissionpolicies");
    assert_eq!(rules.len(), before - 1);
    send(&cluster.admin, &["replace", "-f", "-"], &role).await.success().unwrap();
    let read = ["get", "mutatingadmissionpolicy", "tenant-namespace-labels"];
    until_refused(&cluster.world.broker_kubectl().unwrap(), &read, "cannot get resource").await;
    let refused = format!("{:#}", cluster.world.broker().start().await.unwrap_err());
    let text = "the broker may not read the policy tenant-namespace-labels";
    assert!(refused.contains(text), "{refused}");
}

#[tokio::test]
async fn direct_namespaces_need_groups() {
    let world = World::builder().start().await.unwrap();
    let settings = ["--set=tenants.enabled=true", "--set=tenants.direct_namespaces=true"];
    let refused = install(&world, &settings).await;
    assert!(!refused.status.success(), "{}", refused.stdout);
    assert!(refused.stderr.contains("tenants.groups"), "{}", refused.stderr);
    let groups = "--set=tenants.groups=developers";
    let printed = install(&world, &[settings[0], settings[1], groups]).await.success().unwrap();
    assert!(printed.stdout.contains("name: developers"), "{}", printed.stdout);
}
