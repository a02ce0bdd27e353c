//! The HTTP client: timeouts, TLS trust, proxies and the maximum size of a response.

use std::{fmt, path::Path, time::Duration};

use http::header::{DATE, RETRY_AFTER};
use reqwest::{Certificate, redirect};
use serde_json::Value;
use tenant_shared::{Code, Problem};
use tokio::time::Instant;

use crate::{account_key::AccountKey, compatibility, error::Error, failure_message, not_found};

/// Timeout of a connection, name resolution and TLS handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a request from its first byte to the last byte of the response, and of all requests
/// of a call that needs no action of a person.
pub(crate) const TOTAL_TIMEOUT: Duration = Duration::from_secs(15);
/// Timeout of reading all pages of a list.
const LIST_TIMEOUT: Duration = Duration::from_mins(2);
const TIMEOUT_HINT: &str =
    "the broker did not answer in time; check the network, the VPN and the proxy settings";
/// End of texts of the broker. The hint says the same, with the broker's address.
const ASK_ADMINISTRATOR: &str = "; ask an administrator";
const MIB: usize = 1024 * 1024;
/// Maximum size of a response body in bytes, unless the client has another limit.
const MAX_BODY_BYTES: usize = MIB;

/// HTTP client for one broker.
#[derive(Clone)]
pub(crate) struct Http {
    client: reqwest::Client,
    /// Deadline of all requests, however many there are.
    deadline: Option<Instant>,
    /// Timeout of one request.
    request_timeout: Duration,
    /// Maximum size of a response body, in bytes.
    max_body_bytes: usize,
    account: AccountKey,
}

/// A response with its whole body.
pub(crate) type Response = http::Response<Vec<u8>>;

/// No usable response: a network failure, a 5xx, a 429 or a body that is too large.
#[derive(Clone, Debug)]
pub(crate) struct RequestError(pub(crate) Error);

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for RequestError {}

impl Http {
    /// Builds the client; `ca` is a PEM file whose certificates are trusted besides the system's.
    /// Building costs milliseconds, so it is done only when a request has to be sent.
    pub(crate) fn new(account: &AccountKey, ca: Option<&Path>) -> Result<Self, Error> {
        let broker = &account.broker;
        // Fails only if a provider is already installed, which is just as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            // The broker records it with each session, so an operator sees the versions in use.
            .user_agent(concat!("kubectl-tenant/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TOTAL_TIMEOUT)
            // A redirect could send a session or a token to an unintended host.
            .redirect(redirect::Policy::none());
        if broker.is_loopback() {
            builder = builder.no_proxy();
        }
        builder = if broker.is_plain_http() {
            builder.tls_certs_only([])
        } else if let Some(path) = ca {
            builder.tls_certs_merge(certificates(path)?)
        } else {
            builder
        };
        let client = builder.build().map_err(|error| {
            Error::other(format!("cannot set up the HTTP client: {}", innermost_cause(&error)))
        })?;
        Ok(Self {
            client,
            deadline: None,
            request_timeout: TOTAL_TIMEOUT,
            max_body_bytes: MAX_BODY_BYTES,
            account: account.clone(),
        })
    }

    /// Key of the account that the requests are for.
    pub(crate) fn account(&self) -> &AccountKey {
        &self.account
    }

    /// Sets a deadline for all requests of this client.
    pub(crate) fn with_deadline(self, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// Sets the timeout of one request.
    pub(crate) fn with_request_timeout(self, request_timeout: Duration) -> Self {
        Self { request_timeout, ..self }
    }

    /// Sets the maximum size of a response body, in bytes.
    pub(crate) fn with_max_body(self, max_body_bytes: usize) -> Self {
        Self { max_body_bytes, ..self }
    }

    /// Gives this client the timeout of reading all pages of a list.
    pub(crate) fn with_list_timeout(self) -> Self {
        self.with_deadline(Instant::now() + LIST_TIMEOUT)
    }

    /// How long a request may take from now on.
    pub(crate) fn time_left(&self) -> Duration {
        self.deadline.map_or(self.request_timeout, |deadline| {
            deadline.saturating_duration_since(Instant::now()).min(self.request_timeout)
        })
    }

    /// The error for a deadline that passed, whether in one request or in several.
    pub(crate) fn timed_out(&self) -> Error {
        Error::unreachable(format!(
            "the broker {} cannot be reached: no response within the time limit",
            self.account.broker
        ))
        .hint(TIMEOUT_HINT)
    }

    /// Sends a request and reads the whole response. A 5xx or 429 is a [`RequestError`], so that no
    /// caller takes it for a refusal; every other status is returned to the caller.
    pub(crate) async fn send(
        &self,
        request: http::Request<Vec<u8>>,
    ) -> Result<Response, RequestError> {
        let path = request.uri().path().to_owned();
        let unreachable = |error: &reqwest::Error| RequestError(self.unreachable(error));
        let mut request =
            reqwest::Request::try_from(request).map_err(|error| unreachable(&error))?;
        let left = self.time_left();
        if left.is_zero() {
            return Err(RequestError(self.timed_out()));
        }
        *request.timeout_mut() = Some(left);
        let mut received =
            self.client.execute(request).await.map_err(|error| unreachable(&error))?;
        let mut body = Vec::new();
        while let Some(chunk) = received.chunk().await.map_err(|error| unreachable(&error))? {
            body.extend_from_slice(&chunk);
            if body.len() > self.max_body_bytes {
                return Err(RequestError(self.too_large(&path)));
            }
        }
        let mut response = http::Response::new(body);
        *response.status_mut() = received.status();
        *response.headers_mut() = received.headers().clone();
        if response.status().is_server_error() || response.status().as_u16() == 429 {
            return Err(RequestError(self.unavailable(&response)));
        }
        Ok(response)
    }

    /// The error for a response body above the limit. It does not count as an outage, because
    /// another try has the same result.
    fn too_large(&self, path: &str) -> Error {
        Error::other(format!(
            "the answer of {}{path} is larger than {} MiB",
            self.account.broker,
            self.max_body_bytes / MIB
        ))
        .hint("check the address; a proxy or a captive portal may be in between")
    }

    fn unreachable(&self, error: &reqwest::Error) -> Error {
        let why = innermost_cause(error);
        let broker = &self.account.broker;
        // What a parser of HTTP says about a TLS alert, and TLS about an answer without TLS.
        if broker.is_plain_http() && why.contains("invalid HTTP version") {
            return Error::unreachable(format!("{broker} does not answer with HTTP ({why})"))
                .hint("the port seems to speak TLS: use https://");
        }
        if !broker.is_plain_http() && why.contains("InvalidContentType") {
            return Error::unreachable(format!("{broker} does not answer with TLS ({why})"))
                .hint("check host and port; something else than a broker listens there");
        }
        let hint = if why.contains("certificate") {
            "if the broker's certificate comes from a private CA, set TENANT_BROKER_CA to its PEM file"
        } else if error.is_timeout() {
            TIMEOUT_HINT
        } else {
            "check the address, the network, the VPN and the proxy settings"
        };
        Error::unreachable(format!("the broker {broker} cannot be reached: {why}")).hint(hint)
    }

    /// The error for a 5xx or 429: the request was not handled, try again later.
    fn unavailable(&self, response: &Response) -> Error {
        let status = response.status();
        let error = if let Some(problem) = problem(response) {
            Error::unreachable(format!(
                "the broker {} cannot answer now: {}{}",
                self.account.broker,
                problem.detail,
                request_id(&problem)
            ))
        } else {
            let object: Value = serde_json::from_slice(response.body()).unwrap_or_default();
            let text = failure_message::of_status(&object)
                .map(str::to_owned)
                .or_else(|| failure_message::of_model_services(response.body()))
                .map_or(String::new(), |text| format!(": {text}"));
            Error::unreachable(format!(
                "the broker {} answered {status}{text}",
                self.account.broker
            ))
        };
        match retry_after(response) {
            Some(wait) => Error { retry_after: Some(wait), ..error }
                .hint(format!("try again in {} s", wait.as_secs())),
            None => error.hint("try again in a while"),
        }
    }

    /// The error for a refusal, with advice if the broker and this plugin do not work together.
    pub(crate) fn refusal(&self, response: &Response) -> Error {
        self.refusal_at("", response)
    }

    /// Like [`Self::refusal`], for a request to this path of the API.
    pub(crate) fn refusal_at(&self, path: &str, response: &Response) -> Error {
        let error = self.explain_refusal(path, response);
        match compatibility::advice(response.headers(), &self.account.broker) {
            Some(advice) => error.also_hint(&advice),
            None => error,
        }
    }

    /// Only a response in the broker's own format counts as a refusal. Any other response came from
    /// a proxy or a captive portal and is no reason to ask for a sign-in.
    fn explain_refusal(&self, path: &str, response: &Response) -> Error {
        let Some(problem) = problem(response) else {
            return Error::unreachable(format!(
                "{} answered {}, but not as a tenant broker does",
                self.account.broker,
                response.status()
            ))
            .hint("check the address; a proxy or a captive portal may be in between");
        };
        let (id, code) = (request_id(&problem), problem.code());
        let error = match code {
            Code::Unauthenticated => self.account.sign_in_error(problem.detail),
            Code::WorkspaceSuspended => {
                // The text says whether it is the workspace or the tenant.
                let what = problem.detail.strip_suffix(ASK_ADMINISTRATOR);
                Error::refused(format!("{}{id}", what.unwrap_or(&problem.detail)))
                    .hint(format!("ask an administrator of {}", self.account.broker))
            }
            Code::WorkspaceNotReady => {
                let error = Error::refused(format!("{}{id}", problem.detail));
                if has_advice(&problem.detail) {
                    error
                } else {
                    error.hint("try again in a few seconds")
                }
            }
            Code::UnknownTier => Error::refused(format!("{}{id}", problem.detail))
                .hint("choose another one with --tier"),
            Code::TierConflict => Error::refused(format!("{}{id}", problem.detail))
                .hint("leave out --tier to use the workspace as it is"),
            // The text says what to do.
            Code::NotTenantOwner
            | Code::NamespaceQuotaExceeded
            | Code::NamespaceExists
            | Code::TenantNotActive
            | Code::TenantExists
            | Code::TenantNotEmpty
            | Code::TenantChanged
            | Code::FieldConflict => Error::refused(format!("{}{id}", problem.detail)),
            Code::NotFound => {
                let error = Error::refused(format!("not found: {}{id}", problem.detail));
                match not_found::hint(path, &problem.detail) {
                    Some(hint) => error.hint(hint),
                    None => error,
                }
            }
            _ => Error::refused(format!(
                "the broker refused ({}): {}{id}",
                problem.code, problem.detail
            )),
        };
        Error { code: Some(code), ..error }
    }
}

/// Seconds by which the server's clock is ahead of `now`, from the `Date` header (RFC 9110
/// section 6.6.1).
pub(crate) fn clock_offset(response: &Response, now: i64) -> Option<i64> {
    let date = response.headers().get(DATE)?.to_str().ok()?;
    let date = jiff::fmt::rfc2822::parse(date).ok()?;
    Some(date.timestamp().as_second() - now)
}

fn problem(response: &Response) -> Option<Problem> {
    serde_json::from_slice(response.body()).ok()
}

/// Whether a text of the broker says what to do, which it does after a semicolon.
fn has_advice(detail: &str) -> bool {
    detail.contains("; ")
}

fn request_id(problem: &Problem) -> String {
    problem.request_id.as_ref().map(|id| format!(" (request {id})")).unwrap_or_default()
}

fn certificates(path: &Path) -> Result<Vec<Certificate>, Error> {
    let hint = "TENANT_BROKER_CA names a PEM file with the certificate of the broker's CA";
    let pem = std::fs::read(path)
        .map_err(|error| Error::file("read the CA file", path, &error).hint(hint))?;
    match Certificate::from_pem_bundle(&pem) {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => {
            Err(Error::other(format!("{} holds no certificate in PEM form", path.display()))
                .hint(hint))
        }
    }
}

/// The innermost cause of an error, which says most. The outer ones only quote it.
fn innermost_cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no response within the time limit".to_owned();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// `Retry-After` of a response, if it is a number of seconds (RFC 9110 section 10.2.3).
fn retry_after(response: &Response) -> Option<Duration> {
    let seconds: u32 = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;
    use crate::{broker_url::BrokerUrl, error::Kind};

    /// Sends a request, with this limit, to a server whose response has a body of `bytes` bytes.
    async fn get(bytes: usize, limit: Option<usize>) -> Result<Response, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                assert_ne!(client.read_buf(&mut head).await.unwrap(), 0, "half a request");
            }
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
            client.write_all(head.as_bytes()).await.unwrap();
            // The client closes the connection when the body is too large.
            let _ = client.write_all(&vec![b'x'; bytes]).await;
        });
        let account = AccountKey::unnamed(BrokerUrl::parse(&url).unwrap());
        let mut http = Http::new(&account, None).unwrap();
        if let Some(limit) = limit {
            http = http.with_max_body(limit);
        }
        let request = http::Request::get(format!("{url}/list?all=1")).body(Vec::new()).unwrap();
        http.send(request).await.map_err(|RequestError(error)| error)
    }

    #[test]
    fn a_text_with_advice_has_no_other_hint() {
        let account = AccountKey::unnamed(BrokerUrl::parse("https://b.example").unwrap());
        let http = Http::new(&account, None).unwrap();
        for (detail, hint) in [
            ("the workspace is provisioning", Some("try again in a few seconds")),
            ("API servers accept old tokens for 10 s; resume again in 7 s", None),
            ("the user is no member; have the user named by the Tenant, and sign in again", None),
        ] {
            let problem = serde_json::json!({
                "title": "T", "status": 409, "code": "workspace_not_ready", "detail": detail,
            });
            let mut response = Response::new(problem.to_string().into_bytes());
            *response.status_mut() = http::StatusCode::CONFLICT;
            let error = http.refusal(&response);
            assert_eq!((&*error.message, error.hint.as_deref()), (detail, hint));
        }
    }

    #[tokio::test]
    async fn a_body_above_the_limit_is_an_error_that_names_the_limit() {
        for (bytes, limit, mib) in [(MIB, None, 1), (3 * MIB, Some(3 * MIB), 3)] {
            assert_eq!(get(bytes, limit).await.unwrap().body().len(), bytes);
            let error = get(bytes + 1, limit).await.unwrap_err();
            assert_eq!(error.kind, Kind::Other);
            let text = format!("/list is larger than {mib} MiB");
            assert!(error.message.ends_with(&text), "{error}");
        }
    }
}
