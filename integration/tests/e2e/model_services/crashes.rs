//! The broker is killed at each step of an installation and of a deletion.

use http::Method;
use integration::fault_proxy::{Fault, RecordedRequest, Rule};
use integration::world::World;
use serde_json::json;

use super::fixture::{Client, REG, namespace_of, world};
use super::llama_stack::{LSD, config_map, distribution, ready_model};

const NAMESPACE: &str = "lsd-kill";
const DISTRIBUTIONS: &str = "/lsd-kill/llamastackdistributions";
const DISTRIBUTION: &str = "/llamastackdistributions/lsd-genai-playground";
const CONFIG_MAPS: &str = "/lsd-kill/configmaps";
const CONFIG_MAP: &str = "/configmaps/llama-stack-config";

/// When the broker is killed.
#[derive(Clone, Copy, Debug)]
enum KillPoint {
    /// Before the API server sees the request, which it never does then.
    Before,
    /// After the API server has carried the request out.
    After,
}

/// Adds a rule that kills the broker at this request of a person.
fn kill_at(world: &World, kill_point: KillPoint, method: &'static Method, end: &'static str) {
    let broker = world.broker().clone();
    let kill = match kill_point {
        KillPoint::Before => Fault::before(move |_| {
            broker.kill();
            std::future::pending()
        }),
        KillPoint::After => Fault::after(move |_| {
            broker.kill();
            std::future::ready(())
        }),
    };
    let is_it = move |seen: &RecordedRequest| seen.is(method, end) && !seen.is_as_broker();
    world.proxy().unwrap().add(Rule::new(kill).nth(1).when(is_it));
}

/// Restarts the broker, and deletes a distribution that is left.
async fn restart_and_delete_what_is_left(world: &World, client: &Client) {
    world.proxy().unwrap().clear();
    world.broker().crash_and_restart().await.unwrap();
    if distribution(world, NAMESPACE).await.is_some() {
        let refused = client.install(NAMESPACE, REG, &["good"]).await;
        assert!(refused.failure(409).contains("delete it first"), "{refused:?}");
        client.delete(NAMESPACE, REG, LSD).await.data();
        assert_eq!(left(world).await, (false, false));
    }
}

/// Whether there is a distribution, and whether there is its ConfigMap.
async fn left(world: &World) -> (bool, bool) {
    let distribution = distribution(world, NAMESPACE).await;
    (distribution.is_some(), config_map(world, NAMESPACE).await.is_some())
}

#[tokio::test]
async fn a_killed_broker_leaves_nothing_or_what_a_deletion_takes_away() {
    let world = world().await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    namespace_of(&world, NAMESPACE, "reg", "admin").await;
    ready_model(&admin, NAMESPACE, "good").await;
    let path = |operation: &str| format!("/lsd/{operation}?namespace={NAMESPACE}");
    for (kill_point, end, expected) in [
        (KillPoint::Before, DISTRIBUTIONS, (false, false)),
        (KillPoint::After, DISTRIBUTIONS, (true, false)),
        (KillPoint::After, CONFIG_MAPS, (true, true)),
    ] {
        kill_at(&world, kill_point, &Method::POST, end);
        let body = json!({"models": [{"model_name": "good"}]});
        let install = client.request(Method::POST, &path("install")).bearer_auth(REG).json(&body);
        assert!(install.send().await.is_err(), "{kill_point:?} {end}: the broker is killed");
        assert_eq!(left(&world).await, expected, "{kill_point:?} {end}");
        restart_and_delete_what_is_left(&world, &client).await;
    }
    for (kill_point, method, end, is_left) in [
        (KillPoint::Before, &Method::DELETE, DISTRIBUTION, true),
        (KillPoint::After, &Method::DELETE, DISTRIBUTION, false),
        (KillPoint::After, &Method::GET, CONFIG_MAP, false),
    ] {
        // A ConfigMap that the garbage collector did not take yet is replaced.
        client.install(NAMESPACE, REG, &["good"]).await.data();
        kill_at(&world, kill_point, method, end);
        let body = json!({ "name": LSD });
        let delete = client.request(Method::DELETE, &path("delete")).bearer_auth(REG).json(&body);
        assert!(delete.send().await.is_err(), "{kill_point:?} {end}: the broker is killed");
        assert_eq!(left(&world).await.0, is_left, "{kill_point:?} {end}");
        restart_and_delete_what_is_left(&world, &client).await;
    }
    client.install(NAMESPACE, REG, &["good"]).await.data();
    client.delete(NAMESPACE, REG, LSD).await.data();
    assert_eq!(left(&world).await, (false, false));
}
