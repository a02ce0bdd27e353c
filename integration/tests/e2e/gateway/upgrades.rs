//! Upgrade requests and request trailers: what a program behind `/proxy/` receives.

use integration::person::Person;
use integration::world::World;
use secrecy::ExposeSecret as _;

use super::proxied_responses::with_pod;

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
