//! A tenant's limits at the gateway, and the usage that is recorded.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::{Method, StatusCode};
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::Value;

use super::{GATEWAY, through_the_gateway};

#[tokio::test]
async fn a_tenant_over_its_limits_gets_retry_after_and_others_are_unaffected() {
    let world = World::builder()
        .setting("tiers.basic.gateway_requests_per_second", 5)
        .setting("tiers.basic.gateway_streams", 2)
        .tls()
        .start()
        .await
        .unwrap();
    let (alice, bob) = (world.person("alice").await.unwrap(), world.person("bob").await.unwrap());
    let (flood, other) = (alice.api().await.unwrap(), bob.api().await.unwrap());
    let (workspace, _) = flood.init("basic").await.unwrap();
    other.init("basic").await.unwrap();
    let namespace = alice.namespace();
    let get = |path: &str| flood.request(Method::GET, &format!("{GATEWAY}{path}")).unwrap().send();
    let pods = format!("/api/v1/namespaces/{namespace}/pods");

    let began = Instant::now();
    let answers = join_all((0..40).map(|_| get(&pods))).await;
    let refilled = 5 * (began.elapsed().as_secs() + 1);
    let mut refused = 0;
    for answer in answers {
        let answer = answer.unwrap();
        if answer.status() == StatusCode::OK {
            continue;
        }
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.headers()["retry-after"], "1");
        let status: Value = answer.json().await.unwrap();
        assert_eq!(
            (&status["kind"], &status["reason"]),
            (&"Status".into(), &"TooManyRequests".into())
        );
        assert_eq!(status["details"]["retryAfterSeconds"], 1);
        refused += 1;
    }
    let text = format!("20 at once, then 5 a second, {refilled} meanwhile: {refused} refused");
    assert!(refused <= 20 && refused + refilled >= 20, "{text}");
    let path = format!("{GATEWAY}/version");
    let unharmed = other.request(Method::GET, &path).unwrap().send().await.unwrap();
    assert_eq!(unharmed.status(), StatusCode::OK);

    tokio::time::sleep(Duration::from_secs(2)).await;
    let watch = format!("{pods}?watch=true");
    let open = [get(&watch).await.unwrap(), get(&watch).await.unwrap()];
    assert!(open.iter().all(|answer| answer.status() == StatusCode::OK));
    assert_eq!(get(&watch).await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    drop(open);
    probe::until("the places to be free", Duration::from_secs(30), || async {
        let status = get(&watch).await?.status();
        Ok(if status == StatusCode::OK {
            Probe::Ready(())
        } else {
            Probe::NotYet(status.to_string())
        })
    })
    .await
    .unwrap();

    // The usage is persistent across a restart.
    world.broker().stop().await.unwrap();
    world.broker().start().await.unwrap();
    let usage = flood.usage(workspace.id).await.unwrap();
    let of = |verb: &str| usage.items.iter().find(|day| day.verb == verb).unwrap().clone();
    assert_eq!((of("list").requests, of("list").throttled), (40 - refused, refused));
    assert!(of("list").bytes_down > 0 && of("watch").requests >= 3, "{usage:?}");
}

#[tokio::test]
async fn kubectl_retries_by_itself_and_usage_is_shown() {
    let world = World::builder()
        .setting("tiers.basic.gateway_requests_per_second", 1)
        .tls()
        .start()
        .await
        .unwrap();
    let alice = through_the_gateway(&world, "alice").await;
    let review = ["auth", "can-i", "create", "pods"];
    alice.kubectl().run(review).await.unwrap().success().unwrap();
    for _ in 0..8 {
        alice
            .kubectl()
            .run(["get", "configmap", "absent", "--ignore-not-found"])
            .await
            .unwrap()
            .success()
            .unwrap();
    }
    // The broker writes usage from time to time.
    let items = probe::until("usage", Duration::from_mins(1), || async {
        let document = alice.kubectl().run(["tenant", "usage", "-o", "json"]).await?.success()?;
        let document: Value = serde_json::from_str(&document.stdout)?;
        let items = document["items"].as_array().cloned().unwrap_or_default();
        let get = items.iter().find(|item| item["verb"] == "get");
        let is_whole = get.is_some_and(|get| get["requests"].as_u64() >= Some(8));
        Ok(if is_whole { Probe::Ready(items) } else { Probe::NotYet(document.to_string()) })
    })
    .await
    .unwrap();
    let usage = alice.kubectl().run(["tenant", "usage"]).await.unwrap().success().unwrap().stdout;
    assert!(usage.starts_with("DAY") && usage.contains("get"), "{usage}");
    let of = |verb: &str| items.iter().find(|item| item["verb"] == verb).unwrap();
    // The gateway reads an access review itself and counts it like any other request.
    assert!(of("create")["bytes_up"].as_u64() > Some(0), "{items:?}");
}
