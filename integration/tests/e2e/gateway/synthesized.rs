//! Synthesized responses: tenants expect to list their own namespaces, which RBAC cannot grant.

use std::time::Duration;

use integration::world::World;

use super::through_the_gateway;

#[tokio::test]
async fn a_tenant_sees_their_own_namespace_and_no_other() {
    let world = World::builder().tls().start().await.unwrap();
    let alice = through_the_gateway(&world, "alice").await;
    let bob = through_the_gateway(&world, "bob").await;
    let (kubectl, own) = (alice.kubectl(), alice.namespace());

    let table = kubectl.run(["get", "namespaces"]).await.unwrap().success().unwrap().stdout;
    assert!(table.starts_with("NAME") && table.contains(&own), "{table}");
    assert_eq!(table.lines().count(), 2, "{table}");
    let list = kubectl.json(["get", "namespaces"]).await.unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["items"][0]["metadata"]["name"], own);
    let names = kubectl.run(["get", "ns", "-o", "name"]).await.unwrap().success().unwrap().stdout;
    assert_eq!(names.trim(), format!("namespace/{own}"));
    kubectl.run(["get", "ns", &own]).await.unwrap().success().unwrap();

    // The API server decides on everything else.
    let selector = format!("metadata.name={}", bob.namespace());
    for args in [
        &["get", "ns", &bob.namespace()][..],
        &["get", "ns", "kube-system"],
        &["get", "ns", "--field-selector", &selector],
        &["delete", "ns", &own],
        &["create", "ns", "mine"],
        &["get", "pods", "-A"],
    ] {
        let denied = kubectl.run(args).await.unwrap();
        assert!(denied.stderr.contains("Forbidden"), "{args:?}: {denied:?}");
    }

    // Access reviews return the same.
    for (args, answer) in [
        (&["auth", "can-i", "list", "namespaces", "-A"][..], "yes"),
        (&["auth", "can-i", "watch", "namespaces", "-A"], "yes"),
        (&["auth", "can-i", "create", "namespaces"], "no"),
        (&["auth", "can-i", "list", "pods", "-A"], "no"),
        (&["auth", "can-i", "create", "deployments"], "yes"),
    ] {
        let said = kubectl.run(args).await.unwrap();
        assert_eq!(said.stdout.trim(), answer, "{args:?}: {said:?}");
    }
    let who = kubectl.json(["auth", "whoami"]).await.unwrap();
    let user = &who["status"]["userInfo"];
    assert_eq!(user["username"], format!("system:serviceaccount:{own}:sa-tenant-admin"));
    assert_eq!(user["extra"]["tenant-broker.io/email"][0], alice.email());
    let list = kubectl.run(["auth", "can-i", "--list"]).await.unwrap().success().unwrap().stdout;
    assert!(list.contains("deployments.apps"), "{list}");
}

#[tokio::test]
async fn a_watch_of_namespaces_shows_what_happens_to_the_own_one() {
    let world = World::builder().tls().start().await.unwrap();
    let alice = through_the_gateway(&world, "alice").await;
    let own = alice.namespace();
    let watch = alice.kubectl().spawn(["get", "ns", "-w", "--show-labels"]).unwrap();
    let seen = async |text: &str| {
        let limit = Duration::from_secs(20);
        watch.until_stdout(text, limit, |said| said.contains(text)).await.unwrap()
    };
    seen("tenant-").await;
    let admin = world.admin_kubectl().unwrap();
    admin.run(["create", "namespace", "foreign"]).await.unwrap().success().unwrap();
    let label = ["label", "namespace", &own, "example.com/seen=here"];
    admin.run(label).await.unwrap().success().unwrap();
    let said = seen("example.com/seen=here").await;
    assert!(!said.contains("foreign"), "{said}");
}

#[tokio::test]
async fn synthesized_responses_can_be_switched_off() {
    let world = World::builder().tls().setting("gateway.own_answers", false).start().await.unwrap();
    let alice = through_the_gateway(&world, "alice").await;
    for args in [&["get", "namespaces"][..], &["get", "ns", "-w"]] {
        let denied = alice.kubectl().run(args).await.unwrap();
        assert!(denied.stderr.contains("Forbidden"), "{args:?}: {denied:?}");
    }
    let said = alice.kubectl().run(["auth", "can-i", "list", "namespaces", "-A"]).await.unwrap();
    assert_eq!(said.stdout.trim(), "no", "{said:?}");
    let who = alice.kubectl().json(["auth", "whoami"]).await.unwrap();
    assert!(who["status"]["userInfo"]["extra"]["tenant-broker.io/email"].is_null(), "{who}");
}
