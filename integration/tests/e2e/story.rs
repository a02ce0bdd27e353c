//! The main workflow of a person.

use integration::world::World;

#[tokio::test]
async fn a_person_signs_in_and_works_in_a_namespace_of_their_own() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();

    let login = alice.login(&[]).await.unwrap().success().unwrap();
    assert!(login.stderr.contains("/oauth2/authorize?"), "the URL is always shown: {login:?}");
    assert!(login.stdout.contains("kubectl get pods") || login.stderr.contains("kubectl get pods"));

    // kubectl works at once, in the namespace of the context.
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
    alice
        .kubectl()
        .run(["create", "configmap", "notes", "--from-literal=a=b"])
        .await
        .unwrap()
        .success()
        .unwrap();
    let list = alice.kubectl().json(["get", "configmaps"]).await.unwrap();
    let items = list["items"].as_array().unwrap();
    let notes = items.iter().find(|item| item["metadata"]["name"] == "notes").unwrap();
    assert_eq!(notes["metadata"]["namespace"], alice.namespace());

    // The kubeconfig holds no secret: it names the plugin.
    let kubeconfig = std::fs::read_to_string(alice.kubeconfig()).unwrap();
    assert!(kubeconfig.contains("command: kubectl-tenant"), "{kubeconfig}");
    assert!(!kubeconfig.contains("token:"), "{kubeconfig}");

    let whoami =
        alice.kubectl().run(["tenant", "whoami", "-o", "json"]).await.unwrap().success().unwrap();
    assert!(whoami.stdout.contains(alice.email()), "{}", whoami.stdout);
}

#[tokio::test]
async fn signing_in_again_changes_nothing_and_signing_out_ends_it() {
    let world = World::builder().start().await.unwrap();
    let bob = world.person("bob").await.unwrap();
    bob.login(&[]).await.unwrap().success().unwrap();
    bob.login(&[]).await.unwrap().success().unwrap();
    assert_eq!(bob.api().await.unwrap().workspaces(false).await.unwrap().items.len(), 1);

    bob.kubectl().run(["tenant", "logout"]).await.unwrap().success().unwrap();
    let after = bob.kubectl().run(["get", "pods"]).await.unwrap();
    assert!(!after.status.success());
    assert!(after.stderr.contains("kubectl tenant login"), "{}", after.stderr);
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_leaves_nothing() {
    let world = World::builder().start().await.unwrap();
    let eve = world.person("eve").await.unwrap();
    let wrong = eve.issuer().await.unwrap().sign_in(eve.email(), "not the password").await;
    assert!(wrong.is_err());
    assert!(super::object(&world, &["namespace", &eve.namespace()]).await.unwrap().is_none());
}

#[tokio::test]
async fn the_static_kubeconfig_works_without_the_plugin() {
    let world = World::builder().start().await.unwrap();
    let carol = world.person("carol").await.unwrap();
    let api = carol.api().await.unwrap();
    api.init("basic").await.unwrap();
    let document = api.kubeconfig("static").await.unwrap();
    for name in ["name: internal-cluster", "name: tenant-context", "name: sa-tenant-admin"] {
        assert!(document.contains(name), "{document}");
    }
    let file = world.folder().join("carol-static.kubeconfig");
    std::fs::write(&file, &document).unwrap();
    let kubectl = world.kubectl_with(&file).unwrap();
    kubectl.run(["get", "pods"]).await.unwrap().success().unwrap();

    let logs = api.audit_logs("action=IssueKubeconfig").await.unwrap();
    assert_eq!(logs.items.len(), 1);
    assert_eq!(logs.items[0].user_id, Some(carol.id()));
    assert!(logs.items[0].ip_address.is_some() && logs.items[0].credential_id.is_some());
}
