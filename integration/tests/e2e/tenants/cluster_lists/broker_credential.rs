//! What leaves the gateway with the broker's own credential: lists and watches of cluster-scoped resources that a
//! Tenant grants, and nothing else.

use std::collections::BTreeSet;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, COOKIE, IF_NONE_MATCH, UPGRADE, USER_AGENT,
};
use http::{Method, StatusCode};
use integration::api::Api;
use integration::fault_proxy::RecordedRequest;
use integration::probe::{self, Probe};
use serde_json::{Value, json};

use super::{SOLAR_NODES, TIMEOUT, apply, builder, create_objects, names, owner};
use crate::gateway::GATEWAY;
use crate::tenants::{TENANT_BROKER, until_served};

const ALL_LISTS: &str = "nodes,storageclasses,ingressclasses,priorityclasses,runtimeclasses";
/// Collections that the gateway may read with the broker's own credential for members.
const COLLECTIONS: [&str; 5] = [
    "/api/v1/nodes",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/networking.k8s.io/v1/ingressclasses",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/node.k8s.io/v1/runtimeclasses",
];
/// One request of the attacker through the gateway.
pub(super) struct Attempt {
    method: Method,
    path: String,
    headers: Vec<(http::HeaderName, &'static str)>,
    body: Option<&'static str>,
}

impl Attempt {
    fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: None }
    }

    pub(super) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    /// Sends it, and returns the status and the names of the items in the answer.
    pub(super) async fn send(&self, api: &Api) -> (StatusCode, BTreeSet<String>) {
        let path = format!("{GATEWAY}{}", self.path);
        let mut request = api.request(self.method.clone(), &path).unwrap();
        for (name, value) in &self.headers {
            request = request.header(name, *value);
        }
        if let Some(body) = self.body {
            request = request.header("content-type", "application/json").body(body);
        }
        let answer = request.timeout(TIMEOUT).send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        let mut shown = BTreeSet::new();
        // A list is one object, and a watch one in each line.
        for line in text.lines() {
            let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
            let items = value["items"].as_array().cloned().unwrap_or_default();
            let objects = items.iter().chain(Some(&value["object"]));
            let names = objects.filter_map(|it| it["metadata"]["name"].as_str().map(str::to_owned));
            shown.extend(names);
        }
        (status, shown)
    }
}

/// Requests that must leave with the token of the membership, and are refused then.
fn refused_attempts() -> Vec<Attempt> {
    let mut attempts = Vec::new();
    let writes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD];
    for collection in COLLECTIONS {
        for method in &writes {
            for path in [collection.to_owned(), format!("{collection}?watch=1&limit=1")] {
                let body = Some("{}").filter(|_| *method != Method::HEAD);
                attempts.push(Attempt { body, ..Attempt::new(method.clone(), path) });
            }
        }
        for other in ["/", "/fast", "/solar-1", "/solar-1/status", "/solar-1?watch=1"] {
            attempts.push(Attempt::get(format!("{collection}{other}")));
        }
    }
    for path in [
        "/api/v1/nodes/solar-1/proxy/",
        "/api/v1/nodes/solar-1/proxy/metrics",
        "/api/v1/nodes/solar-1:10250/proxy/pods",
        "/api/v1/watch/nodes",
        "/api/v1/watch/nodes/solar-1",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/nodes;x=y",
        "/api/v1/persistentvolumes",
        "/api/v1/secrets",
        "/apis/storage.k8s.io/v1/csinodes",
        "/apis/storage.k8s.io/v1/watch/storageclasses",
        "/apis/storage.k8s.io/v1beta1/storageclasses",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/tenant-broker.io/v1alpha1/tenants",
    ] {
        attempts.push(Attempt::get(path));
    }
    attempts
}

/// Requests that leave with the broker's credential, each of which tries to send more than a list.
fn narrowed_attempts() -> Vec<Attempt> {
    let mut attempts: Vec<Attempt> = [
        "",
        "?",
        "?labelSelector=pool%3Dlunar",
        "?labelSelector=pool%21%3Dsolar&labelSelector=",
        "?labelSelector=&labelSelector=pool%3Dlunar",
        "?labelSelector=pool+in+%28lunar%2Csolar%29%2Cpool",
        "?fieldSelector=metadata.name%3Dlunar-1",
        "?watch=0&dryRun=All&pretty=true&as=admin&timeout=9h&fieldManager=x&force=true&x=y",
        "?watch=1&timeoutSeconds=1",
        "?watch=true&watch=false&timeoutSeconds=1&allowWatchBookmarks=true",
        "?limit=1&continue=bm9uc2Vuc2U",
        "?resourceVersion=0&resourceVersionMatch=NotOlderThan",
        "?includeObject=Object&%6cimit=1",
    ]
    .into_iter()
    .map(|query| Attempt::get(format!("/api/v1/nodes{query}")))
    .collect();
    let hostile = [
        (USER_AGENT, "attacker/1.0"),
        (COOKIE, "a=b"),
        (IF_NONE_MATCH, "\"x\""),
        (ACCEPT_ENCODING, "gzip"),
        (ACCEPT, "application/json;x=y,text/html,application/json"),
        (http::HeaderName::from_static("x-remote-user"), "system:admin"),
        (http::HeaderName::from_static("x-remote-group"), "system:masters"),
        (http::HeaderName::from_static("x-http-method-override"), "DELETE"),
        (http::HeaderName::from_static("x-forwarded-host"), "example.com"),
        (http::HeaderName::from_static("audit-id"), "chosen"),
    ];
    let upgrade = [
        (CONNECTION, "Upgrade"),
        (UPGRADE, "websocket"),
        (http::HeaderName::from_static("sec-websocket-version"), "13"),
        (http::HeaderName::from_static("sec-websocket-key"), "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    for path in ["/api/v1/nodes", "/api/v1/nodes?watch=1&timeoutSeconds=1"] {
        for headers in [&hostile[..], &upgrade] {
            attempts.push(Attempt { headers: headers.to_vec(), ..Attempt::get(path) });
        }
    }
    attempts.push(Attempt { body: Some("{\"a\": 1}"), ..Attempt::get("/api/v1/nodes") });
    attempts
}

/// Checks that a request with the broker's credential is one that the gateway may send.
fn is_allowed_read(sent: &RecordedRequest) -> bool {
    const PARAMETERS: [&str; 11] = [
        "labelSelector",
        "watch",
        "fieldSelector",
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "allowWatchBookmarks",
        "timeoutSeconds",
        "sendInitialEvents",
        "includeObject",
    ];
    const HEADERS: [&str; 4] = ["host", "accept", "audit-id", "x-forwarded-for"];
    let parameters: Vec<&str> = sent
        .query
        .split('&')
        .filter(|it| !it.is_empty())
        .map(|it| it.split('=').next().unwrap())
        .collect();
    let distinct: BTreeSet<&&str> = parameters.iter().collect();
    let selects = sent.path != "/api/v1/nodes"
        || sent.query.starts_with("labelSelector=pool%3Dsolar")
            && matches!(sent.query.as_bytes().get(26), None | Some(b'&'))
        || sent.query.starts_with("labelSelector=pool%3Dsolar%2C");
    sent.method == Method::GET
        && COLLECTIONS.contains(&sent.path.as_str())
        && distinct.len() == parameters.len()
        && parameters.iter().all(|name| PARAMETERS.contains(name))
        && sent.headers.keys().all(|name| HEADERS.contains(&name.as_str()))
        && sent.headers.get(ACCEPT).is_none_or(|it| it == "application/json" || it == "*/*")
        && sent.headers.get("audit-id").is_some_and(|id| id != "chosen")
        && selects
}

/// Whether a request is for something that the attempts name.
fn is_of_attempts(sent: &RecordedRequest) -> bool {
    let named = ["nodes", "classes", "persistentvolumes", "/api/v1/secrets", "/clusterroles"];
    named.iter().any(|part| sent.path.contains(part)) && !sent.path.contains("/clusterroles/")
}

#[tokio::test]
async fn nothing_but_lists_is_sent_with_the_brokers_credential() {
    let builder = builder(ALL_LISTS).fault_proxy();
    let builder = builder.setting("tiers.basic.gateway_streams", 2);
    let world = builder.setting("tiers.basic.gateway_requests_per_second", 1000);
    let world = world.start().await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    create_objects(&admin).await;
    let alice = world.person("alice").await.unwrap();
    let kinds = ["Nodes", "StorageClasses", "IngressClasses", "PriorityClasses", "RuntimeClasses"];
    apply(&world, "solar", &[owner(alice.email(), &kinds)], &json!({"pool": "solar"})).await;
    let api = alice.api().await.unwrap();
    probe::until("the first list", TIMEOUT, || async {
        let (status, shown) = Attempt::get("/api/v1/nodes").send(&api).await;
        let is_so = status == StatusCode::OK && shown == names(&SOLAR_NODES);
        Ok(if is_so { Probe::Ready(()) } else { Probe::NotYet(format!("{status} {shown:?}")) })
    })
    .await
    .unwrap();
    let proxy = world.proxy().unwrap();
    let as_broker = || -> Vec<RecordedRequest> {
        let sent = proxy.requests().into_iter();
        sent.filter(|it| it.is_as_broker() && is_of_attempts(it)).collect()
    };

    let before = as_broker().len();
    for attempt in refused_attempts() {
        let (status, shown) = attempt.send(&api).await;
        let what = format!("{} {}: {status} {shown:?}", attempt.method, attempt.path);
        assert!(!status.is_success() && !status.is_server_error() && shown.is_empty(), "{what}");
        assert_eq!(as_broker().len(), before, "it left with the broker's credential: {what}");
    }
    let mut count = before;
    for attempt in narrowed_attempts() {
        let (status, shown) = attempt.send(&api).await;
        let what = format!("{}: {status} {shown:?}", attempt.path);
        assert!(shown.is_subset(&names(&SOLAR_NODES)), "{what}");
        // The API server refuses a token of pages that it did not issue.
        let is_page = attempt.path.contains("continue");
        assert!(status.is_success() || is_page && status.is_client_error(), "{what}");
        let sent = as_broker();
        assert_eq!(sent.len(), count + 1, "{what}");
        count = sent.len();
    }
    for collection in &COLLECTIONS[1..] {
        let (status, shown) = Attempt::get(*collection).send(&api).await;
        assert!(status.is_success() && shown.contains("fast"), "{collection}: {status} {shown:?}");
    }
    for selector in ["a%29", "a%2C", "a%7Cb", "pool%3Dsolar%29%2C%28x"] {
        let path = format!("/api/v1/nodes?labelSelector={selector}");
        let (status, _) = Attempt::get(path).send(&api).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{selector}");
    }
    for sent in as_broker() {
        assert!(is_allowed_read(&sent), "{sent:?}");
    }
    the_limits_of_the_tier_apply(&api).await;
}

async fn the_limits_of_the_tier_apply(api: &Api) {
    let path = format!("{GATEWAY}/api/v1/nodes?watch=1");
    let open = async || api.request(Method::GET, &path).unwrap().send().await.unwrap();
    let watches = [open().await, open().await];
    assert_eq!(watches.each_ref().map(reqwest::Response::status), [StatusCode::OK; 2]);
    let refused = open().await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(watches);
    until_a_watch_is_open(open).await;
}

/// Waits until the broker has noticed that earlier watches ended, so that another one is open.
pub(super) async fn until_a_watch_is_open(open: impl AsyncFn() -> reqwest::Response) {
    probe::until("another watch", TIMEOUT, || async {
        let status = open().await.status();
        let is_open = status == StatusCode::OK;
        Ok(if is_open { Probe::Ready(()) } else { Probe::NotYet(status.to_string()) })
    })
    .await
    .unwrap();
}
