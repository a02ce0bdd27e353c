//! Replicas whose clocks differ.

use std::time::Duration;

use http::{Method, StatusCode};
use integration::person::Person;
use integration::world::World;
use tenant_shared::SuspendRequest;

use super::GATEWAY;

/// More than the ten seconds by which replicas look back at each other's changes.
const CLOCK_SKEW: Duration = Duration::from_secs(15);
/// Time limit of the cut: all open streams are compared with the database every 30 s.
const CUT_TIMEOUT: Duration = Duration::from_mins(1);

/// Opens a watch of a person through this replica, and waits for its first data.
async fn watch(world: &World, person: &Person, replica: usize) -> reqwest::Response {
    let api = person.api().await.unwrap();
    let api = api.at(&world.brokers()[replica].url().unwrap()).unwrap();
    let path =
        format!("{GATEWAY}/api/v1/namespaces/{}/resourcequotas?watch=true", person.namespace());
    let mut answer = api.request(Method::GET, &path).unwrap().send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(answer.chunk().await.unwrap().is_some());
    answer
}

/// Whether the watch is cut within the time limit.
async fn is_cut(mut watch: reqwest::Response) -> bool {
    let rest = async { while let Ok(Some(_)) = watch.chunk().await {} };
    tokio::time::timeout(CUT_TIMEOUT, rest).await.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspension_ends_streams_on_a_replica_whose_clock_is_ahead() {
    let world = World::builder().postgres().replicas(2).start().await.unwrap();
    let ahead = &world.brokers()[1];
    ahead.stop().await.unwrap();
    ahead.set_clock_ahead(CLOCK_SKEW);
    ahead.start().await.unwrap();
    let log = ahead.log().unwrap();
    assert!(log.contains("clock differs from the database's"), "{log}");

    let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
    let (alice, bob) = (world.person("alice").await.unwrap(), world.person("bob").await.unwrap());
    let mut workspaces = Vec::new();
    for person in [&alice, &bob] {
        workspaces.push(person.api().await.unwrap().init("basic").await.unwrap().0.id);
    }
    let (of_alice, of_bob) = (watch(&world, &alice, 1).await, watch(&world, &bob, 1).await);
    let api = bob.api().await.unwrap();
    let credential = api.credential(workspaces[1]).await.unwrap().credential_id;
    operator.suspend(workspaces[0], &SuspendRequest { reason: None }).await.unwrap();
    // Its ServiceAccount is replaced, which revokes the credential of the watch.
    api.revoke(workspaces[1], &credential).await.unwrap();
    let (alice, bob) = tokio::join!(is_cut(of_alice), is_cut(of_bob));
    assert!(alice && bob, "still open: suspended {}, revoked {}", !alice, !bob);
}
