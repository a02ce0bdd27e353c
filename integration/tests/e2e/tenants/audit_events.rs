//! Events of the API server's audit log that requests through the gateway cause. The broker sends the id of a
//! request with what it forwards, with TokenRequests, and with lists that have its own credential.

use std::collections::BTreeSet;

use integration::control_plane::BROKER_USER;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::Value;
use url::form_urlencoded;

use super::cluster::RIGHTS_TIMEOUT;

/// The events with these ids.
pub(super) fn events_of(world: &World, ids: &BTreeSet<String>) -> Vec<Value> {
    let log = std::fs::read_to_string(world.cluster().audit_log()).unwrap();
    let id_of = |line: &str| {
        let (_, rest) = line.split_once("\"auditID\":\"")?;
        rest.split('"').next().map(str::to_owned)
    };
    let lines = log.lines().filter(|line| id_of(line).is_some_and(|id| ids.contains(&id)));
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Waits until there are events of all these ids, and so those of the requests before them.
pub(super) async fn until_logged(world: &World, ids: &BTreeSet<String>) {
    probe::until("the events of requests", RIGHTS_TIMEOUT, || async {
        let events = events_of(world, ids);
        let logged: BTreeSet<&str> =
            events.iter().filter_map(|event| event["auditID"].as_str()).collect();
        let are_all = logged.len() == ids.len();
        Ok(if are_all { Probe::Ready(()) } else { Probe::NotYet(format!("{logged:?}")) })
    })
    .await
    .unwrap();
}

/// Checks that requests with these ids caused nothing with the broker's identity but TokenRequests for the
/// members, with whose tokens they are forwarded, and lists of the namespaces of tenants. Returns the ids of
/// those that caused such a list.
pub(super) fn lists_as_broker(world: &World, ids: &BTreeSet<String>) -> BTreeSet<String> {
    let events = events_of(world, ids);
    assert!(!events.is_empty(), "nothing was forwarded");
    let (lists, others): (Vec<&Value>, Vec<&Value>) = events
        .iter()
        .filter(|event| event["user"]["username"] == BROKER_USER && !is_token_request(event))
        .partition(|event| is_filtered_list(event));
    assert!(others.is_empty(), "requests of attackers had the broker's identity: {others:#?}");
    lists.iter().map(|event| event["auditID"].as_str().unwrap().to_owned()).collect()
}

fn is_token_request(event: &Value) -> bool {
    event["verb"] == "create"
        && event["objectRef"]["resource"] == "serviceaccounts"
        && event["objectRef"]["subresource"] == "token"
}

/// Whether it is a list or watch of the namespaces of some tenants without their homes.
fn is_filtered_list(event: &Value) -> bool {
    let uri = event["requestURI"].as_str().unwrap_or_default();
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let mut parameters = form_urlencoded::parse(query.as_bytes());
    let selector = parameters.find(|(name, _)| name == "labelSelector").map(|(_, value)| value);
    let is_filtered = selector.is_some_and(|selector| {
        selector.starts_with("tenant-broker.io/tenant in (")
            && selector.contains("),!tenant-broker.io/home")
    });
    let is_read = event["verb"] == "list" || event["verb"] == "watch";
    is_read && path == "/api/v1/namespaces" && is_filtered
}
