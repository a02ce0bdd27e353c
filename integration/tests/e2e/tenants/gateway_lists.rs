//! Lists and watches of namespaces through the gateway, which sends them with the broker's credential, by
//! those who would like to see more than their own.

use http::{Method, StatusCode, Version};
use integration::api::Api;
use integration::world::World;
use serde_json::Value;

use super::attempt::Answer;
use super::gateway_attacks::{NO_WORKSPACE, Who};
use crate::gateway::GATEWAY;

const NAMESPACES: &str = "api/v1/namespaces";

/// Checks that a list or watch shows the namespace of the caller, or that they have no workspace.
fn shows_own_namespace(who: Who, answer: &Answer, names: &[&str]) {
    let what = format!("{who:?}: {} {}", answer.status, answer.text);
    if let Some(own) = who.own_namespace() {
        assert_eq!(answer.status, StatusCode::OK, "{what}");
        assert_eq!(names, [own], "{what}");
    } else {
        let (status, texts) = NO_WORKSPACE;
        assert!(answer.status == status && answer.text.contains(texts[0]), "{what}");
    }
}

/// The gateway answers the watch with the broker's credential, and does not ask the API server for the
/// upgrade, which would answer with 101. Returns the id of the request.
pub(super) async fn an_upgrade_is_not_the_brokers(
    world: &World,
    api: &Api,
    who: Who,
) -> Option<String> {
    let authority = world.cluster().authority().certificate();
    let api = api.clone().with_http1(Some(authority)).unwrap();
    let path = format!("{GATEWAY}/{NAMESPACES}?watch=1&timeoutSeconds=1");
    let mut request = api.request(Method::GET, &path).unwrap();
    for (name, value) in [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ] {
        request = request.header(name, value);
    }
    let response = request.send().await.unwrap();
    assert_eq!(response.version(), Version::HTTP_11, "HTTP/2 has no upgrades");
    let answer = Answer::read(response).await;
    let events: Vec<Value> =
        answer.text.lines().map(|line| serde_json::from_str(line).unwrap_or_default()).collect();
    let names = events.iter().filter_map(|event| event["object"]["metadata"]["name"].as_str());
    shows_own_namespace(who, &answer, &names.collect::<Vec<_>>());
    answer.id
}

/// Reads a page of the namespaces that the gateway lists.
async fn page(api: &Api, query: &str) -> (Answer, Value) {
    let path = format!("{GATEWAY}/{NAMESPACES}?{query}");
    let answer = Answer::of(api.request(Method::GET, &path).unwrap()).await;
    let list = serde_json::from_str(&answer.text).unwrap();
    (answer, list)
}

fn names_of(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().into_iter().flatten();
    items.map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

/// A token that continues a list of all namespaces does not show others' to a member. Returns the id of
/// the request.
pub(super) async fn a_page_of_others_shows_nothing(
    world: &World,
    api: &Api,
    who: Who,
) -> Option<String> {
    let admin = world.admin_kubectl().unwrap();
    let first = admin.run(["get", "--raw", "/api/v1/namespaces?limit=1"]).await.unwrap();
    let first: Value = serde_json::from_str(&first.success().unwrap().stdout).unwrap();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (answer, list) = page(api, &format!("limit=500&continue={token}")).await;
    shows_own_namespace(who, &answer, &names_of(&list));
    answer.id
}

/// The control: the gateway continues the caller's own list, which has these namespaces.
pub(super) async fn a_page_of_the_own_list_continues_it(api: &Api, names: [&str; 2]) {
    let (_, first) = page(api, "limit=1").await;
    assert_eq!(names_of(&first), names[..1], "{first}");
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = page(api, &format!("limit=1&continue={token}")).await;
    assert_eq!(names_of(&second), names[1..], "{second}");
}
