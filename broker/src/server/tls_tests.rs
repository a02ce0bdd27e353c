//! Tests of the listener with TLS: certificates that are replaced while it serves.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use integration::{
    authority::{Authority, Identity},
    mounted_secret::MountedSecret,
};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::{net::TcpStream, sync::oneshot};
use tokio_rustls::TlsConnector;

use super::*;
use crate::base::{clock::Clock, reload::Reloader};

/// A handler that responds to every request with a text.
struct Greeting;

impl Handler for Greeting {
    fn handle(
        &self,
        _request: Request<Incoming>,
        _connection: &ConnectionInfo,
    ) -> impl Future<Output = Response<Body>> + Send {
        std::future::ready(Response::new(body::full(Bytes::from_static(b"hello"))))
    }
}

/// A listener whose certificate and key are in a mounted Secret, and a client that trusts its CA.
struct Server {
    authority: Authority,
    secret: MountedSecret,
    reloader: Reloader,
    metrics: Metrics,
    address: SocketAddr,
    client: TlsConnector,
    _stop: oneshot::Sender<()>,
    _folder: tempfile::TempDir,
}

impl Server {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::open(folder.path()).unwrap();
        let identity = authority.server("one").unwrap();
        let files = [("tls.crt", &*identity.certificate), ("tls.key", &*identity.key)];
        let secret = MountedSecret::new(&folder.path().join("secret"), &files).unwrap();
        let metrics = Metrics::default();
        let reloader = Reloader::new(Clock::system(), metrics.clone());
        let files =
            TlsFiles { cert_file: secret.path("tls.crt"), key_file: secret.path("tls.key") };
        let tls = Some(reloader.load(TlsFiles::NAME, files).unwrap());
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async { drop(stopped.await) };
        let listener = Listener::new(tcp, tls, TrustedProxies::default(), metrics.clone());
        tokio::spawn(listener.serve(Greeting, stopped, Duration::ZERO));
        let mut roots = RootCertStore::empty();
        roots.add(der(authority.certificate())).unwrap();
        // One configuration for all connections, so that the client tries to resume sessions.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = TlsConnector::from(Arc::new(client));
        Self { authority, secret, reloader, metrics, address, client, _stop: stop, _folder: folder }
    }

    /// Opens a connection; returns the certificate that the server shows on it.
    async fn connect(&self) -> (CertificateDer<'static>, SendRequest<Empty<Bytes>>) {
        let tcp = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let tls = self.client.connect(name, tcp).await.unwrap();
        let certificate = tls.get_ref().1.peer_certificates().unwrap()[0].clone();
        let (sender, connection) = handshake(TokioIo::new(tls)).await.unwrap();
        tokio::spawn(connection);
        (certificate, sender)
    }

    /// Writes files, and polls until they are used or refused.
    async fn replace(&self, certificate: &str, key: &str) {
        self.secret.replace(&[("tls.crt", certificate), ("tls.key", key)]).unwrap();
        self.reloader.poll().await;
        self.reloader.poll().await;
    }

    /// How often changed files were used, and how often refused.
    fn reloads(&self) -> (u32, u32) {
        let text = self.metrics.render();
        let count = |outcome: &str| {
            let name =
                format!("tenant_broker_file_reloads_total{{file=\"tls\",outcome=\"{outcome}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or(0)
        };
        (count("ok"), count("refused"))
    }
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

async fn get(connection: &mut SendRequest<Empty<Bytes>>) -> Bytes {
    connection.ready().await.unwrap();
    let request = Request::get("/").header(http::header::HOST, "localhost");
    let response = connection.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
    response.into_body().collect().await.unwrap().to_bytes()
}

#[tokio::test]
async fn new_connections_show_a_replaced_certificate_and_open_ones_continue() {
    let server = Server::start().await;
    let (before, mut open) = server.connect().await;
    assert_eq!(get(&mut open).await, "hello");
    let Identity { certificate, key } = server.authority.server("two").unwrap();
    server.replace(&certificate, &key).await;
    let (after, mut new) = server.connect().await;
    assert_ne!(before, after);
    assert_eq!(after, der(&certificate));
    assert_eq!(get(&mut open).await, "hello");
    assert_eq!(get(&mut new).await, "hello");
    assert_eq!(server.reloads(), (1, 0));
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_refused() {
    let server = Server::start().await;
    let (good, _) = server.connect().await;
    let Identity { certificate, key } = server.authority.server("two").unwrap();
    let other = server.authority.server("three").unwrap();
    let cases = [
        ("", key.as_str()),
        (certificate.as_str(), ""),
        (&certificate[..certificate.len() / 2], key.as_str()),
        (certificate.as_str(), &key[..key.len() / 2]),
        (certificate.as_str(), other.key.as_str()),
        (key.as_str(), key.as_str()),
        (certificate.as_str(), certificate.as_str()),
    ];
    for (refused, (certificate, key)) in (1..).zip(cases) {
        server.replace(certificate, key).await;
        assert_eq!(server.reloads(), (0, refused));
        assert_eq!(server.connect().await.0, good);
    }
    assert!(server.metrics.render().contains("tenant_broker_file_current{file=\"tls\"} 0\n"));
    server.secret.replace(&[("tls.crt", &*certificate)]).unwrap();
    server.reloader.poll().await;
    server.reloader.poll().await;
    assert_eq!(server.reloads(), (0, 8), "the key is missing");
    server.replace(&certificate, &key).await;
    assert_eq!(server.reloads(), (1, 8));
    assert_eq!(server.connect().await.0, der(&certificate));
    assert!(server.metrics.render().contains("tenant_broker_file_current{file=\"tls\"} 1\n"));
}
