//! The HTTP client of the harness.

use std::time::Duration;

use anyhow::{Context, Result};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, ClientBuilder};

/// Returns a client that trusts only this CA (PEM), follows no redirect and uses no proxy of the
/// environment. A response may pause for a minute at most.
///
/// # Errors
/// The text is no certificate.
pub fn http_client(authority: Option<&str>) -> Result<Client> {
    builder(authority)?.build().context("build an HTTP client")
}

/// Returns the same client for HTTP/1.1 alone, for example for upgrades, which HTTP/2 does not have.
///
/// # Errors
/// The text is no certificate.
pub fn http1_client(authority: Option<&str>) -> Result<Client> {
    builder(authority)?.http1_only().build().context("build an HTTP/1.1 client")
}

/// Returns the same client's builder.
pub(crate) fn builder(authority: Option<&str>) -> Result<ClientBuilder> {
    use_ring();
    let roots = authority
        .map(|pem| Certificate::from_pem(pem.as_bytes()))
        .transpose()
        .context("read the CA's certificate")?;
    Ok(Client::builder()
        .tls_certs_only(roots)
        .redirect(Policy::none())
        .no_proxy()
        .connect_timeout(Duration::from_secs(5))
        .read_timeout(Duration::from_mins(1))
        .user_agent("kubectl-tenant-integration"))
}

/// Makes *ring* the TLS provider of this process; later calls have no effect.
pub(crate) fn use_ring() {
    // The error only says that a provider is installed already, which is this one.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
