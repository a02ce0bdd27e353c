//! Tunnels: upgraded connections of exec, attach, port-forward and programs behind `/proxy/`.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};

use crate::gateway::{
    in_flight::{End, InFlightRequest},
    limits::{BodyMeter, usage::Direction},
};

/// Buffered bytes per direction; a side that does not read holds up the other.
const BUFFER_BYTES: usize = 16 * 1024;

/// One end of a tunnel. Bytes read from it are counted, and delayed if the tenant exceeds its byte
/// rate.
struct MeteredIo {
    io: TokioIo<Upgraded>,
    meter: BodyMeter,
}

impl AsyncRead for MeteredIo {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.meter.poll_ready(context));
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(context, buffer))?;
        this.meter.record_bytes(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for MeteredIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// Copies bytes in both directions until both ends are closed, one fails, or the request is
/// cancelled. An end that has finished sending may still receive. `response_body` is that of the
/// API server's 101: it closes the connection if it is dropped before the upgrade has resolved.
pub(in crate::gateway) async fn run<B>(
    client: OnUpgrade,
    server: OnUpgrade,
    response_body: B,
    mut in_flight: InFlightRequest,
) {
    // The client's upgrade waits until the client has read the response's head. In both steps a
    // cancelled tunnel is not polled, because a poll may copy bytes.
    let upgraded = tokio::select! {
        biased;
        reason = in_flight.closed() => Err(End::Closed(reason)),
        upgraded = async { tokio::try_join!(client, server) } => {
            upgraded.map_err(|_| End::UpgradeFailed)
        }
    };
    drop(response_body);
    let (client, server) = match upgraded {
        Ok(upgraded) => upgraded,
        Err(end) => {
            in_flight.end(end);
            return;
        }
    };
    let metered =
        |io, direction| MeteredIo { io: TokioIo::new(io), meter: in_flight.body_meter(direction) };
    let mut client = metered(client, Direction::Up);
    let mut server = metered(server, Direction::Down);
    let copied =
        copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER_BYTES, BUFFER_BYTES);
    let end = tokio::select! {
        biased;
        reason = in_flight.closed() => End::Closed(reason),
        result = copied => result.map_or(End::ConnectionLost, |_| End::Complete),
    };
    in_flight.end(end);
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, time::Duration};

    use bytes::Bytes;
    use http::{Request, Response, StatusCode, header};
    use http_body_util::Empty;
    use hyper::{body::Incoming, client, server, service::service_fn};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{TcpListener, TcpStream},
        sync::mpsc,
    };

    use super::*;
    use crate::gateway::{
        in_flight::{CloseReason, Streams},
        tests::in_flight,
    };

    /// Time limit of every step that waits for nobody.
    const STEP_TIMEOUT: Duration = Duration::from_secs(10);
    const UPGRADED: &[u8] =
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: test\r\n\r\n";

    async fn socket_pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connected, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (connected.unwrap(), accepted.unwrap().0)
    }

    fn request() -> Request<Empty<Bytes>> {
        let builder = Request::builder().header(header::HOST, "a");
        let builder = builder.header(header::CONNECTION, "upgrade").header(header::UPGRADE, "test");
        builder.body(Empty::new()).unwrap()
    }

    /// A client that asked for an upgrade: the gateway's side and the client's. Unless it is
    /// complete, the response has not been sent.
    async fn client(is_complete: bool) -> (OnUpgrade, TcpStream) {
        let (mut socket, accepted) = socket_pair().await;
        let (upgrades, mut requested) = mpsc::unbounded_channel();
        let service = service_fn(move |mut request: Request<Incoming>| {
            let _ = upgrades.send(hyper::upgrade::on(&mut request));
            async move {
                if !is_complete {
                    std::future::pending::<()>().await;
                }
                let mut response = Response::new(Empty::<Bytes>::new());
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                for (name, value) in [(header::CONNECTION, "upgrade"), (header::UPGRADE, "test")] {
                    response.headers_mut().insert(name, http::HeaderValue::from_static(value));
                }
                Ok::<_, Infallible>(response)
            }
        });
        let connection = server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(accepted), service)
            .with_upgrades();
        tokio::spawn(connection);
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: test\r\n\r\n";
        socket.write_all(head).await.unwrap();
        if is_complete {
            assert_ne!(socket.read(&mut [0; 1024]).await.unwrap(), 0);
        }
        (requested.recv().await.unwrap(), socket)
    }

    /// An API server that has switched protocols: the gateway's side and the API server's.
    async fn api_server() -> (OnUpgrade, TcpStream) {
        let (connected, mut socket) = socket_pair().await;
        let handshake = client::conn::http1::handshake(TokioIo::new(connected));
        let (mut sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection.with_upgrades());
        let answer = async {
            assert_ne!(socket.read(&mut [0; 1024]).await.unwrap(), 0);
            socket.write_all(UPGRADED).await.unwrap();
        };
        let (response, ()) = tokio::join!(sender.send_request(request()), answer);
        (hyper::upgrade::on(response.unwrap()), socket)
    }

    /// The bytes that the API server receives until its connection ends.
    async fn received(mut api_server: TcpStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        let read = api_server.read_to_end(&mut bytes);
        tokio::time::timeout(STEP_TIMEOUT, read).await.expect("it stays open").unwrap();
        bytes
    }

    #[tokio::test]
    async fn a_cancelled_tunnel_ends_while_its_upgrade_is_not_complete() {
        let streams = Streams::default();
        let (client, _socket) = client(false).await;
        let (server, api_server) = api_server().await;
        let tunnel = tokio::spawn(run(client, server, (), in_flight(&streams)));
        tokio::task::yield_now().await;
        assert_eq!(streams.close(CloseReason::Suspended, |_| true), 1);
        tokio::time::timeout(STEP_TIMEOUT, tunnel).await.expect("it waits").unwrap();
        assert_eq!(received(api_server).await, b"");
    }

    #[tokio::test]
    async fn a_cancelled_tunnel_copies_nothing() {
        // More than once, because the order in which futures are polled may be random.
        for _ in 0..20 {
            let streams = Streams::default();
            let (client, mut socket) = client(true).await;
            let (server, api_server) = api_server().await;
            socket.write_all(b"late").await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
            let in_flight = in_flight(&streams);
            assert_eq!(streams.close(CloseReason::Suspended, |_| true), 1);
            run(client, server, (), in_flight).await;
            assert_eq!(received(api_server).await, b"");
        }
    }
}
