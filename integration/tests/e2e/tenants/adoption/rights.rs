//! People who work in a namespace while it goes to another tenant, through the gateway.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};
use integration::api::Api;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::json;

use super::{Fixture, builder};
use crate::gateway::{GATEWAY, through_the_gateway};
use crate::until_logged;

const NAMESPACE: &str = "solar-a";
/// Limit of the time until a stream ends.
const STREAM_TIMEOUT: Duration = Duration::from_mins(1);

/// Whether a person may list ConfigMaps of the namespace.
async fn may_list(api: &Api) -> bool {
    let path = format!("{GATEWAY}/api/v1/namespaces/{NAMESPACE}/configmaps");
    let answer = api.request(Method::GET, &path).unwrap().send().await.unwrap();
    answer.status() == StatusCode::OK
}

/// The response to a read of a ConfigMap that does not exist, without the name of the namespace.
async fn read_by_name(api: &Api, namespace: &str) -> (StatusCode, String) {
    let path = format!("{GATEWAY}/api/v1/namespaces/{namespace}/configmaps/none");
    let answer = api.request(Method::GET, &path).unwrap().send().await.unwrap();
    let status = answer.status();
    (status, answer.text().await.unwrap().replace(namespace, "NAMESPACE"))
}

async fn until_allowed(api: &Api, expected: bool) {
    probe::until("the right", super::RECONCILE_TIMEOUT, || async {
        let is_so = may_list(api).await == expected;
        Ok(if is_so { Probe::Ready(()) } else { Probe::NotYet(format!("not {expected}")) })
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn the_rights_and_streams_of_former_members_end_before_others_have_rights() {
    let fixture = Fixture::start(builder().tls()).await;
    let people = people(&fixture.world).await;
    let [alice, carol] = &people;
    let pods = |pods: &str| json!({"hard": {"pods": pods}});
    fixture.apply("solar", "alice@example.com", &[pods("4")], "Namespace").await;
    fixture.apply("lunar", "carol@example.com", &[pods("3")], "Namespace").await;
    fixture.namespace_of("solar", NAMESPACE, "alice@example.com").await;
    until_allowed(alice, true).await;
    assert!(!may_list(carol).await);

    let mut watches = Vec::new();
    for path in ["namespaces/solar-a/configmaps?watch=1", "watch/namespaces/solar-a/configmaps"] {
        let watch = watch(alice, path).await;
        assert_eq!(watch.status(), StatusCode::OK, "{path}");
        watches.push(watch);
    }
    // The API server decodes this name, so the stream would not be known as one of the namespace.
    for path in ["namespaces/solar%2Da/configmaps?watch=1", "namespaces/%73olar-a/pods?watch=1"] {
        assert_eq!(watch(alice, path).await.status(), StatusCode::BAD_REQUEST, "{path}");
    }
    let carol_had_right = Arc::new(AtomicBool::new(false));
    let ended = Arc::new(AtomicBool::new(false));
    // Carol's first success comes after Alice's last one.
    let prober = {
        let (alice, carol) = (alice.clone(), carol.clone());
        let (carol_had_right, ended) = (Arc::clone(&carol_had_right), Arc::clone(&ended));
        tokio::spawn(async move {
            while !ended.load(Ordering::SeqCst) {
                if may_list(&carol).await {
                    carol_had_right.store(true, Ordering::SeqCst);
                }
                if may_list(&alice).await {
                    assert!(!carol_had_right.load(Ordering::SeqCst), "both have rights");
                }
            }
        })
    };
    let plan = fixture.announce("lunar", NAMESPACE).await;
    fixture.label(&plan).await;
    // The prober asks about Alice after Carol's first success.
    probe::until("Carol's right in the prober", super::RECONCILE_TIMEOUT, || async {
        let had_right = carol_had_right.load(Ordering::SeqCst);
        Ok(if had_right { Probe::Ready(()) } else { Probe::NotYet("no success".to_owned()) })
    })
    .await
    .unwrap();
    for mut watch in watches {
        let end = async { while let Ok(Some(_)) = watch.chunk().await {} };
        tokio::time::timeout(STREAM_TIMEOUT, end).await.expect("the watch ends");
    }
    ended.store(true, Ordering::SeqCst);
    prober.await.unwrap();
    until_allowed(alice, false).await;
    // What she reads by name does not tell that the namespace exists.
    let answers = [NAMESPACE, "solar-none"].map(|namespace| read_by_name(alice, namespace));
    let [moved, absent] = futures_util::future::join_all(answers).await.try_into().unwrap();
    assert_eq!(moved, absent);
    assert_eq!(moved.0, StatusCode::NOT_FOUND, "{moved:?}");
    until_logged(fixture.world.broker(), "namespace moved").await;
}

async fn watch(api: &Api, path: &str) -> reqwest::Response {
    let path = format!("{GATEWAY}/api/v1/{path}");
    api.request(Method::GET, &path).unwrap().send().await.unwrap()
}

async fn people(world: &World) -> [Api; 2] {
    let alice = through_the_gateway(world, "alice").await.api().await.unwrap();
    let carol = through_the_gateway(world, "carol").await.api().await.unwrap();
    [alice, carol]
}
