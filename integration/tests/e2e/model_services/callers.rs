//! Who may call: sessions, Kubernetes tokens, and nobody else.

use std::io;

use futures_util::{StreamExt as _, stream};
use http::{Method, header};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use integration::{
    probe::{self, Probe},
    world::World,
};
use secrecy::ExposeSecret as _;
use serde_json::json;
use tokio::task::JoinSet;

use super::fixture::{
    ADM, Client, NONE, REG, TIMEOUT, answer, builder, is_in_namespace, namespace_of, operations,
    person, world,
};

/// Bodies of one address that are read at once.
const MAX_BODIES_PER_CLIENT: usize = 32;

/// The number of requests that reached the API server with a caller's token.
fn calls(world: &World) -> usize {
    world.proxy().unwrap().count(|seen| !seen.is_as_broker())
}

#[tokio::test]
async fn strangers_get_401_and_reach_nothing() {
    let world = world().await;
    let client = Client::new(&world);
    let before = calls(&world);
    for (method, path) in operations() {
        let path = format!("{path}?namespace=user-ns");
        for authorization in [
            None,
            Some("Basic YTpi"),
            Some("Bearer"),
            Some("Bearer "),
            Some("bearer\t"),
            Some("Token x"),
            Some("Bearer a b"),
            Some("Bearer tba_forged"),
            Some("Bearer tbr_refresh"),
            Some("bearer  tbs_cookie"),
        ] {
            let mut request = client.request(method.clone(), &path);
            if let Some(value) = authorization {
                request = request.header(header::AUTHORIZATION, value);
            }
            let refused = answer(request).await;
            let message = refused.failure(401);
            assert_eq!(message, "Missing or invalid authentication token", "{authorization:?}");
        }
        let twice = client.request(method.clone(), &path).bearer_auth(ADM).bearer_auth(ADM);
        answer(twice).await.failure(400);
    }
    assert_eq!(calls(&world), before, "nothing reached the API server");
    for (method, path) in operations() {
        let path = format!("{path}?namespace=user-ns");
        client.call(method, &path, "unknown-token", None).await.failure(401);
    }
    let anonymous = world.cluster().audit_events("system:anonymous").unwrap();
    let from_broker = |event: &serde_json::Value| {
        event["userAgent"].as_str().is_some_and(|agent| agent.starts_with("tenant-broker"))
    };
    let anonymous: Vec<_> = anonymous.into_iter().filter(from_broker).collect();
    assert!(anonymous.is_empty(), "{anonymous:?}");
}

#[tokio::test]
async fn a_token_without_rights_gets_the_same_403_whether_or_not_the_namespace_exists() {
    let world = world().await;
    let client = Client::new(&world);
    namespace_of(&world, "callers-a", "reg", "admin").await;
    for (method, path) in operations() {
        if !is_in_namespace(&path) {
            let own = client.call(method, &path, NONE, None).await;
            assert_eq!(own.status.as_u16(), 200, "{path}: {own:?}");
            continue;
        }
        let mut messages = Vec::new();
        for namespace in ["callers-a", "callers-b"] {
            let path = format!("{path}?namespace={namespace}");
            let refused = client.call(method.clone(), &path, NONE, None).await;
            messages.push(refused.failure(403).replace(namespace, "X"));
            // The body is read after the review.
            let refused = answer(client.request(method.clone(), &path).bearer_auth(NONE).body("{"));
            refused.await.failure(403);
        }
        let expected = "You don't have permission to access resources in namespace X";
        assert_eq!(messages, [expected, expected]);
        // The parameter is checked before the review.
        for query in ["", "?namespace=..", "?namespace=a&namespace=b", "?namespace=A%2Fb"] {
            let path = format!("{path}{query}");
            client.call(method.clone(), &path, NONE, None).await.failure(400);
        }
    }
    let user = client.get("/user", NONE).await;
    assert_eq!(user.body, json!({"userId": "none"}));
    let config = client.get("/config", NONE).await;
    assert_eq!(*config.data(), json!({"isCustomLSD": false, "clusterDomain": null}));
}

#[tokio::test]
async fn a_session_goes_as_its_workspace_and_its_secret_never_reaches_the_api_server() {
    let world = world().await;
    let client = Client::new(&world);
    let (alice, session) = person(&world, "alice").await;
    let session = session.expose_secret();
    let user = client.get("/user", session).await;
    assert_eq!(user.body, json!({ "userId": alice.email() }));
    let path = format!("/aaa/models?namespace={}", alice.namespace());
    let models = client.get(&path, session).await;
    assert_eq!(*models.data(), json!([]));
    client.get("/aaa/models?namespace=kube-system", session).await.failure(403);
    // The API server's audit log names the ServiceAccount of the workspace.
    let user = format!("system:serviceaccount:{}:sa-tenant-admin", alice.namespace());
    let events = world.cluster().audit_events(models.request_id()).unwrap();
    let by_request: Vec<_> = events
        .iter()
        .filter(|event| event["auditID"] == models.request_id())
        .filter(|event| event["user"]["username"] != "tenant-broker")
        .collect();
    assert!(!by_request.is_empty());
    assert!(by_request.iter().all(|event| event["user"]["username"] == user), "{by_request:?}");

    let proxy = world.proxy().unwrap();
    assert_eq!(proxy.count(|seen| seen.has_token(session)), 0);
    assert_eq!(proxy.count(|seen| seen.token_start.starts_with("tb")), 0);
    let review = |seen: &integration::fault_proxy::RecordedRequest| {
        seen.is(&Method::POST, "/selfsubjectaccessreviews")
            && seen.headers.get("audit-id").is_some_and(|id| id == models.request_id())
    };
    assert_eq!(proxy.count(review), 1, "one review for each request");

    // Without a workspace there is nothing to act with.
    let nobody = world.person("nobody").await.unwrap().sign_in().await.unwrap().access_token;
    let refused = client.get("/namespaces", nobody.expose_secret()).await;
    assert!(refused.failure(403).contains("workspace"));
}

#[tokio::test]
async fn a_kubernetes_token_goes_as_it_is_and_in_any_case_of_bearer() {
    let world = world().await;
    let client = Client::new(&world);
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let request = client.request(Method::GET, "/user");
        let request = request.header(header::AUTHORIZATION, format!("{scheme} {REG}"));
        assert_eq!(answer(request).await.body, json!({"userId": "reg"}));
    }
    assert_eq!(world.proxy().unwrap().count(|seen| seen.has_token(REG)), 3);
    let log = world.broker().log().unwrap();
    assert!(!log.contains(REG), "the log has a token");
    let metrics = world.broker().metrics().await.unwrap();
    let series =
        "tenant_broker_model_services_calls_total{call=\"self_review\",outcome=\"success\"} 3";
    assert!(metrics.contains(series), "{metrics}");
}

#[tokio::test]
async fn kubernetes_tokens_can_be_refused_and_proxies_have_a_header_of_their_own() {
    let builder = builder()
        .fault_proxy()
        .setting("model_services.token_header", "X-Forwarded-Access-Token")
        .setting("model_services.cluster_domain", "apps.example.com");
    let world = builder.start().await.unwrap();
    let client = Client::new(&world);
    let with_header = |token: &str| {
        answer(client.request(Method::GET, "/user").header("x-forwarded-access-token", token))
    };
    assert_eq!(with_header(REG).await.body, json!({"userId": "reg"}));
    assert_eq!(client.get("/user", REG).await.body, json!({"userId": "reg"}));
    let both = client.request(Method::GET, "/user").bearer_auth(REG);
    answer(both.header("x-forwarded-access-token", "wrong")).await.failure(401);
    with_header("tbr_x").await.failure(401);
    with_header(&format!("Bearer {REG}")).await.failure(401);
    let config = client.get("/config", REG).await;
    assert_eq!(config.data()["clusterDomain"], "apps.example.com");
    world.broker().stop().await.unwrap();
    world.broker().set("model_services.kubernetes_tokens", false);
    world.broker().start().await.unwrap();
    let before = calls(&world);
    client.get("/user", REG).await.failure(401);
    assert_eq!(calls(&world), before);
    let (alice, session) = person(&world, "alice").await;
    let user = client.get("/user", session.expose_secret()).await;
    assert_eq!(user.body, json!({ "userId": alice.email() }));
}

/// Begins a body and never completes it. The broker gives up after a while, so that the request is sent
/// again then.
async fn send_slowly(client: Client, path: &'static str) {
    loop {
        let begun = stream::iter([Ok::<_, io::Error>(Frame::data(Bytes::from_static(b"{")))]);
        let body = reqwest::Body::wrap(StreamBody::new(begun.chain(stream::pending())));
        let _ = client.request(Method::DELETE, path).body(body).send().await;
    }
}

#[tokio::test]
async fn a_session_behind_a_proxy_is_served_while_bodies_arrive_slowly() {
    let builder = builder().setting("model_services.token_header", "X-Forwarded-Access-Token");
    let world = builder.start().await.unwrap();
    let client = Client::new(&world);
    let (_, session) = person(&world, "alice").await;
    let path = "/lsd/delete?namespace=none";
    let with_body = |token: &str| {
        let request = client.request(Method::DELETE, path);
        answer(request.header("x-forwarded-access-token", token).json(&json!({"name": "a"})))
    };
    with_body(session.expose_secret()).await.failure(403);
    let mut slow = JoinSet::new();
    for _ in 0..MAX_BODIES_PER_CLIENT {
        slow.spawn(send_slowly(client.clone(), path));
    }
    for unknown in ["unknown", "tba_unknown"] {
        probe::until("all places to be taken", TIMEOUT, || async {
            let status = with_body(unknown).await.status.as_u16();
            Ok(if status == 429 { Probe::Ready(()) } else { Probe::NotYet(status.to_string()) })
        })
        .await
        .unwrap();
        with_body(session.expose_secret()).await.failure(403);
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_have_the_format_of_model_services() {
    let world = builder().start().await.unwrap();
    let client = Client::new(&world);
    client.get("/nothing", REG).await.failure(404);
    let refused = client.call(Method::POST, "/user", REG, None).await;
    refused.failure(405);
    assert_eq!(refused.headers["allow"], "GET");
    let large = client.request(Method::POST, "/lsd/install?namespace=a").bearer_auth(REG);
    answer(large.body("x".repeat(100_000))).await.failure(413);
    let health = json!({"status": "available", "system_info": {"version": "1.0.0"}});
    assert_eq!(answer(client.request(Method::GET, "/healthcheck")).await.body, health);
    let root = Client::at(world.broker().url().unwrap().as_str().trim_end_matches('/'));
    assert_eq!(answer(root.request(Method::GET, "/healthcheck")).await.body, health);
    // The broker's own API stays what it is.
    let own = root.get("/api/v1/namespaces", REG).await;
    assert_eq!(own.headers["content-type"], tenant_shared::PROBLEM_CONTENT_TYPE);

    world.broker().stop().await.unwrap();
    world.broker().set("model_services.enabled", false);
    world.broker().start().await.unwrap();
    for path in ["/gen-ai/api/v1/user", "/healthcheck"] {
        assert_eq!(root.get(path, REG).await.status.as_u16(), 404);
    }
}

#[tokio::test]
async fn pages_of_listed_origins_may_call_and_no_others() {
    let world = builder()
        .setting("model_services.token_header", "X-Forwarded-Access-Token")
        .setting("frontends.origins", "https://app.example.com")
        .start()
        .await
        .unwrap();
    let client = Client::new(&world);
    let preflight = |origin: &str, headers: &str| {
        client
            .request(Method::OPTIONS, "/lsd/install?namespace=a")
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", headers)
    };
    let names = "authorization, content-type, x-forwarded-access-token";
    let allowed = answer(preflight("https://app.example.com", names)).await;
    assert_eq!(allowed.status.as_u16(), 200);
    assert_eq!(allowed.headers["access-control-allow-origin"], "https://app.example.com");
    answer(preflight("https://app.example.com", "x-other")).await.failure(403);
    answer(preflight("https://evil.example.com", names)).await.failure(403);
    for origin in ["https://app.example.com", "https://evil.example.com"] {
        let request = client.request(Method::GET, "/user").bearer_auth(REG);
        let found = answer(request.header("origin", origin)).await;
        match origin {
            "https://app.example.com" => assert_eq!(found.body, json!({"userId": "reg"})),
            _ => assert!(found.failure(403).contains("origin")),
        }
    }
}
