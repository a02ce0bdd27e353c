//! The broker is killed at each step of an installation and of a deletion.

use http::Method;
use integration::fault_proxy::{Fault, RecordedRequest, Rule};
use integration::probe::{self, Probe};
use integration::world::World;

use super::fixture::{Client, REG, TIMEOUT, namespace_of, world};
use super::llama_stack::{LSD, config_map, distribution, ready_model};

const NAMESPACE: &str = "lsd-kill";
const DISTRIBUTIONS: &str = "/lsd-kill/llamastackdistributions";
const DISTRIBUTION: &str = "/llamastackdistributions/lsd-genai-playground";
const CONFIG_MAPS: &str = "/lsd-kill/configmaps";
const CONFIG_MAP: &str = "/configmaps/llama-stack-config";

/// When the broker is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// Before the API server sees the request, which it never does then.
    Before,
    /// After the API server has carried the request out.
    After,
}

/// Adds a rule that kills the broker at this request of a person.
fn kill_at(world: &World, moment: Moment, method: &'static Method, end: &'static str) {
    let broker = world.broker().clone();
    let kill = match moment {
        Moment::Before => Fault::before(move |_| {
            broker.kill();
            std::future::pending()
        }),
        Moment::After => Fault::after(move |_| {
            broker.kill();
            std::future::ready(())
        }),
    };
    let is_it = move |seen: &RecordedRequest| seen.is(method, end) && !seen.is_as_broker();
    world.proxy().unwrap().add(Rule::new(kill).nth(1).when(is_it));
}

/// Restarts the broker, deletes a distribution that is left, and waits until nothing is.
async fn restart_and_delete_what_is_left(world: &World, client: &Client) {
    world.proxy().unwrap().clear();
    world.broker().crash_and_restart().await.unwrap();
    if distribution(world, NAMESPACE).await.is_some() {
        client.delete(NAMESPACE, REG, LSD).await.data();
        assert!(distribution(world, NAMESPACE).await.is_none());
    }
    // The garbage collector takes a ConfigMap whose owner is gone.
    probe::until("the end of the ConfigMap", TIMEOUT, || async {
        Ok(match config_map(world, NAMESPACE).await {
            None => Probe::Ready(()),
            Some(found) => Probe::NotYet(found.to_string()),
        })
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_killed_broker_leaves_nothing_or_what_a_deletion_takes_away() {
    let world = world().await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    namespace_of(&world, NAMESPACE, "reg", "admin").await;
    ready_model(&admin, NAMESPACE, "good").await;
    let path = |operation: &str| format!("/lsd/{operation}?namespace={NAMESPACE}");
    for (moment, end, left) in [
        (Moment::Before, DISTRIBUTIONS, (false, false)),
        (Moment::After, DISTRIBUTIONS, (true, false)),
        (Moment::After, CONFIG_MAPS, (true, true)),
    ] {
        kill_at(&world, moment, &Method::POST, end);
        let body = serde_json::json!({"models": [{"model_name": "good"}]});
        let install = client.request(Method::POST, &path("install")).bearer_auth(REG).json(&body);
        assert!(install.send().await.is_err(), "{moment:?} {end}: the broker is killed");
        let found = (
            distribution(&world, NAMESPACE).await.is_some(),
            config_map(&world, NAMESPACE).await.is_some(),
        );
        assert_eq!(found, left, "{moment:?} {end}");
        restart_and_delete_what_is_left(&world, &client).await;
    }
    for (moment, end, is_left) in [
        (Moment::Before, DISTRIBUTION, true),
        (Moment::After, DISTRIBUTION, false),
        (Moment::After, CONFIG_MAP, false),
    ] {
        client.install(NAMESPACE, REG, &["good"]).await.data();
        kill_at(&world, moment, &Method::DELETE, end);
        let body = serde_json::json!({ "name": LSD });
        let delete = client.request(Method::DELETE, &path("delete")).bearer_auth(REG).json(&body);
        assert!(delete.send().await.is_err(), "{moment:?} {end}: the broker is killed");
        assert_eq!(distribution(&world, NAMESPACE).await.is_some(), is_left, "{moment:?} {end}");
        restart_and_delete_what_is_left(&world, &client).await;
    }
    client.install(NAMESPACE, REG, &["good"]).await.data();
}
