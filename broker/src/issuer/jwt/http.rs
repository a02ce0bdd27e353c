//! HTTP client for other issuers: bounded in time and size, without redirects.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use reqwest::{Certificate, Client, ClientBuilder, redirect::Policy};
use secrecy::ExposeSecret as _;
use url::{Host, Url};

use super::VerificationError;
use crate::base::reload::{FileError, FileSource, Files, Loaded, Reloaded, Reloader};

/// Timeout of a connection, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of a request, from its first byte to the last byte of the response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum bytes of a document: discovery and keys.
const MAX_DOCUMENT_BYTES: usize = 256 * 1024;
/// Maximum bytes of a response about a user. Tokens of somebody in thousands of groups have
/// megabytes, and there may be an access token with the same groups beside the ID token.
const MAX_USER_RESPONSE_BYTES: usize = 5 * 1024 * 1024;

/// An HTTP client with the trust anchors of one issuer. Clones share them.
#[derive(Clone, Debug)]
pub(in crate::issuer) struct HttpClient(Reloaded<Client>);

/// A client of another issuer could not be built.
#[derive(Debug, thiserror::Error)]
pub enum HttpClientError {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The CA file cannot be used.
    #[error("cannot read the certificates in {path} (ca_file): {cause}")]
    Authority {
        /// Path of the file.
        path: String,
        /// The cause as text.
        cause: String,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
}

impl HttpClient {
    /// A client for this issuer. `ca_file` is a PEM file with CA certificates that are trusted in
    /// addition to those of the system; `table` is the configuration's table that names it.
    pub(in crate::issuer) fn new(
        issuer: &Url,
        ca_file: Option<&Path>,
        table: &str,
        reloader: &Reloader,
    ) -> Result<Self, HttpClientError> {
        // Fails only if a provider is installed already, which is the same one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = match ca_file {
            _ if issuer.scheme() == "http" => {
                Reloaded::fixed(build(builder(issuer).tls_certs_only([]))?)
            }
            Some(path) => {
                let source = CaFile { path: path.to_owned(), issuer: issuer.clone() };
                reloader.load(&format!("{table}.ca_file"), source)?
            }
            None => Reloaded::fixed(build(builder(issuer))?),
        };
        Ok(Self(client))
    }

    /// Sends a request about a user and reads the whole response. A 5xx or a 429 is an error, so
    /// that nobody can take it for a denial; the caller handles every other status.
    pub(in crate::issuer) async fn send(
        &self,
        request: http::Request<Vec<u8>>,
    ) -> Result<http::Response<Vec<u8>>, FetchError> {
        self.send_limited(request, MAX_USER_RESPONSE_BYTES).await
    }

    async fn send_limited(
        &self,
        request: http::Request<Vec<u8>>,
        max_bytes: usize,
    ) -> Result<http::Response<Vec<u8>>, FetchError> {
        let host = request.uri().host().unwrap_or_default().to_owned();
        let fault = |error: &reqwest::Error| FetchError(format!("{host}: {}", causes(error)));
        let request = reqwest::Request::try_from(request).map_err(|error| fault(&error))?;
        let mut response = self.0.get().execute(request).await.map_err(|error| fault(&error))?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| fault(&error))? {
            if body.len() + chunk.len() > max_bytes {
                return Err(FetchError(format!("{host} answers with more than {max_bytes} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        let status = response.status();
        if status.is_server_error() || status.as_u16() == 429 {
            return Err(FetchError(format!("{host} answers {status}")));
        }
        let mut answer = http::Response::new(body);
        *answer.status_mut() = status;
        *answer.headers_mut() = std::mem::take(response.headers_mut());
        Ok(answer)
    }

    /// Fetches a document. Every status but 200 is an error.
    pub(in crate::issuer) async fn get(&self, url: &Url) -> Result<Vec<u8>, FetchError> {
        let request = http::Request::get(url.as_str())
            // kube-apiserver answers 406 if the request accepts plain JSON only for its keys.
            .header(http::header::ACCEPT, "application/json, application/jwk-set+json, */*;q=0.1")
            .body(Vec::new())
            .map_err(|error| FetchError(error.to_string()))?;
        let answer = self.send_limited(request, MAX_DOCUMENT_BYTES).await?;
        if answer.status() != http::StatusCode::OK {
            return Err(FetchError(format!("{url} answers {}", answer.status())));
        }
        Ok(answer.into_body())
    }
}

/// A fetch failed or gave no usable response. The text is for the log.
#[derive(Clone, Debug)]
pub(in crate::issuer) struct FetchError(pub(in crate::issuer) String);

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FetchError {}

impl From<FetchError> for VerificationError {
    fn from(error: FetchError) -> Self {
        Self::Unavailable(error.0)
    }
}

/// Whether this URL points to this machine.
pub(in crate::issuer) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

fn builder(issuer: &Url) -> ClientBuilder {
    let builder = Client::builder()
        .user_agent(concat!("tenant-broker/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(REQUEST_TIMEOUT)
        // A redirect could send a code or a secret to another host.
        .redirect(Policy::none());
    if is_loopback(issuer) { builder.no_proxy() } else { builder }
}

fn build(builder: ClientBuilder) -> Result<Client, HttpClientError> {
    builder.build().map_err(|error| HttpClientError::Tls(causes(&error)))
}

/// The CA file of an issuer, and the client that trusts it.
struct CaFile {
    path: PathBuf,
    issuer: Url,
}

impl FileSource for CaFile {
    type Value = Client;
    type Error = HttpClientError;

    const ADVICE: &'static str = "repair the file with the CA certificates (ca_file); it is read \
                                  again by itself";

    fn load(&self, files: &mut Files) -> Result<Loaded<Client>, HttpClientError> {
        let fault = |cause: String| HttpClientError::Authority {
            path: self.path.display().to_string(),
            cause,
        };
        let pem = files.read(&self.path)?;
        let found = Certificate::from_pem_bundle(pem.expose_secret())
            .map_err(|error| fault(causes(&error)))?;
        if found.is_empty() {
            return Err(fault("the file contains no certificates".to_owned()));
        }
        build(builder(&self.issuer).tls_certs_merge(found)).map(Loaded::without_end)
    }
}

/// An error with its causes, but without the URL, whose query may contain a secret.
fn causes(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() { "no answer in time".to_owned() } else { String::new() };
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = if text.is_empty() { error.to_string() } else { format!("{text}: {error}") };
        cause = error.source();
    }
    if text.is_empty() { "the request failed".to_owned() } else { text }
}
