//! Unauthenticated clients that send unwanted bodies, one byte at a time.

use std::time::Duration;

use integration::world::World;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{is_flat, is_served, memory, tenant};

/// Number of concurrent clients, more than the bodies of refused requests that are read for one
/// address.
const CLIENTS: usize = 200;
/// Number of bodies of refused requests of one address that the broker reads concurrently.
const MAX_CONCURRENT_BODIES: usize = 128;
/// Chunks in one write, and the maximum number of writes of a client: less than what ends the
/// reading.
const CHUNKS_PER_WRITE: usize = 500;
const MAX_WRITES: usize = 20;
/// Time limit for a client to send: the broker reads for five seconds.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);

/// The result of one client.
struct ClientResult {
    /// The first line of the response.
    answer: String,
    /// Number of bytes that it could send.
    sent: usize,
}

/// Sends an endless body of one-byte chunks, until the broker closes the connection.
async fn drip(authority: String, head: String) -> ClientResult {
    let mut stream = TcpStream::connect(&authority).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunks = "1\r\nx\r\n".repeat(CHUNKS_PER_WRITE);
    let (mut reader, mut writer) = stream.split();
    let mut bytes = 0;
    let mut answer = Vec::new();
    let send = async {
        for _ in 0..MAX_WRITES {
            if writer.write_all(chunks.as_bytes()).await.is_err() {
                break;
            }
            bytes += chunks.len();
        }
        // No further chunks, and no end of the body.
        std::future::pending::<()>().await;
    };
    let all = async {
        tokio::select! {
            // A connection that the broker resets ends with an error.
            _ = reader.read_to_end(&mut answer) => {}
            () = send => {}
        }
    };
    tokio::time::timeout(SEND_TIMEOUT, all).await.expect("the broker keeps the connection");
    let answer = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned();
    ClientResult { answer, sent: bytes }
}

async fn all(authority: &str, head: &str) -> Vec<ClientResult> {
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(drip(authority.to_owned(), head.to_owned()));
    }
    clients.join_all().await
}

#[tokio::test]
async fn a_body_of_a_refused_request_is_not_buffered() {
    let world = World::builder().setting("log.level", "warn").start().await.unwrap();
    let (alice, _) = tenant(&world, "alice").await;
    let session = alice.sign_in().await.unwrap();
    let broker = world.broker().url().unwrap();
    let authority = broker.authority();
    let head = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: {authority}\r\nTransfer-Encoding: chunked\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n\r\n"
        )
    };
    is_served(&alice, &session, &world).await;
    let memory = memory(&world);
    for round in 0..3 {
        let seen = all(authority, &head("/clusters/internal-cluster/api/v1/pods")).await;
        let whole =
            seen.iter().filter(|seen| seen.sent == CHUNKS_PER_WRITE * MAX_WRITES * 6).count();
        // Not all responses arrive: one on a connection that is closed while bytes are in flight to
        // the broker can be lost with it.
        let answered = seen.iter().filter(|seen| seen.answer.starts_with("HTTP/1.1 401")).count();
        assert!(
            answered >= MAX_CONCURRENT_BODIES,
            "round {round}: {answered} answers, {whole} sent all"
        );
        is_served(&alice, &session, &world).await;
    }
    is_flat(&memory, "refused bodies of one-byte chunks");
    let closed = "tenant_broker_unauthenticated_refused_total{limit=\"discarded_bodies_at_once\"}";
    assert!(world.broker().metric(closed).await.unwrap() > 0.0, "no connection was closed");
    // The same for endpoints of the pages, whose bodies are read whole, 64 KiB at most.
    for path in ["/oauth2/token", "/api/v1/auth/login", "/nothing"] {
        all(authority, &head(path)).await;
        is_served(&alice, &session, &world).await;
    }
    is_flat(&memory, "bodies of one-byte chunks");
}
