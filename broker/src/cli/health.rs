//! `tenant-broker health`: asks a running broker whether it is ready. Container engines run it as
//! their health check, because the image has no shell and no other HTTP client.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::{Request, StatusCode, header::HOST};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tenant_shared::sanitize;
use tokio::net::TcpStream;

/// Timeout of the check, from the connection to the end of the response.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);
/// Limit of the reason in a response, in bytes.
const MAX_REASON_BYTES: usize = 1024;

/// Checks that `GET /readyz` on `operator_listen` responds with 200, within three seconds.
///
/// # Errors
/// The broker is not ready, or nothing responds there; the text has the reason.
pub(super) async fn check(operator_listen: SocketAddr) -> anyhow::Result<()> {
    check_within(operator_listen, CHECK_TIMEOUT).await
}

async fn check_within(operator_listen: SocketAddr, timeout: Duration) -> anyhow::Result<()> {
    let address = reachable(operator_listen);
    tokio::time::timeout(timeout, request(address)).await.with_context(|| {
        format!("no response from /readyz at {address} (operator_listen) within {timeout:?}")
    })?
}

/// The address to connect to: loopback if the broker listens on all addresses.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

async fn request(address: SocketAddr) -> anyhow::Result<()> {
    let stream = TcpStream::connect(address).await.with_context(|| {
        format!("cannot connect to {address} (operator_listen); does the broker run?")
    })?;
    let failed = || format!("the request of /readyz at {address} (operator_listen) failed");
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.with_context(failed)?;
    let connection = tokio::spawn(connection);
    let request = Request::get("/readyz")
        .header(HOST, address.to_string())
        .body(Empty::<Bytes>::new())
        .with_context(failed)?;
    let response = sender.send_request(request).await.with_context(failed)?;
    let status = response.status();
    if status != StatusCode::OK {
        bail!("not ready: /readyz at {address} responds with {status}{}", reason(response).await);
    }
    connection.abort();
    Ok(())
}

/// The reason in the body of a response, after a colon. Empty if there is none, or too much of it.
async fn reason(response: http::Response<Incoming>) -> String {
    let Ok(body) = Limited::new(response.into_body(), MAX_REASON_BYTES).collect().await else {
        return String::new();
    };
    let text = sanitize(String::from_utf8_lossy(&body.to_bytes()).trim());
    if text.is_empty() { text } else { format!(": {text}") }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    /// Starts a server that responds to one `GET /readyz` with this text, and stays silent if that
    /// is empty.
    async fn server(response: String) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 1024];
            let length = stream.read(&mut head).await.unwrap();
            assert!(head[..length].starts_with(b"GET /readyz HTTP/1.1\r\n"));
            if response.is_empty() {
                std::future::pending::<()>().await;
            }
            stream.write_all(response.as_bytes()).await.unwrap();
        });
        address
    }

    fn response(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    async fn error_of(response: String) -> String {
        let error = check(server(response).await).await.unwrap_err();
        format!("{error:#}")
    }

    #[tokio::test]
    async fn a_ready_broker_is_healthy() {
        check(server(response("200 OK", "ok\n")).await).await.unwrap();
    }

    #[tokio::test]
    async fn the_reason_of_a_broker_that_is_not_ready_is_in_the_error() {
        let response = response("503 Service Unavailable", "the broker\x1b is stopping\n");
        let error = error_of(response).await;
        assert!(error.ends_with("503 Service Unavailable: the broker  is stopping"), "{error}");
    }

    #[tokio::test]
    async fn a_redirect_is_not_followed_and_a_long_body_is_not_read() {
        let error = error_of(response("302 Found", &"x".repeat(MAX_REASON_BYTES + 1))).await;
        assert!(error.ends_with("302 Found"), "{error}");
    }

    #[tokio::test]
    async fn another_protocol_is_an_error() {
        let error = error_of("SSH-2.0-OpenSSH_9.2\r\n".to_owned()).await;
        assert!(error.contains("/readyz"), "{error}");
    }

    #[tokio::test]
    async fn a_broker_that_does_not_run_is_not_healthy() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let error = check(address).await.unwrap_err().to_string();
        assert!(error.contains("does the broker run?"), "{error}");
    }

    #[tokio::test]
    async fn a_silent_broker_is_not_healthy() {
        let address = server(String::new()).await;
        let error = check_within(address, Duration::from_millis(50)).await.unwrap_err();
        assert!(error.to_string().contains("no response from /readyz"), "{error:#}");
    }

    #[test]
    fn a_broker_on_all_addresses_is_reached_on_loopback() {
        for (listen, expected) in [
            ("0.0.0.0:8081", "127.0.0.1:8081"),
            ("[::]:8081", "[::1]:8081"),
            ("192.0.2.1:9", "192.0.2.1:9"),
            ("[2001:db8::1]:9", "[2001:db8::1]:9"),
        ] {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), expected);
        }
    }
}
