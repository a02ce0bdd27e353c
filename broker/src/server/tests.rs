//! Tests of connections over sockets: when idle ones are closed, how many there may be, how many
//! responses may be unsent on them, and which are served when the server stops.

use std::{io, net::Ipv4Addr};

use futures_util::stream;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::{body::Frame, client};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    task::JoinHandle,
};

use super::*;

/// The idle timeout of the tests.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit of every step. It is shorter than the time until hyper closes a connection whose PING
/// frames are not acknowledged.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// The HTTP/2 connection preface (RFC 9113 section 3.4), with empty settings.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// Length of the response to `/large` in bytes. It exceeds what the sockets buffer.
const LARGE_BYTES: usize = 32 * 1024 * 1024;
/// Two local addresses of clients.
const US: [u8; 4] = [127, 0, 0, 1];
const OTHERS: [u8; 4] = [127, 0, 0, 2];

/// Responds to `/slow` with a body that takes longer than the idle timeout and is within the limits
/// of a tenant, to `/refused` with a refusal of such a request, and to `/tunnel` with a tunnel that
/// is open until the client closes it.
struct TestHandler;

impl Handler for TestHandler {
    fn handle(
        &self,
        request: Request<Incoming>,
        _: &ConnectionInfo,
    ) -> impl Future<Output = Response<Body>> + Send {
        std::future::ready(match request.uri().path() {
            "/slow" => {
                let mut response = Response::new(slow_body());
                response.extensions_mut().insert(body::WithinTenantLimits);
                response
            }
            "/large" => Response::new(body::full(vec![0_u8; LARGE_BYTES].into())),
            "/tunnel" => tunnel(request),
            _ => Response::new(body::full(Bytes::from_static(b"served"))),
        })
    }

    fn is_forwarded(&self, request: &Request<Incoming>) -> bool {
        ["/slow", "/refused"].contains(&request.uri().path())
    }
}

fn slow_body() -> Body {
    let frames = stream::once(async {
        tokio::time::sleep(IDLE_TIMEOUT * 3).await;
        Ok::<_, io::Error>(Frame::data(Bytes::from_static(b"slow")))
    });
    StreamBody::new(frames).boxed()
}

fn tunnel(request: Request<Incoming>) -> Response<Body> {
    let upgrade = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let mut tunnel = TokioIo::new(upgrade.await.unwrap());
        let _ = tunnel.read_to_end(&mut Vec::new()).await;
    });
    let mut response = Response::new(body::full(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    for (name, value) in [(header::CONNECTION, "upgrade"), (header::UPGRADE, "test")] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The server's end of a connection within these limits, and the sockets of both ends.
async fn connection(
    limits: ResponseLimits,
) -> (Connection<TestHandler>, TcpStream, TcpStream, Metrics) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let local = listener.local_addr().unwrap();
    let (client, accepted) = tokio::join!(TcpStream::connect(local), listener.accept());
    let (accepted, remote) = accepted.unwrap();
    let metrics = Metrics::default();
    let responses = ResponseLimiter::new(limits, TrustedProxies::default(), metrics.clone());
    let connection = Connection {
        handler: Arc::new(TestHandler),
        info: ConnectionInfo { local, remote, scheme: Scheme::HTTPS },
        shutdown: CancellationToken::new(),
        idle_timeout: IDLE_TIMEOUT,
        responses: Arc::new(responses),
        unsent: UnsentResponses::default(),
        response_timeout: IDLE_TIMEOUT,
    };
    (connection, client.unwrap(), accepted, metrics)
}

/// Serves HTTP/2 on a connection without TLS: the client's end, and the task of the server.
async fn http2_connection() -> (TcpStream, JoinHandle<()>) {
    let (connection, client, accepted, _) = connection(ResponseLimits::default()).await;
    (client, tokio::spawn(connection.serve_http2(accepted)))
}

/// Serves HTTP/1.1 on a connection without TLS: the client's end, and the task of the server.
async fn http1_connection() -> (TcpStream, JoinHandle<()>) {
    let (connection, client, accepted, _) = connection(ResponseLimits::default()).await;
    (client, tokio::spawn(connection.serve_http1(accepted)))
}

/// A client that acknowledges PING frames.
async fn http2_client(stream: TcpStream) -> client::conn::http2::SendRequest<Empty<Bytes>> {
    http2_client_with_window(stream, 64 * 1024).await
}

/// A client that acknowledges PING frames and lets the server send this number of bytes of each
/// response until it reads them.
async fn http2_client_with_window(
    stream: TcpStream,
    window: u32,
) -> client::conn::http2::SendRequest<Empty<Bytes>> {
    let mut builder = client::conn::http2::Builder::new(TokioExecutor::new());
    let handshake = builder.initial_stream_window_size(window).handshake(TokioIo::new(stream));
    let (requests, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    requests
}

/// Sends a request and returns the response, whose body is not read.
async fn begin(
    requests: &mut client::conn::http2::SendRequest<Empty<Bytes>>,
    path: &str,
) -> Result<Response<Incoming>, hyper::Error> {
    let uri = format!("https://broker{path}");
    let request = Request::get(uri).body(Empty::new()).unwrap();
    requests.send_request(request).await
}

async fn get(
    requests: &mut client::conn::http2::SendRequest<Empty<Bytes>>,
    path: &str,
) -> Result<Bytes, hyper::Error> {
    Ok(begin(requests, path).await?.into_body().collect().await?.to_bytes())
}

async fn ends(server: JoinHandle<()>) {
    tokio::time::timeout(STEP_TIMEOUT, server).await.expect("the connection is kept").unwrap();
}

#[tokio::test]
async fn an_http2_connection_without_a_request_is_closed() {
    let (stream, server) = http2_connection().await;
    let _requests = http2_client(stream).await;
    ends(server).await;
}

#[tokio::test]
async fn an_http2_connection_is_kept_until_its_last_response_has_ended() {
    let (stream, server) = http2_connection().await;
    let mut requests = http2_client(stream).await;
    // A connection that shuts down refuses the second request.
    for (path, expected) in [("/slow", "slow"), ("/", "served")] {
        assert_eq!(get(&mut requests, path).await.unwrap(), expected);
    }
    ends(server).await;
}

#[tokio::test]
async fn an_idle_http2_connection_whose_client_acknowledges_nothing_is_closed() {
    let (mut stream, server) = http2_connection().await;
    stream.write_all(HTTP2_PREFACE).await.unwrap();
    ends(server).await;
}

/// With a window of 0 the body waits in hyper; with one of 1 byte h2 takes it over and hyper drops
/// it.
#[tokio::test]
async fn responses_that_are_not_read_are_limited() {
    for window in [0, 1] {
        let limits = ResponseLimits { total: 100, per_client: 3 };
        let (mut connection, client, accepted, metrics) = connection(limits).await;
        (connection.response_timeout, connection.idle_timeout) = (HEAD_TIMEOUT, HEAD_TIMEOUT);
        tokio::spawn(connection.serve_http2(accepted));
        let mut requests = http2_client_with_window(client, window).await;
        let mut unread = Vec::new();
        for path in ["/", "/refused", "/"] {
            let response = begin(&mut requests, path).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK, "{window}: {path}");
            unread.push(response);
        }
        // A request beyond the limit is not handled; a refusal loses its body.
        for (path, status) in [("/", StatusCode::TOO_MANY_REQUESTS), ("/refused", StatusCode::OK)] {
            let response = begin(&mut requests, path).await.unwrap();
            assert_eq!(response.status(), status, "{window}: {path}");
            assert!(!response.headers().contains_key(header::CONTENT_LENGTH), "{response:?}");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert!(body.is_empty(), "{window}: {path}: it has a body, which is another one");
        }
        let refused = "unauthenticated_refused_total{limit=\"responses_at_once\"} 2";
        assert!(metrics.render().contains(refused), "{}", metrics.render());
        // A request within the limits of a tenant does not count.
        let watch = begin(&mut requests, "/slow").await.unwrap();
        assert_eq!(watch.status(), StatusCode::OK, "{window}");
        // A response that the client gives up makes room for another one.
        unread.pop();
        let again = async {
            while begin(&mut requests, "/").await.unwrap().status() != StatusCode::OK {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(STEP_TIMEOUT, again).await.expect("the limit is still reached");
    }
}

#[tokio::test]
async fn an_http2_connection_with_an_unread_response_is_closed() {
    let (stream, server) = http2_connection().await;
    let mut requests = http2_client_with_window(stream, 0).await;
    let _unread = begin(&mut requests, "/").await.unwrap();
    ends(server).await;
}

#[tokio::test]
async fn an_unread_response_ends_a_connection_whose_other_responses_are_read() {
    let (stream, server) = http2_connection().await;
    let mut requests = http2_client(stream).await;
    let _unread = begin(&mut requests, "/large").await.unwrap();
    let others = async {
        while get(&mut requests, "/").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(STEP_TIMEOUT, others).await.expect("the connection is kept");
    ends(server).await;
}

#[tokio::test]
async fn an_http1_connection_with_an_unread_response_is_closed() {
    let (mut stream, server) = http1_connection().await;
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: broker\r\n\r\n").await.unwrap();
    ends(server).await;
}

#[tokio::test]
async fn a_slow_client_has_time_for_a_long_response() {
    let (mut stream, _server) = http1_connection().await;
    let began = std::time::Instant::now();
    let request = b"GET /large HTTP/1.1\r\nHost: broker\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let (mut received, mut buffer) = (0, vec![0; 64 * 1024]);
    loop {
        match stream.read(&mut buffer).await.expect("the connection is closed") {
            0 => break,
            read => received += read,
        }
        // A pause after each 2 MiB.
        if received % (2 * 1024 * 1024) < 64 * 1024 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    assert!(received > LARGE_BYTES, "{received}");
    assert!(began.elapsed() > IDLE_TIMEOUT, "it was not slow");
}

/// Starts a server with these limits; returns its address and metrics.
async fn listen(limits: ConnectionLimits, proxies: &str) -> (SocketAddr, Metrics) {
    listen_within(&Connections::new(limits), proxies).await
}

/// Starts a server whose connections count among these; returns its address and metrics.
async fn listen_within(connections: &Connections, proxies: &str) -> (SocketAddr, Metrics) {
    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (address, metrics) = (tcp.local_addr().unwrap(), Metrics::default());
    let proxies = proxies.parse().unwrap();
    let listener = Listener::new(tcp, None, proxies, metrics.clone());
    let listener = listener.with_connections(connections.clone());
    tokio::spawn(listener.serve(TestHandler, std::future::pending(), Duration::ZERO));
    (address, metrics)
}

/// A connection from this local address.
async fn connect(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::from(from), 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// Sends a request on a connection; returns whether there is a response, which ends with these
/// bytes, or the server closes the connection.
async fn responds(stream: &mut TcpStream, request: &str, end: &str) -> bool {
    let answered = async {
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        while !answer.ends_with(end.as_bytes()) {
            if stream.read_buf(&mut answer).await? == 0 {
                return Ok(false);
            }
        }
        Ok::<_, io::Error>(true)
    };
    tokio::time::timeout(STEP_TIMEOUT, answered).await.expect("no answer").unwrap_or(false)
}

async fn is_served(stream: &mut TcpStream) -> bool {
    responds(stream, "GET / HTTP/1.1\r\nHost: broker\r\n\r\n", "served").await
}

/// Connects until a connection is served, because the server notices a closed one a moment later.
async fn is_served_again(to: SocketAddr) {
    let served = async {
        while !is_served(&mut connect(US, to).await).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(STEP_TIMEOUT, served).await.expect("the limit is still reached");
}

#[tokio::test]
async fn one_address_cannot_use_all_connections() {
    let limits = ConnectionLimits { total: 100, per_client: 2 };
    let (address, metrics) = listen(limits, "").await;
    let (mut first, mut second) = (connect(US, address).await, connect(US, address).await);
    assert!(is_served(&mut first).await && is_served(&mut second).await);
    assert!(!is_served(&mut connect(US, address).await).await, "a third one is served");
    assert!(is_served(&mut connect(OTHERS, address).await).await);
    assert!(is_served(&mut first).await && is_served(&mut second).await);
    let refused = "unauthenticated_refused_total{limit=\"connections_per_address\"} 1";
    assert!(metrics.render().contains(refused), "{}", metrics.render());
    drop(first);
    is_served_again(address).await;
}

#[tokio::test]
async fn two_listeners_share_the_limits_of_connections() {
    let connections = Connections::new(ConnectionLimits { total: 100, per_client: 2 });
    let (one, _) = listen_within(&connections, "").await;
    let (two, _) = listen_within(&connections, "").await;
    let (mut first, mut second) = (connect(US, one).await, connect(US, two).await);
    assert!(is_served(&mut first).await && is_served(&mut second).await);
    for address in [one, two] {
        assert!(!is_served(&mut connect(US, address).await).await, "a third one is served");
    }
    drop(first);
    is_served_again(two).await;

    let connections = Connections::new(ConnectionLimits { total: 2, per_client: 100 });
    let (one, _) = listen_within(&connections, "").await;
    let (two, _) = listen_within(&connections, "").await;
    let (mut first, mut second) = (connect(US, one).await, connect(US, two).await);
    assert!(is_served(&mut first).await && is_served(&mut second).await);
    let mut third = connect(US, two).await;
    let served = tokio::time::timeout(Duration::from_millis(500), is_served(&mut third)).await;
    assert_ne!(served, Ok(true), "a third one is served");
}

#[tokio::test]
async fn a_connection_that_waits_when_the_server_stops_is_served() {
    // The server finds the connection and its stop at the same time, and takes either first.
    for _ in 0..8 {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut waiting = connect(US, tcp.local_addr().unwrap()).await;
        let listener = Listener::new(tcp, None, TrustedProxies::default(), Metrics::default());
        let server = listener.serve(TestHandler, std::future::ready(()), STEP_TIMEOUT);
        let server = tokio::spawn(server);
        assert!(is_served(&mut waiting).await);
        drop(waiting);
        ends(server).await;
    }
}

#[tokio::test]
async fn trusted_proxies_have_no_limit_of_their_own() {
    let limits = ConnectionLimits { total: 100, per_client: 1 };
    let (address, _) = listen(limits, "127.0.0.1").await;
    let mut open = Vec::new();
    for _ in 0..5 {
        let mut stream = connect(US, address).await;
        assert!(is_served(&mut stream).await);
        open.push(stream);
    }
}

#[tokio::test]
async fn a_tunnel_counts_against_the_limits() {
    for limits in [
        ConnectionLimits { total: 100, per_client: 1 },
        ConnectionLimits { total: 1, per_client: 100 },
    ] {
        let (address, _) = listen(limits, "").await;
        let mut tunnel = connect(US, address).await;
        let upgrade = "GET /tunnel HTTP/1.1\r\nHost: broker\r\nConnection: upgrade\r\n\
                       Upgrade: test\r\n\r\n";
        assert!(responds(&mut tunnel, upgrade, "\r\n\r\n").await);
        let mut other = connect(US, address).await;
        // Above the limit of all connections it waits; above that of the address it is closed.
        let served = tokio::time::timeout(Duration::from_millis(500), is_served(&mut other)).await;
        assert_ne!(served, Ok(true), "{limits:?}: the tunnel does not count");
        drop((tunnel, other));
        is_served_again(address).await;
    }
}
