//! The TLS identity of the listener.

use std::{path::Path, sync::Arc};

use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

use crate::config::TlsFiles;

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
