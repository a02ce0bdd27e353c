//! Worlds: brokers, people and faults, isolated from each other.

use std::sync::Arc;
use std::time::Duration;

use integration::binaries::{Binaries, Profile};
use integration::fault_proxy::{Fault, RecordedRequest, Rule};
use integration::probe::{self, Probe};
use integration::world::World;

#[tokio::test]
async fn a_second_build_compiles_nothing() {
    Binaries::shared().await.unwrap();
    let again = Binaries::build(Profile::own(), None, None).await.unwrap();
    assert_eq!(again.compiled(), 0);
    let version = integration::process::Program::new(again.tenant_broker()).arg("--version");
    version.run(Duration::from_secs(10)).await.unwrap().success().unwrap();
}

#[tokio::test]
async fn two_worlds_share_the_cluster_and_nothing_else() {
    let (first, second) = tokio::join!(World::builder().start(), World::builder().start());
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.cluster().url(), second.cluster().url());
    assert_ne!(first.broker().url().unwrap(), second.broker().url().unwrap());
    // The same e-mail address is another account in each world.
    let here = first.person("alice").await.unwrap();
    let there = second.person("alice").await.unwrap();
    assert_ne!(here.namespace(), there.namespace());
    let api = here.api().await.unwrap();
    assert!(api.at(&second.broker().url().unwrap()).unwrap().me().await.is_err());

    let folder = second.folder().to_owned();
    let pid = second.broker().pid().unwrap();
    drop(second);
    assert!(!folder.exists());
    assert!(!super::process::runs(pid));
    here.api().await.unwrap().me().await.unwrap();
}

#[tokio::test]
async fn a_person_logs_in_with_the_plugin_and_uses_kubectl() {
    let world = World::builder().start().await.unwrap();
    let person = world.person("alice").await.unwrap();
    person.login(&[]).await.unwrap().success().unwrap();
    let pods = person.kubectl().json(["get", "pods"]).await.unwrap();
    assert_eq!(pods["items"], serde_json::json!([]));
    let elsewhere = person.at_another_machine("alice-laptop").unwrap();
    assert!(!elsewhere.kubectl().run(["get", "pods"]).await.unwrap().status.success());
    // A running watch ends when its value is dropped.
    let watch = person.kubectl().spawn(["get", "configmaps", "--watch"]).unwrap();
    let created = person.kubectl().run(["create", "configmap", "news"]).await.unwrap();
    created.success().unwrap();
    watch.until_stdout("the news", Duration::from_secs(20), |t| t.contains("news")).await.unwrap();
}

#[tokio::test]
async fn a_broker_that_serves_tls_is_trusted_by_its_ca_alone() {
    let world = World::builder().tls().start().await.unwrap();
    let person = world.person("alice").await.unwrap();
    assert_eq!(world.broker().public_url().unwrap().scheme(), "https");
    person.login(&[]).await.unwrap().success().unwrap();
    person.api().await.unwrap().me().await.unwrap();
}

#[tokio::test]
async fn a_broker_stops_in_order_and_comes_back_from_a_crash_with_its_state() {
    let world = World::builder().start().await.unwrap();
    let person = world.person("alice").await.unwrap();
    let api = person.api().await.unwrap();
    let (workspace, is_new) = api.init("basic").await.unwrap();
    assert!(is_new);
    world.broker().crash_and_restart().await.unwrap();
    assert_eq!(api.workspace(workspace.id).await.unwrap().owner, person.id());
    assert!(world.broker().stop().await.unwrap().success());
    assert!(api.me().await.is_err());
    world.broker().start().await.unwrap();
    api.me().await.unwrap();
}

#[tokio::test]
async fn replicas_share_sessions_through_postgresql() {
    let world = World::builder().postgres().replicas(2).start().await.unwrap();
    let [first, second] = world.brokers() else { panic!("not two brokers") };
    assert_ne!(first.url().unwrap(), second.url().unwrap());
    assert_eq!(first.public_url().unwrap(), second.public_url().unwrap());
    let person = world.person("alice").await.unwrap();
    let api = person.api().await.unwrap();
    let (workspace, _) = api.init("basic").await.unwrap();
    let api = api.at(&second.url().unwrap()).unwrap();
    assert_eq!(api.workspaces(false).await.unwrap().items[0].id, workspace.id);
    assert!(world.database_url().unwrap().as_str().starts_with("postgres://"));
}

#[tokio::test]
async fn a_broker_is_killed_while_the_cluster_answers_it() {
    let world = World::builder().fault_proxy().start().await.unwrap();
    let person = world.person("alice").await.unwrap();
    let api = person.api().await.unwrap();
    let (workspace, _) = api.init("basic").await.unwrap();
    let proxy = world.proxy().unwrap();
    assert_eq!(proxy.count(RecordedRequest::is_token_request), 0);
    let broker = world.broker().clone();
    let kill = Fault::after(move |_| {
        broker.kill();
        std::future::ready(())
    });
    let rule = proxy.add(Rule::new(kill).when(RecordedRequest::is_token_request).nth(1));
    assert!(api.credential(workspace.id).await.is_err());
    assert_eq!(rule.fired(), 1);
    probe::until("the broker to be gone", Duration::from_secs(5), || async {
        let running = world.broker().is_running();
        Ok(if running { Probe::NotYet("it runs".into()) } else { Probe::Ready(()) })
    })
    .await
    .unwrap();
    world.broker().start().await.unwrap();
    let credential = api.credential(workspace.id).await.unwrap();
    assert_eq!(credential.workspace_id, workspace.id);
    assert_eq!(proxy.count(RecordedRequest::is_token_request), 2);
    // Kubeconfigs of people point at the API server, not at the proxy.
    let kubeconfig = api.kubeconfig("static").await.unwrap();
    let server = world.cluster().url().as_str().trim_end_matches('/');
    assert!(kubeconfig.contains(server), "{kubeconfig}");
}

#[tokio::test]
async fn a_setting_reaches_every_broker() {
    let world =
        World::builder().setting("limits.init_per_hour", 1).start().await.map(Arc::new).unwrap();
    let person = world.person("alice").await.unwrap();
    let api = person.api().await.unwrap();
    api.init("basic").await.unwrap();
    let error = api.init("basic").await.unwrap_err();
    assert_eq!(error.refused().unwrap().status, 429);
    assert!(error.refused().unwrap().retry_after().is_some());
}
