//! The TLS identity of the listener.

use std::{path::PathBuf, sync::Arc};

use rustls_pki_types::{PrivateKeyDer, pem::PemObject as _};
use secrecy::ExposeSecret as _;

use crate::base::{
    certificate::{self, CertificateError, parse_certificates},
    reload::{FileError, FileSource, Files, Loaded},
};

/// Files of the listener's certificate and key.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Certificate chain, PEM.
    pub cert_file: PathBuf,
    /// Private key, PEM.
    pub key_file: PathBuf,
}

/// The certificate or the key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("the TLS files (tls.cert_file, tls.key_file)")]
    File(#[from] FileError),
    /// The file is no certificate chain in PEM.
    #[error("{path} is no certificate chain in PEM (tls.cert_file)", path = path.display())]
    Certificate {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        source: CertificateError,
    },
    /// The file is no private key in PEM.
    #[error("{path} is no private key in PEM (tls.key_file)", path = path.display())]
    Key {
        /// Path of the file. The parser's error is left out, because it may quote the key.
        path: PathBuf,
    },
    /// Certificate and key do not belong together, or are not supported.
    #[error("the certificate (tls.cert_file) and the key (tls.key_file) cannot be used together")]
    Pair(#[source] rustls::Error),
}

impl TlsFiles {
    /// The name of the files in log and metrics.
    pub const NAME: &str = "tls";
}

impl FileSource for TlsFiles {
    type Value = rustls::ServerConfig;
    type Error = TlsError;

    const ADVICE: &'static str = "write a certificate and its key into the files (tls.cert_file, \
                                  tls.key_file); they are read again by themselves";

    /// Builds a TLS configuration with ALPN for HTTP/2 and HTTP/1.1. Sessions of another
    /// configuration are not resumed, so that every new connection shows the current certificate.
    fn load(&self, files: &mut Files) -> Result<Loaded<rustls::ServerConfig>, TlsError> {
        let (chain, key) = (files.read(&self.cert_file), files.read(&self.key_file));
        let (chain, key) = (chain?, key?);
        let certificate_error =
            |source| TlsError::Certificate { path: self.cert_file.clone(), source };
        let chain = parse_certificates(chain.expose_secret()).map_err(certificate_error)?;
        let validity = certificate::validity(&chain).map_err(certificate_error)?;
        let key = PrivateKeyDer::from_pem_slice(key.expose_secret())
            .map_err(|_| TlsError::Key { path: self.key_file.clone() })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(TlsError::Pair)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Loaded { value: config, validity: Some(validity) })
    }
}
