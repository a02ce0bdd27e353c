//! Watches that are not read while many events happen.

use http::{Method, StatusCode};
use integration::world::World;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::{GATEWAY, is_flat, is_served, memory, tenant};

/// Number of watches that are not read.
const WATCHES: usize = 8;
/// Number of changes, and the bytes of each.
const CHANGES: usize = 100;
const BYTES: usize = 500_000;

#[tokio::test]
async fn an_unread_watch_is_not_buffered_and_loses_nothing() {
    // With plain HTTP each watch has a connection of its own, with TLS they share one.
    for builder in [World::builder(), World::builder().tls()] {
        let world = builder.setting("log.level", "info").start().await.unwrap();
        let (alice, api) = tenant(&world, "alice").await;
        let (bob, _) = tenant(&world, "bob").await;
        let session = bob.sign_in().await.unwrap();
        let maps: Api<ConfigMap> =
            Api::namespaced(world.cluster().admin().await.unwrap(), &alice.namespace());
        let change = async |text: String| {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "much"}, "data": {"text": text}});
            let how = PatchParams::apply("burden").force();
            maps.patch("much", &how, &Patch::Apply(&object)).await.unwrap();
        };
        change("first".to_owned()).await;
        let path = format!("{GATEWAY}/api/v1/namespaces/{}/configmaps", alice.namespace());
        let path = format!("{path}?watch=true&fieldSelector=metadata.name%3Dmuch");
        let mut watches = Vec::new();
        for _ in 0..WATCHES {
            let mut watch = api.request(Method::GET, &path).unwrap().send().await.unwrap();
            assert_eq!(watch.status(), StatusCode::OK);
            assert!(watch.chunk().await.unwrap().is_some());
            watches.push(watch);
        }
        let memory = memory(&world);
        for count in 0..CHANGES {
            let letter = char::from(b'a' + u8::try_from(count % 26).unwrap());
            change(letter.to_string().repeat(BYTES)).await;
        }
        is_flat(&memory, "400 MB of events that nobody reads");
        is_served(&bob, &session, &world).await;
        // The pending events still arrive once the client reads.
        for mut watch in watches {
            assert!(watch.chunk().await.unwrap().is_some());
        }
    }
}
