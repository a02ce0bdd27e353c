//! Cluster-scoped lists that Tenants grant (`proxySettings`), through the gateway.

mod broker_credential;

use std::collections::BTreeSet;
use std::time::Duration;

use http::{Method, StatusCode};
use integration::kubectl::Kubectl;
use integration::person::Person;
use integration::probe::{self, Probe};
use integration::world::{World, WorldBuilder};
use serde_json::{Value, json};
use tenant_shared::SuspendRequest;

use self::broker_credential::{Attempt, until_a_watch_is_open};
use super::reconcile::until;
use super::{TENANT_BROKER, until_served, with_object};
use crate::gateway::{GATEWAY, through_the_gateway};

/// Limit of the time until kubectl has printed something, or ends, or a change is in force.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The nodes of the tenant `solar`.
const SOLAR_NODES: [&str; 2] = ["solar-1", "solar-2"];

/// Watches with the broker's own credential that a person may have open.
const MAX_WATCHES: usize = 64;

fn builder(lists: &str) -> WorldBuilder {
    let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
    builder.installed("tenants.cluster_lists", lists).setting("drift_seconds", 3600)
}

/// Creates nodes of several pools, and an object of each class.
async fn create_objects(admin: &Kubectl) {
    let node = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
    let class = |group: &str, kind: &str, mut fields: Value| {
        fields["apiVersion"] = json!(format!("{group}/v1"));
        fields["kind"] = json!(kind);
        fields["metadata"] = json!({"name": "fast", "labels": {"speed": "high"}});
        fields
    };
    let controller = json!({"spec": {"controller": "example.com/a"}});
    let items = [
        node("solar-1", json!({"pool": "solar"})),
        node("solar-2", json!({"pool": "solar", "disk": "hdd"})),
        node("lunar-1", json!({"pool": "lunar"})),
        node("lunar-2", json!({"pool": "lunar", "disk": "ssd"})),
        node("other-1", json!({"pool": "other"})),
        class("storage.k8s.io", "StorageClass", json!({"provisioner": "example.com/a"})),
        class("networking.k8s.io", "IngressClass", controller),
        class("scheduling.k8s.io", "PriorityClass", json!({"value": 7})),
        class("node.k8s.io", "RuntimeClass", json!({"handler": "a"})),
    ];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    with_object(admin, &["create"], list.to_string()).await.success().unwrap();
}

/// An owner who may list resources of these kinds.
fn owner(email: &str, kinds: &[&str]) -> Value {
    let settings: Vec<Value> =
        kinds.iter().map(|kind| json!({"kind": kind, "operations": ["List"]})).collect();
    json!({"kind": "User", "name": email, "proxySettings": settings})
}

/// Applies a Tenant, and waits until the broker has carried it out.
async fn apply(world: &World, name: &str, owners: &[Value], node_selector: &Value) {
    let viewer = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User",
        "name": "bob@example.com"});
    let object = json!({
        "apiVersion": TENANT_BROKER.1,
        "kind": "Tenant",
        "metadata": {"name": name},
        "spec": {
            "owners": owners,
            "additionalRoleBindings": [{"clusterRoleName": "view", "subjects": [viewer]}],
            "nodeSelector": node_selector,
        },
    });
    let admin = world.admin_kubectl().unwrap();
    with_object(&admin, &["apply"], object.to_string()).await.success().unwrap();
    until(world, &[TENANT_BROKER.0, name], |it| {
        it["status"]["observedGeneration"] == it["metadata"]["generation"]
            && it["status"]["state"] == "Active"
    })
    .await;
}

/// The names that `kubectl get RESOURCE` lists.
async fn listed(kubectl: &Kubectl, args: &[&str]) -> BTreeSet<String> {
    let args = [&["get", "-o", "name"][..], args].concat();
    let output = kubectl.run(&args).await.unwrap().success().unwrap().stdout;
    output.lines().filter_map(|line| Some(line.split_once('/')?.1.to_owned())).collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

async fn is_forbidden(kubectl: &Kubectl, args: &[&str]) {
    let refused = kubectl.run(args).await.unwrap();
    assert!(refused.stderr.contains("Forbidden"), "{args:?}: {refused:?}");
}

/// Waits until kubectl lists exactly these nodes; `None`: until it may not list any.
async fn until_listed(kubectl: &Kubectl, args: &[&str], expected: Option<&[&str]>) {
    let args = [&["get", "nodes", "-o", "name"][..], args].concat();
    let expected = expected.map(names);
    probe::until(&format!("{expected:?}"), TIMEOUT, || async {
        let done = kubectl.run(&args).await?;
        let nodes = done.stdout.lines().map(|line| line.trim_start_matches("node/").to_owned());
        let shown = done.status.success().then(|| nodes.collect::<BTreeSet<String>>());
        let is_refused = shown.is_some() || done.stderr.contains("Forbidden");
        let is_so = is_refused && shown == expected;
        Ok(if is_so { Probe::Ready(()) } else { Probe::NotYet(format!("{done:?}")) })
    })
    .await
    .unwrap();
}

async fn can_i(kubectl: &Kubectl, args: &[&str]) -> bool {
    let args = [&["auth", "can-i"][..], args].concat();
    let said = kubectl.run(&args).await.unwrap();
    match said.stdout.split_whitespace().next() {
        Some("yes") => true,
        Some("no") => false,
        _ => panic!("{args:?}: {said:?}"),
    }
}

#[tokio::test]
async fn members_list_what_their_tenants_grant() {
    let world = builder("nodes,storageclasses,ingressclasses").tls().start().await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    create_objects(&admin).await;
    let alice = through_the_gateway(&world, "alice").await;
    let bob = through_the_gateway(&world, "bob").await;
    let kinds = ["Nodes", "StorageClasses", "PriorityClasses"];
    let pool = json!({"pool": "solar"});
    // A resource that the operator did not switch on is in a condition.
    apply_degraded(&world, &owner(alice.email(), &kinds), &pool, "ListNotAllowed").await;
    apply(&world, "solar", &[owner(alice.email(), &kinds[..2])], &pool).await;

    watches_of_a_person_are_limited(&alice).await;
    lists_are_filtered(alice.kubectl()).await;
    others_see_nothing(&world, bob.kubectl()).await;
    reviews_say_what_the_gateway_does(&world, &alice, &bob).await;
    what_cannot_be_carried_out_is_reported(&world).await;
    node_selectors_of_several_tenants_are_joined(&world, &alice).await;
    a_watch_ends_with_the_right(&world, &alice, &bob).await;
    suspensions_end_lists(&world, &alice).await;
}

async fn apply_degraded(world: &World, owner: &Value, node_selector: &Value, condition: &str) {
    let object = json!({
        "apiVersion": TENANT_BROKER.1, "kind": "Tenant", "metadata": {"name": "solar"},
        "spec": {"owners": [owner], "nodeSelector": node_selector},
    });
    let admin = world.admin_kubectl().unwrap();
    with_object(&admin, &["apply"], object.to_string()).await.success().unwrap();
    until(world, &[TENANT_BROKER.0, "solar"], |it| {
        let conditions = it["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|it| it["type"] == condition)
    })
    .await;
}

/// They count besides the limits of each membership.
async fn watches_of_a_person_are_limited(alice: &Person) {
    // The gateway knows what the Tenant grants a moment later.
    until_listed(alice.kubectl(), &[], Some(&SOLAR_NODES)).await;
    let api = alice.api().await.unwrap();
    let path = format!("{GATEWAY}/api/v1/nodes?watch=1");
    let open = async || api.request(Method::GET, &path).unwrap().send().await.unwrap();
    let mut watches = Vec::new();
    while watches.len() < MAX_WATCHES {
        watches.push(open().await);
    }
    let statuses = watches.iter().map(reqwest::Response::status);
    assert!(statuses.eq([StatusCode::OK; MAX_WATCHES]));
    let refused = open().await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let text = refused.text().await.unwrap();
    assert!(text.contains("more than 64 of yours"), "{text}");
    // A list is no watch.
    assert_eq!(Attempt::get("/api/v1/nodes").send(&api).await.0, StatusCode::OK);
    drop(watches);
    until_a_watch_is_open(open).await;
}

async fn lists_are_filtered(alice: &Kubectl) {
    until_listed(alice, &[], Some(&SOLAR_NODES)).await;
    // Pages and tables are the work of the API server.
    assert_eq!(listed(alice, &["nodes", "--chunk-size=1"]).await, names(&SOLAR_NODES));
    let table = alice.run(["get", "nodes"]).await.unwrap().success().unwrap().stdout;
    assert!(table.starts_with("NAME") && table.lines().count() == 3, "{table}");
    for (narrowed, expected) in [
        (["-l", "disk=hdd"], &SOLAR_NODES[1..]),
        (["-l", "pool=lunar"], &[]),
        (["-l", "pool!=solar"], &[]),
        (["-l", "pool in (solar,lunar)"], &SOLAR_NODES),
        (["--field-selector", "metadata.name=solar-1"], &SOLAR_NODES[..1]),
        (["--field-selector", "metadata.name=lunar-1"], &[]),
    ] {
        let [flag, value] = narrowed;
        assert_eq!(listed(alice, &["nodes", flag, value]).await, names(expected), "{value}");
    }
    assert_eq!(listed(alice, &["storageclasses"]).await, names(&["fast"]));
    assert_eq!(listed(alice, &["storageclasses", "-l", "speed=low"]).await, names(&[]));
    for args in [
        &["get", "nodes", "solar-1"][..],
        &["get", "nodes", "lunar-1"],
        &["get", "storageclass", "fast"],
        &["label", "node", "solar-1", "a=b"],
        &["delete", "nodes", "solar-1"],
        &["cordon", "solar-1"],
        // Neither granted, nor switched on.
        &["get", "ingressclasses"],
        &["get", "priorityclasses"],
        &["get", "persistentvolumes"],
        &["get", "csinodes"],
    ] {
        is_forbidden(alice, args).await;
    }
}

async fn others_see_nothing(world: &World, bob: &Kubectl) {
    let mallory = through_the_gateway(world, "mallory").await;
    for kubectl in [bob, mallory.kubectl()] {
        is_forbidden(kubectl, &["get", "nodes"]).await;
        is_forbidden(kubectl, &["get", "nodes", "-l", "pool=solar"]).await;
        is_forbidden(kubectl, &["get", "storageclasses"]).await;
    }
}

/// Compares each review with the request that it is about.
async fn reviews_say_what_the_gateway_does(world: &World, alice: &Person, bob: &Person) {
    for person in [alice, bob] {
        let kubectl = person.kubectl();
        for resource in [
            "nodes",
            "storageclasses",
            "ingressclasses",
            "priorityclasses",
            "runtimeclasses",
            "persistentvolumes",
            "tenants.tenant-broker.io",
        ] {
            let done = kubectl.run(["get", resource]).await.unwrap().status.success();
            for verb in ["list", "watch"] {
                let allowed = can_i(kubectl, &[verb, resource]).await;
                assert_eq!(allowed, done, "{} {verb} {resource}", person.email());
            }
        }
        let done = kubectl.run(["get", "nodes"]).await.unwrap().status.success();
        assert_eq!(can_i(kubectl, &["list", "nodes", "-A"]).await, done);
        for verb in ["get", "create", "delete", "deletecollection", "*"] {
            assert!(!can_i(kubectl, &[verb, "nodes"]).await, "{verb}");
        }
        assert!(!can_i(kubectl, &["list", "nodes", "--subresource=status"]).await);
    }
    let rules = ["auth", "can-i", "--list"];
    let of_alice = alice.kubectl().run(rules).await.unwrap().success().unwrap().stdout;
    let of_bob = bob.kubectl().run(rules).await.unwrap().success().unwrap().stdout;
    let line = |rules: &str, resource: &str| {
        let mut lines = rules.lines().filter(|line| line.starts_with(resource));
        lines.find(|line| line.contains("[list watch]")).map(str::to_owned)
    };
    for resource in ["nodes", "storageclasses.storage.k8s.io"] {
        assert!(line(&of_alice, resource).is_some(), "{resource}: {of_alice}");
    }
    assert!(line(&of_alice, "ingressclasses").is_none(), "{of_alice}");
    assert!(line(&of_bob, "nodes").is_none(), "{of_bob}");
    // A review counts the memberships that the list would make.
    let zoe = through_the_gateway(world, "zoe").await;
    let pool = json!({"pool": "other"});
    apply(world, "stellar", &[owner(zoe.email(), &["Nodes"])], &pool).await;
    probe::until("a yes", TIMEOUT, || async {
        let is_so = can_i(zoe.kubectl(), &["list", "nodes"]).await;
        Ok(if is_so { Probe::Ready(()) } else { Probe::NotYet("no".to_owned()) })
    })
    .await
    .unwrap();
    assert_eq!(listed(zoe.kubectl(), &["nodes"]).await, names(&["other-1"]));
}

async fn what_cannot_be_carried_out_is_reported(world: &World) {
    let yara = through_the_gateway(world, "yara").await;
    let kinds = ["Nodes", "PersistentVolumes"];
    apply(world, "terra", &[owner(yara.email(), &kinds)], &json!({})).await;
    let tenant = until(world, &[TENANT_BROKER.0, "terra"], |it| {
        let conditions = it["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|it| it["type"] == "NotCarriedOut")
    })
    .await;
    let conditions = tenant["status"]["conditions"].to_string();
    for text in [
        "spec.owners[0].proxySettings[0].kind Nodes without spec.nodeSelector",
        "spec.owners[0].proxySettings[1].kind PersistentVolumes",
    ] {
        assert!(conditions.contains(text), "{conditions}");
    }
    for resource in ["nodes", "persistentvolumes"] {
        is_forbidden(yara.kubectl(), &["get", resource]).await;
        assert!(!can_i(yara.kubectl(), &["list", resource]).await, "{resource}");
    }
}

async fn node_selectors_of_several_tenants_are_joined(world: &World, alice: &Person) {
    let kubectl = alice.kubectl();
    let owner = || owner(alice.email(), &["Nodes"]);
    apply(world, "lunar", &[owner()], &json!({"pool": "lunar"})).await;
    let both = ["solar-1", "solar-2", "lunar-1", "lunar-2"];
    until_listed(kubectl, &[], Some(&both)).await;
    // A narrower selector of the other tenant.
    apply(world, "lunar", &[owner()], &json!({"pool": "solar", "disk": "hdd"})).await;
    until_listed(kubectl, &[], Some(&SOLAR_NODES)).await;
    // Labels that cannot be joined.
    apply(world, "lunar", &[owner()], &json!({"disk": "ssd"})).await;
    until_listed(kubectl, &[], None).await;
    let refused = kubectl.run(["get", "nodes"]).await.unwrap();
    assert!(refused.stderr.contains("disk=ssd or pool=solar"), "{refused:?}");
    for verb in ["list", "watch"] {
        assert!(!can_i(kubectl, &[verb, "nodes"]).await, "{verb}");
    }
    until_listed(kubectl, &["-l", "pool=solar"], Some(&SOLAR_NODES)).await;
    until_listed(kubectl, &["-l", "disk=ssd"], Some(&["lunar-2"])).await;
    until_listed(kubectl, &["-l", "disk"], None).await;
    until_listed(kubectl, &["-l", "pool in (solar,other)"], None).await;
    until_listed(kubectl, &["-l", "pool=other"], None).await;
    // A tenant that no longer grants the list does not count.
    apply(world, "lunar", &[json!({"kind": "User", "name": alice.email()})], &json!({})).await;
    until_listed(kubectl, &[], Some(&SOLAR_NODES)).await;
}

async fn a_watch_ends_with_the_right(world: &World, alice: &Person, bob: &Person) {
    let pool = json!({"pool": "solar"});
    let with = |kinds: &[&str]| [owner(alice.email(), kinds)];
    let watched = async |resource: &str, seen: &str| {
        let watch = alice.kubectl().spawn(["get", resource, "-w"]).unwrap();
        watch.until_stdout(seen, TIMEOUT, |said| said.contains(seen)).await.unwrap();
        watch
    };
    let nodes = watched("nodes", "solar-1").await;
    let classes = watched("storageclasses", "fast").await;
    // The watch shows nodes that come later, and only those of the tenant.
    let admin = world.admin_kubectl().unwrap();
    for pool in ["lunar", "solar"] {
        let node = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": format!("{pool}-9"), "labels": {"pool": pool}}});
        with_object(&admin, &["create"], node.to_string()).await.success().unwrap();
    }
    let said = nodes.until_stdout("solar-9", TIMEOUT, |it| it.contains("solar-9")).await.unwrap();
    assert!(!said.contains("lunar"), "{said}");
    admin.run(["delete", "node", "solar-9", "lunar-9"]).await.unwrap().success().unwrap();

    apply(world, "solar", &with(&["StorageClasses"]), &pool).await;
    nodes.finish(TIMEOUT).await.unwrap();
    assert!(classes.process().status().is_none(), "a watch of another resource goes on");
    until_listed(alice.kubectl(), &[], None).await;
    apply(world, "solar", &with(&["Nodes"]), &pool).await;
    classes.finish(TIMEOUT).await.unwrap();
    until_listed(alice.kubectl(), &[], Some(&SOLAR_NODES)).await;

    // Other nodes.
    let nodes = watched("nodes", "solar-1").await;
    apply(world, "solar", &with(&["Nodes"]), &json!({"pool": "lunar"})).await;
    nodes.finish(TIMEOUT).await.unwrap();
    until_listed(alice.kubectl(), &[], Some(&["lunar-1", "lunar-2"])).await;

    // A group that the person loses.
    let group = json!({"kind": "Group", "name": "operators",
        "proxySettings": [{"kind": "Nodes", "operations": ["List"]}]});
    let [owner] = with(&["Nodes"]);
    apply(world, "solar", &[owner, group], &pool).await;
    let operator = world.administrator("operator-1").await.unwrap().api().await.unwrap();
    let set_groups = async |groups: &[&str]| {
        let path = format!("users/{}/groups", bob.id());
        let request = operator.request(Method::POST, &path).unwrap();
        let answer = request.json(&json!({"groups": groups})).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
    };
    set_groups(&["operators"]).await;
    until_listed(bob.kubectl(), &[], Some(&SOLAR_NODES)).await;
    let nodes = bob.kubectl().spawn(["get", "nodes", "-w"]).unwrap();
    nodes.until_stdout("a list", TIMEOUT, |said| said.contains("solar-1")).await.unwrap();
    set_groups(&[]).await;
    nodes.finish(TIMEOUT).await.unwrap();
    until_listed(bob.kubectl(), &[], None).await;
    until_listed(alice.kubectl(), &[], Some(&SOLAR_NODES)).await;
}

async fn suspensions_end_lists(world: &World, alice: &Person) {
    let kubectl = alice.kubectl();
    let operator = world.administrator("operator-2").await.unwrap().api().await.unwrap();
    let reason = SuspendRequest { reason: Some("test".to_owned()) };
    let own = alice.api().await.unwrap().workspaces(false).await.unwrap();
    let membership = own.items.iter().find(|it| it.tenant.as_deref() == Some("solar")).unwrap();
    let watch = kubectl.spawn(["get", "nodes", "-w"]).unwrap();
    watch.until_stdout("a list", TIMEOUT, |said| said.contains("solar-1")).await.unwrap();
    operator.suspend(membership.id, &reason).await.unwrap();
    watch.finish(TIMEOUT).await.unwrap();
    until_listed(kubectl, &[], None).await;
    assert!(!can_i(kubectl, &["list", "nodes"]).await);
    probe::until("the resumption", TIMEOUT, || async {
        // API servers accept old tokens from their cache for ten seconds.
        let resumed = operator.resume(membership.id, &SuspendRequest::default()).await;
        Ok(match resumed {
            Ok(_) => Probe::Ready(()),
            Err(error) => Probe::NotYet(error.to_string()),
        })
    })
    .await
    .unwrap();
    until_listed(kubectl, &[], Some(&SOLAR_NODES)).await;

    let watch = kubectl.spawn(["get", "nodes", "-w"]).unwrap();
    watch.until_stdout("a list", TIMEOUT, |said| said.contains("solar-1")).await.unwrap();
    operator.suspend_tenant("solar", &reason).await.unwrap();
    watch.finish(TIMEOUT).await.unwrap();
    until_listed(kubectl, &[], None).await;
    assert!(!can_i(kubectl, &["list", "nodes"]).await);
}
