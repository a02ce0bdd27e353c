//! Clients that send as little as possible for as long as possible.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use integration::world::World;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use secrecy::ExposeSecret as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{is_served, tenant};

/// Number of clients of each kind.
const CLIENTS: usize = 12;
/// Time limit for the broker to close: a minute for a head, and as long for many clients.
const CLOSE_TIMEOUT: Duration = Duration::from_mins(2);
/// The HTTP/2 connection preface (RFC 9113 section 3.4), with empty settings.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Sends these bytes, and then one byte repeatedly, until the broker closes the connection. Returns
/// the response.
async fn say(authority: String, begin: Vec<u8>, then: Option<u8>) -> String {
    let mut stream = TcpStream::connect(&authority).await.unwrap();
    stream.write_all(&begin).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let drip = async {
        if let Some(byte) = then {
            while writer.write_all(&[byte]).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }
        std::future::pending::<()>().await;
    };
    let mut answer = Vec::new();
    tokio::select! {
        _ = reader.read_to_end(&mut answer) => {}
        () = drip => {}
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn slow_clients_are_disconnected_and_delay_nobody() {
    // All come from one address, and the broker does not know their token yet.
    let builder = World::builder().setting("limits.unauthenticated_at_once", 512);
    let world = builder.setting("log.level", "info").start().await.unwrap();
    let (alice, _) = tenant(&world, "alice").await;
    let (bob, _) = tenant(&world, "bob").await;
    let token = alice.sign_in().await.unwrap().access_token;
    let session = bob.sign_in().await.unwrap();
    let broker = world.broker().url().unwrap();
    let authority = broker.authority();
    let head = |method: &str, path: &str, more: &str| {
        let token = token.expose_secret();
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {authority}\r\nAuthorization: Bearer {token}\r\n\
             {more}"
        )
        .into_bytes()
    };
    let gateway = "/clusters/internal-cluster";
    let version = format!("{gateway}/version");
    let review = format!("{gateway}/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
    let config_maps = format!("{gateway}/api/v1/namespaces/{}/configmaps", alice.namespace());
    let body = "Content-Type: application/json\r\nContent-Length: 900\r\n\r\n{";
    let mut kinds = JoinSet::new();
    for (what, begin, then, answer) in [
        ("nothing", Vec::new(), None, ""),
        ("what may become HTTP/2", b"PRI * HTT".to_vec(), None, ""),
        ("HTTP/2 and nothing else", HTTP2_PREFACE.to_vec(), None, ""),
        ("half a head", head("GET", &version, "X-Ha"), None, ""),
        ("a head byte by byte", head("GET", &version, "X-Slow: "), Some(b'x'), ""),
        ("a request and no other", head("GET", &version, "\r\n"), None, "HTTP/1.1 200 "),
        ("a review that does not come", head("POST", &review, body), None, "HTTP/1.1 400 "),
        ("a body that stops", head("POST", &config_maps, body), None, "HTTP/1.1 400 "),
    ] {
        let mut slow = JoinSet::new();
        for _ in 0..CLIENTS {
            slow.spawn(say(authority.to_owned(), begin.clone(), then));
        }
        kinds.spawn(async move {
            let all = tokio::time::timeout(CLOSE_TIMEOUT, slow.join_all()).await;
            for answered in all.unwrap_or_else(|_| panic!("{what}: it is kept")) {
                assert!(answered.starts_with(answer), "{what}: {answered}");
            }
        });
    }
    let served = async {
        loop {
            is_served(&bob, &session, &world).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        _ = kinds.join_all() => {}
        () = served => {}
    }
}

#[tokio::test]
async fn stalled_handshakes_delay_nobody() {
    let world = World::builder().tls().setting("log.level", "info").start().await.unwrap();
    let (bob, _) = tenant(&world, "bob").await;
    let session = bob.sign_in().await.unwrap();
    let broker = world.broker().url().unwrap();
    let mut silent = Vec::new();
    let opened_at = Instant::now();
    for number in 0..400 {
        let mut stream = TcpStream::connect(broker.authority()).await.unwrap();
        if number % 2 == 0 {
            // The first bytes of a ClientHello (RFC 8446 section 5.1).
            stream.write_all(&[22, 3, 1, 1]).await.unwrap();
        }
        silent.push(stream);
    }
    // Other clients complete the handshake, and then send nothing.
    let authority = world.cluster().authority().certificate();
    let mut after = Vec::new();
    for protocol in [&b"h2"[..], b"http/1.1"] {
        after.push((protocol, shaken(broker.authority(), authority, protocol).await));
    }
    // Another client acknowledges PING frames, and sends no request.
    let stream = TokioIo::new(shaken(broker.authority(), authority, b"h2").await);
    let handshake = http2::handshake::<_, _, Empty<Bytes>>(TokioExecutor::new(), stream);
    let (_requests, idle) = handshake.await.unwrap();
    let idle = tokio::spawn(idle);
    is_served(&bob, &session, &world).await;
    let mut byte = [0];
    let open = silent.iter().filter(|stream| {
        stream
            .try_read(&mut byte)
            .is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    });
    let open = open.count();
    // The broker closes a stalled handshake after 10 s, and a busy machine may have taken as long.
    if opened_at.elapsed() < Duration::from_secs(10) {
        assert_eq!(open, silent.len(), "it was their end that somebody waited for");
    }
    for mut stream in silent {
        let closed = tokio::time::timeout(CLOSE_TIMEOUT, stream.read(&mut byte)).await;
        assert!(matches!(closed.expect("it is kept"), Ok(0) | Err(_)));
    }
    for (protocol, mut stream) in after {
        let mut answer = Vec::new();
        let closed = tokio::time::timeout(CLOSE_TIMEOUT, stream.read_to_end(&mut answer)).await;
        assert!(closed.is_ok(), "{}: it is kept", String::from_utf8_lossy(protocol));
    }
    let closed = tokio::time::timeout(CLOSE_TIMEOUT, idle).await;
    assert!(closed.is_ok(), "HTTP/2 without a request: it is kept");
}

/// Returns a connection with a completed handshake and this protocol (RFC 7301).
async fn shaken(broker: &str, authority: &str, protocol: &[u8]) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(broker).await.unwrap();
    let name = ServerName::from(stream.peer_addr().unwrap().ip());
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol));
    stream
}
