//! The TLS end of the listener. Handshakes run beside the accepting loop, bounded in number and
//! time, so that a client that is slow to shake hands holds up nobody.

use std::{io, path::Path, sync::Arc, time::Duration};

use poem::{
    http::uri::Scheme,
    listener::Acceptor,
    web::{LocalAddr, RemoteAddr},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::config::TlsFiles;

/// How long a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Handshakes at once.
const MOST_HANDSHAKES: usize = 256;

/// Certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file.
    #[error("cannot read {path}")]
    File {
        /// Its path.
        path: String,
        /// Why.
        source: rustls_pki_types::pem::Error,
    },
    /// The pair.
    #[error("the certificate (tls.cert_file) and the key (tls.key_file) cannot be used together")]
    Pair(#[source] rustls::Error),
}

/// Reads certificate and key.
///
/// # Errors
/// A file is not what it should be.
pub fn server_config(files: &TlsFiles) -> Result<Arc<rustls::ServerConfig>, TlsError> {
    let wrong = |path: &Path| {
        let path = path.display().to_string();
        move |source| TlsError::File { path, source }
    };
    let chain = CertificateDer::pem_file_iter(&files.cert_file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(wrong(&files.cert_file))?;
    let key = PrivateKeyDer::from_pem_file(&files.key_file).map_err(wrong(&files.key_file))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(TlsError::Pair)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

type Ready = (TlsStream<TcpStream>, std::net::SocketAddr);

/// Accepts connections that have shaken hands.
#[derive(Debug)]
pub struct TlsListener {
    local: std::net::SocketAddr,
    ready: mpsc::Receiver<Ready>,
}

impl TlsListener {
    /// Starts accepting on a bound listener.
    ///
    /// # Errors
    /// The listener has no address.
    pub fn start(listener: TcpListener, config: Arc<rustls::ServerConfig>) -> io::Result<Self> {
        let local = listener.local_addr()?;
        let (sender, ready) = mpsc::channel(1);
        tokio::spawn(accept(listener, TlsAcceptor::from(config), sender));
        Ok(Self { local, ready })
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, ready: mpsc::Sender<Ready>) {
    let handshakes = Arc::new(Semaphore::new(MOST_HANDSHAKES));
    loop {
        let Ok(place) = Arc::clone(&handshakes).acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ready.closed() => return,
        };
        let Ok((stream, remote)) = accepted else {
            // Out of file descriptors, most likely: give others time to close some.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (acceptor, ready) = (acceptor.clone(), ready.clone());
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            if let Ok(Ok(stream)) =
                tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await
            {
                drop(place);
                // Nobody takes it any more when the broker stops.
                let _ = ready.send((stream, remote)).await;
            }
        });
    }
}

impl Acceptor for TlsListener {
    type Io = TlsStream<TcpStream>;

    fn local_addr(&self) -> Vec<LocalAddr> {
        vec![LocalAddr(self.local.into())]
    }

    async fn accept(&mut self) -> io::Result<(Self::Io, LocalAddr, RemoteAddr, Scheme)> {
        let (stream, remote) =
            self.ready.recv().await.ok_or_else(|| io::Error::other("the listener has ended"))?;
        Ok((stream, LocalAddr(self.local.into()), RemoteAddr(remote.into()), Scheme::HTTPS))
    }
}
