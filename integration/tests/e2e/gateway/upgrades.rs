//! Upgrade requests and request trailers: what a program behind `/proxy/` receives.

use std::time::Duration;

use http::{Method, StatusCode};
use integration::person::Person;
use integration::world::World;
use secrecy::ExposeSecret as _;
use serde_json::Value;

use super::{GATEWAY, proxied_responses::with_pod};

/// Sends a request to a page of the program; `headers` are complete lines, `rest` is the body.
async fn send(world: &World, person: &Person, line: &str, headers: &[u8], rest: &str) -> String {
    let broker = world.broker().url().unwrap();
    let token = person.sign_in().await.unwrap().access_token;
    let head = format!(
        "{line} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n",
        broker.authority(),
        token.expose_secret()
    );
    let request = [head.as_bytes(), headers, b"\r\n", rest.as_bytes()].concat();
    super::raw(broker.authority(), request).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_requested_and_known_upgrades_become_tunnels() {
    let (world, alice, path) = with_pod().await;
    let echo = format!("GET {path}/echo");

    // Other protocols are not requested upstream; the response is passed on as it is.
    let answer =
        send(&world, &alice, &echo, b"Connection: Upgrade, close\r\nUpgrade: h2c\r\n", "").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("h2c"), "{answer}");

    // A subprotocol that carries a token is never forwarded, whatever is next to it.
    let websocket =
        b"Connection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v4.channel.k8s.io, \
        base64url.bearer.authorization.k8s.io.dG9rZW4, x\xff\r\n";
    let tunnel = format!("GET {path}/tunnel");
    let answer = send(&world, &alice, &tunnel, websocket, "").await;
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    assert!(answer.contains("v4.channel.k8s.io"), "{answer}");
    assert!(!answer.contains("base64url.bearer"), "{answer}");

    // A program that switches to another protocol gets no tunnel.
    let line = format!("GET {path}/switch");
    let websocket =
        b"Connection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let answer = tokio::time::timeout(
        std::time::Duration::from_secs(20),
        send(&world, &alice, &line, websocket, ""),
    );
    let answer = answer.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(answer.contains("cluster_refused") && !answer.contains("tunnelled"), "{answer}");
}

/// The body would be sent after the upgrade, when neither a limit nor a suspension applies to it,
/// or be taken for the next request on the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_with_a_body_is_refused_and_requests_of_others_are_not_affected() {
    let (world, alice, path) = with_pod().await;
    let bob = world.person("bob").await.unwrap();
    let api = bob.api().await.unwrap();
    api.init("basic").await.unwrap();
    let path_of_bob = format!("{GATEWAY}/api/v1/namespaces/{}/configmaps", bob.namespace());
    let body = "GET /api/v1/secrets HTTP/1.1\r\nHost: broker\r\n\r\n";
    let length = body.len();
    for (framing, sent) in [
        (format!("Content-Length: {length}"), body.to_owned()),
        ("Content-Length: 1".to_owned(), "x".to_owned()),
        ("Transfer-Encoding: chunked".to_owned(), format!("{length:x}\r\n{body}\r\n0\r\n\r\n")),
        // Nobody knows beforehand that the body is empty.
        ("Transfer-Encoding: chunked".to_owned(), "0\r\n\r\n".to_owned()),
    ] {
        for protocol in ["websocket", "SPDY/3.1"] {
            let headers = format!(
                "Connection: Upgrade, close\r\nUpgrade: {protocol}\r\nSec-WebSocket-Version: 13\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{framing}\r\n"
            );
            let line = format!("POST {path}/tunnel");
            let answer = send(&world, &alice, &line, headers.as_bytes(), &sent);
            let answer = tokio::time::timeout(Duration::from_secs(20), answer).await;
            let answer = answer.unwrap_or_else(|_| panic!("{framing}, {protocol}: no end"));
            assert!(answer.starts_with("HTTP/1.1 400 "), "{framing}, {protocol}: {answer}");
            assert!(answer.contains("may not have a body"), "{framing}, {protocol}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{framing}, {protocol}: {answer}");

            let next = api.request(Method::GET, &path_of_bob).unwrap().send().await.unwrap();
            assert_eq!(next.status(), StatusCode::OK, "{framing}, {protocol}");
            let list: Value = next.json().await.unwrap();
            assert_eq!(list["kind"], "ConfigMapList", "{framing}, {protocol}: {list}");
        }
    }
    // Without a body the same request is a tunnel.
    let headers = b"Connection: Upgrade, close\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let answer = send(&world, &alice, &format!("GET {path}/tunnel"), headers, "").await;
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_of_a_request_are_dropped() {
    let (world, alice, path) = with_pod().await;
    let headers = b"Connection: close\r\nTransfer-Encoding: chunked\r\n\
        Trailer: Impersonate-User, X-Sum\r\n";
    let body = "5\r\nhello\r\n0\r\nImpersonate-User: system:admin\r\nX-Sum: 1\r\n\r\n";
    let line = format!("POST {path}/echo");
    let answer = send(&world, &alice, &line, headers, body).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("hello"), "{answer}");
    for name in ["impersonate-user", "x-sum", "trailer"] {
        assert!(!answer.to_lowercase().contains(name), "{name}: {answer}");
    }
}
