//! Known defects of other gateways.

use std::time::Duration;

use http::{Method, StatusCode, header};
use integration::probe::{self, Probe};
use integration::world::World;
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::{GATEWAY, raw};

#[tokio::test]
async fn bodies_pass_unchanged_and_new_resources_are_served_at_once() {
    let world = World::builder().own_control_plane().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let api = alice.api().await.unwrap();
    api.init("basic").await.unwrap();
    let base = format!("{GATEWAY}/api/v1/namespaces/{}", alice.namespace());
    let get = |path: &str, accept: &str| {
        let request = api.request(Method::GET, path).unwrap();
        request.header(header::ACCEPT, accept).header(header::ACCEPT_ENCODING, "gzip").send()
    };

    let protobuf = "application/vnd.kubernetes.protobuf";
    let answer = get(&format!("{base}/resourcequotas"), protobuf).await.unwrap();
    assert_eq!(answer.headers()[header::CONTENT_TYPE], protobuf);
    assert!(answer.bytes().await.unwrap().starts_with(b"k8s\0"));
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let answer = get(&format!("{base}/resourcequotas"), table).await.unwrap();
    let answer: serde_json::Value = answer.json().await.unwrap();
    assert_eq!(answer["kind"], "Table");
    // The API server compresses responses longer than 128 KiB.
    let large = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"},
        "data": {"text": "x".repeat(300_000)}});
    let made = api.request(Method::POST, &format!("{base}/configmaps")).unwrap();
    let made = made.json(&large).send().await.unwrap();
    assert_eq!(made.status(), StatusCode::CREATED);
    let answer = get(&format!("{base}/configmaps/large"), "application/json").await.unwrap();
    assert_eq!(answer.headers()[header::CONTENT_ENCODING], "gzip");
    assert!(answer.bytes().await.unwrap().starts_with(&[0x1f, 0x8b]), "gzip, as it was sent");
    // The gateway decides on CORS headers, not the API server.
    let answer = get(&format!("{base}/configmaps/absent"), "application/json").await.unwrap();
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    let answer = get(&format!("{GATEWAY}/api/v1/namespaces/absent/pods"), "*/*").await.unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN, "the API server decides what is told");

    let path = format!("{GATEWAY}/apis/example.com/v1");
    assert_eq!(get(&path, "*/*").await.unwrap().status(), StatusCode::NOT_FOUND);
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema":
                {"openAPIV3Schema": {"type": "object"}}}]},
    });
    let admin = world.admin_kubectl().unwrap();
    let create = ["create", "-f", "-"];
    admin.run_with_input(create, crd.to_string()).await.unwrap().success().unwrap();
    let wait = ["wait", "--for=condition=Established", "crd/things.example.com"];
    admin.run(wait).await.unwrap().success().unwrap();
    // The API server publishes a group a moment after the condition.
    probe::until("the group", Duration::from_mins(1), || async {
        let served = admin.run(["get", "--raw", "/apis/example.com/v1"]).await?;
        Ok(if served.code() == 0 { Probe::Ready(()) } else { Probe::NotYet(served.stderr) })
    })
    .await
    .unwrap();
    assert_eq!(get(&path, "*/*").await.unwrap().status(), StatusCode::OK);

    // No token of the cluster is in the log, even at its most verbose level.
    let log = world.broker().log().unwrap();
    assert!(!log.contains("eyJ"), "a token is in the log");
}

#[tokio::test]
async fn malformed_or_oversized_requests_are_refused_first() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.api().await.unwrap().init("basic").await.unwrap();
    let token = alice.sign_in().await.unwrap().access_token;
    let token = token.expose_secret();
    let broker = world.broker().url().unwrap();
    let authority = broker.authority();
    let path = "/clusters/internal-cluster/version";
    let long = "x".repeat(80 * 1024);
    let request = |target: &str, more: &str| {
        format!(
            "GET {target} HTTP/1.1\r\nHost: {authority}\r\nAuthorization: Bearer {token}\r\n\
             {more}Connection: close\r\n\r\n"
        )
    };
    for (request, statuses) in [
        (request(path, ""), &["200"][..]),
        (request(path, "Host: elsewhere\r\n"), &["400"]),
        (request(path, "Authorization: Bearer other\r\n"), &["400", "401"]),
        // Transfer-Encoding takes precedence, as RFC 9112 section 6.3 says, and is forwarded alone.
        (request(path, "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"), &["200", "400"]),
        (request(path, "Content-Length: 3\r\nContent-Length: 4\r\n"), &["400"]),
        (request(path, "Transfer-Encoding: chunked, gzip\r\n"), &["400"]),
        (request(path, "A header\r\n"), &["400"]),
        (request(path, &format!("X-Long: {long}\r\n")), &["431"]),
        (request(&format!("{path}?{}", &long[..40 * 1024]), ""), &["400", "414"]),
        (request("/clusters/internal-cluster", ""), &["200", "403"]),
    ] {
        let answer = raw(authority, &request).await;
        let status = answer.split(' ').nth(1).unwrap_or_default();
        let shown: String = request.chars().take(200).collect();
        assert!(statuses.contains(&status), "{shown}: {}", answer.lines().next().unwrap_or(""));
    }
    // A client that is refused while it is still sending gets the response.
    let body = "x".repeat(300_000);
    let path = format!("{GATEWAY}/api/v1/namespaces/{}/configmaps", alice.namespace());
    let refused = world.anonymous_api().unwrap().request(Method::POST, &path).unwrap().body(body);
    assert_eq!(refused.send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
}
