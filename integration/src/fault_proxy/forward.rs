//! Forwarding of one request to the API server and of the response back.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use anyhow::{Context, Result, anyhow};
use http::{Request, Response, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use url::Url;

use super::{Fault, Shared};
use crate::authority::Identity;
use crate::http_client::use_ring;

/// A streamed body of any source.
type AnyBody = BoxBody<Bytes, anyhow::Error>;

/// The connection parameters of the API server.
pub(super) struct Upstream {
    address: SocketAddr,
    as_broker: TlsConnector,
    without_certificate: TlsConnector,
}

impl Upstream {
    pub(super) fn new(url: &Url, authority: &str, broker: &Identity) -> Result<Self> {
        use_ring();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
        let roots = Arc::new(roots);
        let (certificates, key) = read(broker)?;
        let as_broker = ClientConfig::builder()
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(certificates, key)
            .context("use the broker's certificate")?;
        let without_certificate =
            ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Ok(Self {
            address: *url
                .socket_addrs(|| None)
                .context("resolve the API server's address")?
                .first()
                .context("the API server has no address")?,
            as_broker: TlsConnector::from(Arc::new(as_broker)),
            without_certificate: TlsConnector::from(Arc::new(without_certificate)),
        })
    }

    async fn send(&self, request: Request<Incoming>) -> Result<Response<AnyBody>> {
        // With a client certificate the API server would authenticate by the certificate instead of
        // the token.
        let connector = if request.headers().contains_key(header::AUTHORIZATION) {
            &self.without_certificate
        } else {
            &self.as_broker
        };
        let stream = TcpStream::connect(self.address).await.context("connect upstream")?;
        let name = ServerName::from(self.address.ip());
        let stream = connector.connect(name, stream).await.context("connect upstream with TLS")?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // The task ends when the response has been read, or when it is dropped.
        tokio::spawn(connection);
        let response = sender.send_request(request).await.context("send upstream")?;
        Ok(response.map(|body| body.map_err(anyhow::Error::from).boxed()))
    }
}

/// Returns a TLS acceptor with this certificate, without HTTP/2.
pub(crate) fn acceptor(identity: &Identity) -> Result<TlsAcceptor> {
    use_ring();
    let (certificates, key) = read(identity)?;
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .context("use the proxy's certificate")?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn read(identity: &Identity) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    Ok((vec![certificate], key))
}

/// Handles one request. An error makes hyper close the connection without a response, or in the
/// middle of one: cuts are made this way.
pub(super) async fn handle(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<AnyBody>> {
    let (seen, rules) = shared.record(&request);
    for rule in &rules {
        match rule.fault() {
            Fault::Before(hook) => hook(seen.clone()).await,
            Fault::CutBefore => return Err(anyhow!("cut before forwarding")),
            Fault::Respond { status, headers, body } => {
                let body = Full::from(body.clone()).map_err(|never| match never {}).boxed();
                let mut response = Response::new(body);
                *response.status_mut() = *status;
                response.headers_mut().extend(headers.clone());
                return Ok(response);
            }
            Fault::CutAfter | Fault::CutBody(_) | Fault::After(_) => {}
        }
    }
    let mut response = shared.upstream.send(request).await?;
    for rule in &rules {
        match rule.fault() {
            Fault::After(hook) => hook(seen.clone()).await,
            Fault::CutAfter => return Err(anyhow!("cut after forwarding")),
            Fault::CutBody(length) => {
                response = response
                    .map(|inner| BoxBody::new(TruncatedBody { inner, left: *length, sent: false }));
            }
            Fault::Before(_) | Fault::CutBefore | Fault::Respond { .. } => {}
        }
    }
    Ok(response)
}

/// A body that ends with an error after a number of bytes.
struct TruncatedBody {
    inner: AnyBody,
    /// Remaining bytes that pass.
    left: usize,
    /// Whether hyper had a turn to send the bytes that passed.
    sent: bool,
}

impl Body for TruncatedBody {
    type Data = Bytes;
    type Error = anyhow::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        if self.left == 0 && !self.sent {
            self.sent = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.left == 0 {
            return Poll::Ready(Some(Err(anyhow!("cut inside the body"))));
        }
        Pin::new(&mut self.inner).poll_frame(context).map_ok(|frame| {
            frame.map_data(|mut data| {
                data.truncate(self.left);
                self.left -= data.len();
                data
            })
        })
    }
}
