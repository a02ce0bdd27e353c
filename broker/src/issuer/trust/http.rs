//! How the broker asks other issuers: bounded in time and size, no redirects.

use std::{fmt, path::Path, time::Duration};

use reqwest::{Certificate, Client, redirect::Policy};
use url::{Host, Url};

use super::Distrust;

/// Longest time for a connection, TLS included.
const CONNECT: Duration = Duration::from_secs(3);
/// Longest time for a request from its first byte to the answer's last.
const WHOLE: Duration = Duration::from_secs(5);
/// Bytes of an answer at most.
const LARGEST: usize = 256 * 1024;

/// A client that trusts what one issuer needs.
#[derive(Clone, Debug)]
pub(in crate::issuer) struct Http(Client);

/// A client cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The CA's file.
    #[error("cannot read the certificates in {path} (ca_file): {cause}")]
    Authority {
        /// The file.
        path: String,
        /// Why.
        cause: String,
    },
    /// TLS.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
}

impl Http {
    /// A client for this issuer. `ca_file` is a PEM file with certificates that are trusted beside
    /// the system's.
    pub(in crate::issuer) fn new(issuer: &Url, ca_file: Option<&Path>) -> Result<Self, HttpError> {
        // Fails only if there is one already, which is this one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("tenant-broker/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            .timeout(WHOLE)
            // A redirect would carry a code or a secret where nobody meant it to go.
            .redirect(Policy::none());
        if is_loopback(issuer) {
            builder = builder.no_proxy();
        }
        builder = match ca_file {
            _ if issuer.scheme() == "http" => builder.tls_certs_only([]),
            Some(path) => builder.tls_certs_merge(authorities(path)?),
            None => builder,
        };
        builder.build().map(Self).map_err(|error| HttpError::Tls(causes(&error)))
    }

    /// Sends a request and reads the whole answer. A 5xx and a 429 are an outage, so that nobody
    /// can take them for a no; every other status is the caller's to read.
    pub(in crate::issuer) async fn send(
        &self,
        request: http::Request<Vec<u8>>,
    ) -> Result<http::Response<Vec<u8>>, Outage> {
        let host = request.uri().host().unwrap_or_default().to_owned();
        let fault = |error: &reqwest::Error| Outage(format!("{host}: {}", causes(error)));
        let request = reqwest::Request::try_from(request).map_err(|error| fault(&error))?;
        let mut response = self.0.execute(request).await.map_err(|error| fault(&error))?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| fault(&error))? {
            if body.len() + chunk.len() > LARGEST {
                return Err(Outage(format!("{host} answers with more than {LARGEST} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        let status = response.status();
        if status.is_server_error() || status.as_u16() == 429 {
            return Err(Outage(format!("{host} answers {status}")));
        }
        let mut answer = http::Response::new(body);
        *answer.status_mut() = status;
        *answer.headers_mut() = std::mem::take(response.headers_mut());
        Ok(answer)
    }

    /// Reads a document. Everything but a 200 is an outage.
    pub(in crate::issuer) async fn get(&self, url: &Url) -> Result<Vec<u8>, Outage> {
        let request = http::Request::get(url.as_str())
            // kube-apiserver answers 406 to whoever takes its keys as plain JSON only.
            .header(http::header::ACCEPT, "application/json, application/jwk-set+json, */*;q=0.1")
            .body(Vec::new())
            .map_err(|error| Outage(error.to_string()))?;
        let answer = self.send(request).await?;
        if answer.status() != http::StatusCode::OK {
            return Err(Outage(format!("{url} answers {}", answer.status())));
        }
        Ok(answer.into_body())
    }
}

/// Nothing usable came back. The text is for the log.
#[derive(Clone, Debug)]
pub(in crate::issuer) struct Outage(pub(in crate::issuer) String);

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Outage {}

impl From<Outage> for Distrust {
    fn from(outage: Outage) -> Self {
        Self::Outage(outage.0)
    }
}

/// Whether this address is on this machine.
pub(in crate::issuer) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

fn authorities(path: &Path) -> Result<Vec<Certificate>, HttpError> {
    let fault = |cause: String| HttpError::Authority { path: path.display().to_string(), cause };
    let pem = std::fs::read(path).map_err(|error| fault(error.to_string()))?;
    let found = Certificate::from_pem_bundle(&pem).map_err(|error| fault(causes(&error)))?;
    if found.is_empty() { Err(fault("there are none in it".to_owned())) } else { Ok(found) }
}

/// An error and its causes without the URL, whose query may be secret.
fn causes(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() { "no answer in time".to_owned() } else { String::new() };
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = if text.is_empty() { error.to_string() } else { format!("{text}: {error}") };
        cause = error.source();
    }
    if text.is_empty() { "the request failed".to_owned() } else { text }
}
