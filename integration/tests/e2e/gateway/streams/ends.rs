//! Streams whose client, broker or API server goes away: all parts of them are released.

use std::collections::BTreeSet;
use std::time::Duration;

use http::{Method, StatusCode};
use integration::probe::{self, Probe};
use integration::streams::{OpenStreams, make_pod};
use integration::world::World;

use super::super::GATEWAY;
use super::{POD, through_the_gateway};

/// Time limit of the release in a test.
const END_TIMEOUT: Duration = Duration::from_secs(30);
/// Longer than the test: the command of `exec` prints nothing meanwhile.
const EXEC_SILENCE: Duration = Duration::from_mins(10);

/// Returns the requests in this namespace that are open at the API server: started and not
/// complete, by its audit log.
fn open(world: &World, namespace: &str) -> BTreeSet<String> {
    let events = world.cluster().audit_events(namespace).unwrap();
    let of_stage = |stage: &str| {
        let ours = events.iter().filter(|event| event["objectRef"]["namespace"] == namespace);
        ours.filter(|event| event["stage"] == stage).collect::<Vec<_>>()
    };
    let over: BTreeSet<_> =
        of_stage("ResponseComplete").iter().map(|event| event["auditID"].to_string()).collect();
    let begun = of_stage("ResponseStarted").into_iter();
    begun
        .filter(|event| !over.contains(&event["auditID"].to_string()))
        .map(|event| {
            let text = |key: &str| event["objectRef"][key].as_str().unwrap_or_default().to_owned();
            format!("{}/{}", text("resource"), text("subresource"))
        })
        .collect()
}

async fn nothing_is_open(world: &World, namespace: &str) {
    probe::until("the API server to be done with all", END_TIMEOUT, || async {
        let left = open(world, namespace);
        Ok(if left.is_empty() { Probe::Ready(()) } else { Probe::NotYet(format!("{left:?}")) })
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_when_either_end_disconnects() {
    let world = World::builder().own_control_plane().node().tls().start().await.unwrap();
    let node = world.node().unwrap();
    let alice = through_the_gateway(&world, "alice").await;
    let namespace = alice.namespace();
    make_pod(alice.kubectl(), node, POD).await.unwrap();
    let streams = async |word: &str| {
        OpenStreams::open(alice.kubectl(), node, POD, EXEC_SILENCE, word).await.unwrap()
    };

    // The client disconnects, and the API server notices.
    let leaving = streams("client").await;
    let all = ["configmaps/", "pods/exec", "pods/log", "pods/portforward"].map(str::to_owned);
    assert_eq!(open(&world, &namespace), BTreeSet::from(all));
    drop(leaving);
    nothing_is_open(&world, &namespace).await;

    // The client stays and does not read: the stream ends although data is pending.
    let line = "x".repeat(8_000);
    for _ in 0..4_000 {
        node.log(&line).unwrap();
    }
    let api = alice.api().await.unwrap();
    let path = format!("{GATEWAY}/api/v1/namespaces/{namespace}/pods/{POD}/log?follow=true");
    let unread = api.request(Method::GET, &path).unwrap().send().await.unwrap();
    assert_eq!(unread.status(), StatusCode::OK);
    assert_eq!(open(&world, &namespace), BTreeSet::from(["pods/log".to_owned()]));
    api.request(Method::DELETE, "me/sessions").unwrap().send().await.unwrap();
    nothing_is_open(&world, &namespace).await;
    drop(unread);
    alice.login(&[]).await.unwrap().success().unwrap();
    let gateway = ["tenant", "kubeconfig", "--mode", "gateway", "--use"];
    alice.kubectl().run(gateway).await.unwrap().success().unwrap();

    // The broker shuts down: it waits for no stream, and clients can connect elsewhere.
    let ends = tokio::spawn(streams("broker").await.end(END_TIMEOUT));
    let stopped = tokio::time::timeout(END_TIMEOUT, world.broker().stop()).await;
    assert!(stopped.expect("streams held it up").unwrap().success());
    ends.await.unwrap().unwrap();
    nothing_is_open(&world, &namespace).await;
    world.broker().start().await.unwrap();

    // The API server dies: clients do not wait for a response that cannot come.
    let ends = tokio::spawn(streams("server").await.end(END_TIMEOUT));
    world.cluster().processes()[0].kill();
    ends.await.unwrap().unwrap();
}
