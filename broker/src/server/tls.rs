//! The TLS identity of the listener.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

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
    /// A file cannot be read or is not PEM.
    #[error("cannot read {path}")]
    File {
        /// Path of the file.
        path: String,
        /// The error of the PEM parser.
        source: rustls_pki_types::pem::Error,
    },
    /// Certificate and key do not belong together, or are not supported.
    #[error("the certificate (tls.cert_file) and the key (tls.key_file) cannot be used together")]
    Pair(#[source] rustls::Error),
}

/// Reads certificate and key, and builds the TLS configuration with ALPN for HTTP/2 and HTTP/1.1.
///
/// # Errors
/// A file cannot be read, or the pair cannot be used.
pub fn server_config(files: &TlsFiles) -> Result<Arc<rustls::ServerConfig>, TlsError> {
    let file_error = |path: &Path| {
        let path = path.display().to_string();
        move |source| TlsError::File { path, source }
    };
    let chain = CertificateDer::pem_file_iter(&files.cert_file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(file_error(&files.cert_file))?;
    let key = PrivateKeyDer::from_pem_file(&files.key_file).map_err(file_error(&files.key_file))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(TlsError::Pair)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
