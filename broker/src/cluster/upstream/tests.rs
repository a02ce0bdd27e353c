//! Tests of the connection pools against an HTTP server on localhost.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full, StreamBody, combinators::BoxBody};
use hyper::{body::Frame, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::mpsc,
};

use super::{Transport, Upstream, UpstreamRequestBody};

/// An HTTP/1.1 server that counts its connections.
struct Server {
    upstream: Upstream,
    connections: Arc<AtomicUsize>,
    /// One message for each connection that ended.
    ended: mpsc::UnboundedReceiver<()>,
}

/// Starts the server. `/chunked` has no length, `/endless` never ends, `/last` closes the
/// connection.
async fn server() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let (end, ended) = mpsc::unbounded_channel();
    let counter = Arc::clone(&connections);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            counter.fetch_add(1, Ordering::SeqCst);
            let end = end.clone();
            tokio::spawn(async move {
                let service = service_fn(async |request: Request<hyper::body::Incoming>| {
                    Ok::<_, Infallible>(respond(request.uri().path()))
                });
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                let _ = end.send(());
            });
        }
    });
    let config = kube::Config::new(url.parse().unwrap());
    Server { upstream: Upstream::new(&config).unwrap(), connections, ended }
}

fn respond(path: &str) -> Response<BoxBody<Bytes, Infallible>> {
    let pieces = |count: usize| {
        let piece = |_| Ok(Frame::data(Bytes::from_static(b"piece ")));
        BodyExt::boxed(StreamBody::new(futures_util::stream::iter((0..count).map(piece))))
    };
    match path {
        "/chunked" => Response::new(pieces(3)),
        "/endless" => Response::new(pieces(usize::MAX)),
        path => {
            let mut response = Response::new(Full::new(Bytes::from(path.to_owned())).boxed());
            if path == "/last" {
                let close = http::HeaderValue::from_static("close");
                response.headers_mut().insert(http::header::CONNECTION, close);
            }
            response
        }
    }
}

fn request(upstream: &Upstream, path: &str) -> Request<UpstreamRequestBody> {
    let empty: UpstreamRequestBody = Empty::new().map_err(|never| match never {}).boxed();
    let mut request = Request::new(empty);
    *request.uri_mut() = upstream.uri(path).unwrap();
    request
}

impl Server {
    async fn send(&self, path: &str) -> Response<super::UpstreamResponseBody> {
        self.upstream.send(request(&self.upstream, path), Transport::Http1).await.unwrap()
    }

    async fn text(&self, path: &str) -> String {
        let body = self.send(path).await.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.into()).unwrap()
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn sequential_requests_reuse_one_connection() {
    let server = server().await;
    for _ in 0..3 {
        assert_eq!(server.text("/whole?x=1").await, "/whole");
        assert_eq!(server.text("/chunked").await, "piece piece piece ");
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn concurrent_requests_use_separate_connections() {
    let server = server().await;
    let (one, other) = tokio::join!(server.send("/chunked"), server.send("/whole"));
    assert_eq!(server.connections(), 2);
    drop(other.into_body().collect().await.unwrap());
    drop(one.into_body().collect().await.unwrap());
    assert_eq!(server.text("/whole").await, "/whole");
    assert_eq!(server.connections(), 2, "both connections are reused");
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_is_replaced() {
    let mut server = server().await;
    assert_eq!(server.text("/last").await, "/last");
    server.ended.recv().await.unwrap();
    assert_eq!(server.text("/whole").await, "/whole");
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn an_idle_connection_that_the_server_closes_is_closed_without_another_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let upstream = Upstream::new(&kube::Config::new(url.parse().unwrap())).unwrap();
    let closed_by_client = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        assert_ne!(stream.read(&mut request).await.unwrap(), 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(stream.read(&mut request).await.unwrap(), 0);
    });
    let response = upstream.send(request(&upstream, "/"), Transport::Http1).await.unwrap();
    drop(response.into_body().collect().await.unwrap());
    let waiting = tokio::time::timeout(std::time::Duration::from_secs(10), closed_by_client);
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_response_that_is_not_read_to_its_end_closes_its_connection() {
    let mut server = server().await;
    let mut body = server.send("/endless").await.into_body();
    let piece = body.frame().await.unwrap().unwrap();
    assert!(piece.data_ref().unwrap().starts_with(b"piece "));
    drop(body);
    server.ended.recv().await.unwrap();
    assert_eq!(server.text("/whole").await, "/whole");
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_server_without_http2_is_sent_requests_over_http1() {
    let server = server().await;
    let request = request(&server.upstream, "/whole");
    let response = server.upstream.send(request, Transport::Http2).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "/whole");
}

/// A server that accepts one connection after the other, and answers each with these bytes.
async fn raw_server(answer: &'static [u8]) -> (Upstream, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let upstream = Upstream::new(&kube::Config::new(url.parse().unwrap())).unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&connections);
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            counter.fetch_add(1, Ordering::SeqCst);
            if !answer.is_empty() {
                let mut request = [0; 1024];
                assert_ne!(stream.read(&mut request).await.unwrap(), 0);
                stream.write_all(answer).await.unwrap();
            }
            open.push(stream);
        }
    });
    (upstream, connections)
}

/// The API server connects the caller to a program of the tenant even if that refuses the upgrade:
/// what it sends later must not be the response to somebody else's request.
#[tokio::test]
async fn no_request_follows_a_refused_upgrade_on_its_connection() {
    for method in [http::Method::GET, http::Method::HEAD] {
        let answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        let (upstream, connections) = raw_server(answer).await;
        for number in 1..=3 {
            let mut upgrade = request(&upstream, "/upgrade");
            *upgrade.method_mut() = method.clone();
            upgrade.headers_mut().insert("connection", "Upgrade".parse().unwrap());
            upgrade.headers_mut().insert("upgrade", "websocket".parse().unwrap());
            let response = upstream.send(upgrade, Transport::Dedicated).await.unwrap();
            assert_eq!(response.status(), 404);
            drop(response.into_body().collect().await.unwrap());
            assert_eq!(connections.load(Ordering::SeqCst), number);
        }
        let next = upstream.send(request(&upstream, "/next"), Transport::Http1).await.unwrap();
        assert_eq!(next.status(), 404);
        assert_eq!(connections.load(Ordering::SeqCst), 4);
    }
}

/// A request that asks for an upgrade.
fn upgrade_request(upstream: &Upstream) -> Request<UpstreamRequestBody> {
    let mut upgrade = request(upstream, "/upgrade");
    upgrade.headers_mut().insert("connection", "Upgrade".parse().unwrap());
    upgrade.headers_mut().insert("upgrade", "websocket".parse().unwrap());
    upgrade
}

#[tokio::test]
async fn an_upgraded_connection_stays_open_without_the_response() {
    let answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
        Upgrade: websocket\r\n\r\nhello";
    let (upstream, _) = raw_server(answer).await;
    let upgrade = upgrade_request(&upstream);
    let mut response = upstream.send(upgrade, Transport::Dedicated).await.unwrap();
    let upgraded = hyper::upgrade::on(&mut response).await.unwrap();
    drop(response);
    let mut said = [0; 5];
    TokioIo::new(upgraded).read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"hello");
}

/// hyper switches protocols only once it has sent the request, which the server need not read.
#[tokio::test]
async fn a_connection_that_is_not_upgraded_yet_ends_with_the_response() {
    let answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
        Upgrade: websocket\r\n\r\n";
    let (upstream, _) = raw_server(answer).await;
    let (sender, dropped) = tokio::sync::oneshot::channel();
    let mut upgrade = upgrade_request(&upstream);
    *upgrade.method_mut() = http::Method::POST;
    *upgrade.body_mut() = EndlessBody(Some(sender)).boxed();
    let mut response = upstream.send(upgrade, Transport::Dedicated).await.unwrap();
    assert_eq!(response.status(), 101);
    let upgraded = hyper::upgrade::on(&mut response);
    drop(response);
    let step_timeout = std::time::Duration::from_secs(10);
    tokio::time::timeout(step_timeout, dropped).await.expect("it goes on sending").unwrap();
    tokio::time::timeout(step_timeout, upgraded).await.expect("it waits").unwrap_err();
}

/// An endless request body that tells when it is dropped.
struct EndlessBody(Option<tokio::sync::oneshot::Sender<()>>);

impl hyper::body::Body for EndlessBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let piece = Bytes::from_static(&[b'x'; 16 * 1024]);
        std::task::Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl Drop for EndlessBody {
    fn drop(&mut self) {
        let _ = self.0.take().unwrap().send(());
    }
}

#[tokio::test]
async fn an_aborted_upload_ends_although_the_server_does_not_read() {
    let (upstream, connections) = raw_server(b"").await;
    let (sender, dropped) = tokio::sync::oneshot::channel();
    let mut upload = request(&upstream, "/upload");
    *upload.method_mut() = http::Method::POST;
    *upload.body_mut() = EndlessBody(Some(sender)).boxed();
    let sent = upstream.send(upload, Transport::Dedicated);
    let sent = tokio::time::timeout(std::time::Duration::from_secs(1), sent).await;
    assert!(sent.is_err(), "the server does not answer");
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    tokio::time::timeout(std::time::Duration::from_secs(10), dropped).await.unwrap().unwrap();
}
