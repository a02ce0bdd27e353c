//! The plugin's commands for tenants, with the real broker and cluster: people who sign in, plain
//! kubectl in the context of a tenant, and the translation of the document's Tenants.

use std::time::Duration;

use integration::person::Person;
use integration::probe::{self, Probe};
use integration::process::Finished;
use integration::world::World;
use serde_json::{Value, json};

use super::cluster::until_accepted;
use super::manifests::MANIFESTS;
use super::{TENANT_BROKER, delete, tenant, until_served, with_object, world_without_controller};

/// Limit of the time until the broker knows a change in the cluster.
const KNOWN_TIMEOUT: Duration = Duration::from_mins(1);
const PRODUCTION: &str = "solar-production";

/// A Tenant that alice owns, and in which bob may read.
fn solar() -> Value {
    let bob = json!({
        "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob@example.com",
    });
    json!({
        "apiVersion": TENANT_BROKER.1,
        "kind": "Tenant",
        "metadata": {"name": "solar"},
        "spec": {
            "owners": [{"kind": "User", "name": "alice@example.com"}],
            "additionalRoleBindings": [{"clusterRoleName": "view", "subjects": [bob]}],
            "namespaceOptions": {"quota": 2},
        },
    })
}

/// Runs `kubectl tenant …`, which has to succeed.
async fn run(person: &Person, args: &[&str]) -> Finished {
    person.kubectl().run(["tenant"].iter().chain(args)).await.unwrap().success().unwrap()
}

/// Runs `kubectl tenant … -o json`, which has to succeed.
async fn json_of(person: &Person, args: &[&str]) -> Value {
    person.kubectl().json(["tenant"].iter().chain(args)).await.unwrap()
}

/// Runs `kubectl tenant …`, which the broker or the cluster has to refuse with this text.
async fn refused(person: &Person, args: &[&str], text: &str) {
    let finished = person.kubectl().run(["tenant"].iter().chain(args)).await.unwrap();
    assert_eq!(finished.code(), 5, "{args:?}: {finished:?}");
    assert!(finished.stderr.contains(text), "{args:?}: {finished:?}");
}

/// Runs `kubectl tenant … -o json` until its output is so: the broker learns of changes in the
/// cluster a moment later.
async fn until_listed(person: &Person, args: &[&str], is_so: impl Fn(&Value) -> bool) -> Value {
    probe::until(&args.join(" "), KNOWN_TIMEOUT, || async {
        let shown = json_of(person, args).await;
        Ok(if is_so(&shown) { Probe::Ready(shown) } else { Probe::NotYet(shown.to_string()) })
    })
    .await
    .unwrap()
}

/// Runs kubectl in the current context, which has to succeed.
async fn kubectl(person: &Person, args: &[&str]) -> String {
    person.kubectl().run(args).await.unwrap().success().unwrap().stdout
}

#[tokio::test]
async fn an_owner_and_a_viewer_use_a_tenant() {
    let world = World::builder()
        .own_control_plane()
        .installed("tenants.enabled", true)
        .tls()
        .start()
        .await
        .unwrap();
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    with_object(&admin, &["create"], solar().to_string()).await.success().unwrap();
    let (alice, bob) = (world.person("alice").await.unwrap(), world.person("bob").await.unwrap());
    for person in [&alice, &bob] {
        person.login(&[]).await.unwrap().success().unwrap();
    }
    let stranger = world.person("mallory").await.unwrap();
    stranger.login(&[]).await.unwrap().success().unwrap();

    let is_active = |list: &Value| list["items"][0]["state"] == "Active";
    let listed = until_listed(&alice, &["tenants"], is_active).await;
    assert_eq!(listed["items"][0]["is_owner"], true, "{listed}");
    assert_eq!(json_of(&stranger, &["tenants", "list"]).await["items"], json!([]));
    refused(&stranger, &["tenants", "get", "solar"], "not found").await;
    refused(&stranger, &["use", "solar"], "not found").await;

    namespaces_are_created(&alice, &bob).await;
    contexts_work(&alice, &bob).await;
    rights_are_explained(&alice, &bob).await;
    tenants_are_shown(&alice, &bob).await;

    run(&alice, &["namespaces", "delete", PRODUCTION]).await;
    until_listed(&alice, &["namespaces"], |left| !left.to_string().contains(PRODUCTION)).await;

    let operator = world.administrator("operator").await.unwrap();
    operator.login(&[]).await.unwrap().success().unwrap();
    run(&operator, &["tenants", "suspend", "solar", "--reason", "a test"]).await;
    let get = alice.kubectl().run(["get", "pods", "-n", "solar-test"]).await.unwrap();
    assert!(!get.status.success(), "{get:?}");
    let get = ["tenants", "get", "solar"];
    until_listed(&operator, &get, |tenant| tenant["state"] == "Suspended").await;
    a_suspension_is_shown(&alice, &bob).await;
    nobody_is_sent_astray(&operator, &stranger, &bob).await;
}

/// What the members of a suspended tenant see.
async fn a_suspension_is_shown(alice: &Person, bob: &Person) {
    let who = run(alice, &["whoami"]).await.stdout;
    for text in ["; the tenant is suspended)", "\nTenants solar (suspended)\n"] {
        assert!(who.contains(text), "{who}");
    }
    let list = run(alice, &["namespaces"]).await.stdout;
    assert!(list.contains("active (tenant suspended)"), "{list}");
    // Not "the workspace": bob's context is that of the tenant.
    let get = ["--context", "tenant-solar", "get", "configmaps"];
    probe::until("kubectl says what is suspended", KNOWN_TIMEOUT, || async {
        let finished = bob.kubectl().run(get).await?;
        let says_it = finished.stderr.contains("the tenant solar is suspended");
        Ok(if says_it { Probe::Ready(()) } else { Probe::NotYet(finished.stderr) })
    })
    .await
    .unwrap();
}

/// The commands that messages name can be carried out.
async fn nobody_is_sent_astray(operator: &Person, stranger: &Person, bob: &Person) {
    let list = run(stranger, &["namespaces"]).await;
    assert!(list.stderr.contains("no Tenant names you; ask an administrator"), "{list:?}");
    let list = run(operator, &["namespaces"]).await;
    assert!(list.stderr.contains("kubectl tenant namespaces --tenant NAME"), "{list:?}");
    refused(operator, &["suspend", "tenant-solar"], "kubectl tenant tenants members solar").await;
    let suspend = ["tenant", "suspend", bob.email()];
    let several = operator.kubectl().run(suspend).await.unwrap();
    assert_eq!(several.code(), 5, "{several:?}");
    let hint = several.stderr.lines().last().unwrap();
    assert!(hint.contains(&format!("name one of them: {}, ", bob.namespace())), "{hint}");
    let end = format!("; the person with everything: kubectl tenant users suspend {}", bob.email());
    assert!(hint.ends_with(&end), "{hint}");
    let (before, _) = hint.split_once(" (member of tenant solar)").unwrap();
    let membership = before.rsplit(' ').next().unwrap();
    run(operator, &["usage", membership]).await;
}

async fn namespaces_are_created(alice: &Person, bob: &Person) {
    let created = json_of(alice, &["namespaces", "create", PRODUCTION, "--label", "team=a"]).await;
    assert_eq!((&created["tenant"], &created["name"]), (&json!("solar"), &json!(PRODUCTION)));
    refused(alice, &["namespaces", "create", "other"], "begin with solar-").await;
    run(alice, &["namespaces", "create", "solar-test"]).await;
    refused(alice, &["namespaces", "create", "solar-more"], "has 2 of 2").await;
    let text = "you own no tenant";
    refused(bob, &["namespaces", "create", "solar-bob"], text).await;
    let text = "only an owner of tenant solar may do that; ask an owner or an administrator";
    refused(bob, &["namespaces", "create", "solar-bob", "--tenant", "solar"], text).await;
    for person in [alice, bob] {
        let list = json_of(person, &["namespaces", "list"]).await;
        let names: Vec<&Value> =
            list["items"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
        assert_eq!(names, [PRODUCTION, "solar-test"]);
    }
}

async fn contexts_work(alice: &Person, bob: &Person) {
    for mode in ["exec", "gateway"] {
        run(alice, &["use", "solar", "--mode", mode]).await;
        let config = alice.kubectl().json(["config", "view"]).await.unwrap();
        assert_eq!(config["current-context"], "tenant-solar", "{config}");
        assert_eq!(config["contexts"].as_array().unwrap().len(), 2, "the personal one stays");
        let name = format!("notes-{mode}");
        kubectl(alice, &["create", "configmap", &name]).await;
        let made = ["get", "configmap", &name, "-n", PRODUCTION];
        kubectl(alice, &made).await;
    }
    refused(bob, &["use", "solar", "--namespace", "nope"], "its namespaces: solar-production")
        .await;
    run(bob, &["use", "solar", "--namespace", "solar-test"]).await;
    // RBAC follows the bindings of a new member after a moment.
    until_accepted(bob.kubectl(), &["get", "configmaps"]).await;
    let denied = bob.kubectl().run(["create", "configmap", "mine"]).await.unwrap();
    assert!(denied.stderr.contains("orbidden"), "{denied:?}");
    kubectl(bob, &["--context", "tenant-context", "get", "pods"]).await;
}

async fn rights_are_explained(alice: &Person, bob: &Person) {
    let why = ["why", "create", "deployments.apps", "-n", PRODUCTION];
    let explained = json_of(alice, &why).await;
    assert_eq!(explained["allowed"], true, "{explained}");
    assert_eq!(explained["role"], "ClusterRole admin", "{explained}");
    assert_eq!(explained["given_by"], json!(["owner User alice@example.com"]), "{explained}");
    let denied = json_of(bob, &why).await;
    assert_eq!(denied["allowed"], false, "{denied}");
    assert_eq!(denied["roles"][0]["cluster_role"], "view", "{denied}");
    let read = json_of(bob, &["why", "get", "pods", "-n", PRODUCTION, "--subresource=log"]).await;
    let by = read["given_by"][0].as_str().unwrap();
    assert!(by.contains("additionalRoleBindings[0]"), "{read}");
    refused(bob, &["why", "get", "pods", "-n", "kube-system"], "no tenant of yours").await;
}

async fn tenants_are_shown(alice: &Person, bob: &Person) {
    let who = json_of(bob, &["whoami"]).await;
    assert_eq!(who["tenants"], json!(["solar"]), "{who}");
    let members = run(alice, &["tenants", "members", "solar"]).await.stdout;
    for email in [alice.email(), bob.email()] {
        assert!(members.contains(email), "{members}");
    }
    let finished = bob.kubectl().run(["tenant", "tenants", "members", "solar"]).await.unwrap();
    assert_eq!(finished.code(), 5, "{finished:?}");
    refused(bob, &["namespaces", "delete", PRODUCTION], "orbidden").await;
    refused(alice, &["tenants", "suspend", "solar"], "refused").await;
}

#[tokio::test]
async fn tenants_of_the_document_are_translated_and_apply() {
    let world = world_without_controller().await;
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    let import = ["tenant", "import", "-f", "-"];
    for manifest in MANIFESTS {
        let translated = admin.run_with_input(import, manifest).await.unwrap().success().unwrap();
        with_object(&admin, &["apply"], translated.stdout).await.success().unwrap();
    }
    let last = tenant(&admin, TENANT_BROKER, "solar").await;
    let owners = last["spec"]["owners"].as_array().unwrap();
    let names: Vec<&Value> = owners.iter().map(|owner| &owner["name"]).collect();
    assert_eq!(names, ["alice", "joe"], "{last}");

    let all = MANIFESTS.join("---\n");
    let translated = admin.run_with_input(import, all).await.unwrap().success().unwrap();
    assert_eq!(translated.stdout.matches("apiVersion: tenant-broker.io/v1alpha1").count(), 10);
    assert!(!translated.stdout.contains("capsule"), "{translated:?}");
    assert!(translated.stderr.contains("became tenant-namespace-deleter"), "{translated:?}");

    // kubectl refuses fields that the definition does not have, so the translation leaves them out.
    let rich = "apiVersion: capsule.clastix.io/v1beta2\nkind: Tenant\nmetadata: {name: solar}\n\
                spec:\n  owners: [{kind: User, name: alice, labels: {a: b}}]\n  \
                storageClasses: {allowed: [a]}\n  preventDeletion: true\n  \
                namespaceOptions: {quota: 3, forbiddenLabels: {denied: [x]}}\n  \
                networkPolicies: {items: [{podSelector: {}}]}\n";
    let translated = admin.run_with_input(import, rich).await.unwrap().success().unwrap();
    with_object(&admin, &["apply"], translated.stdout).await.success().unwrap();
    for field in ["spec.storageClasses", "spec.preventDeletion", "spec.owners[0].labels"] {
        assert!(translated.stderr.contains(field), "{}", translated.stderr);
    }
    delete(&admin, TENANT_BROKER, "solar").await;
}
