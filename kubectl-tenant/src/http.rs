//! The one HTTP client: time limits, TLS trust, proxies, and what an answer may weigh.

use std::{fmt, path::Path, time::Duration};

use http::header::{DATE, RETRY_AFTER};
use reqwest::{Certificate, redirect};
use tenant_shared::{Code, Problem};
use tokio::time::Instant;

use crate::{error::Error, identity::Identity};

/// Longest time for a connection, name resolution and TLS included.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest time for a request from its first byte to the answer's last, and for all requests of a
/// call that nobody has to do anything for.
pub(crate) const WHOLE: Duration = Duration::from_secs(15);
/// Longest time for all pages of a list.
const LIST: Duration = Duration::from_mins(2);
const SLOW_HINT: &str =
    "it did not answer in time; check the network, the VPN and the proxy settings";
/// Larger answers are not for us, in bytes.
const LARGEST: usize = 1024 * 1024;

/// Speaks HTTP with one broker.
#[derive(Clone)]
pub(crate) struct Http {
    client: reqwest::Client,
    /// When there has to be an end, however many requests it takes.
    deadline: Option<Instant>,
    identity: Identity,
}

/// What came back.
pub(crate) type Answer = http::Response<Vec<u8>>;

/// Why nothing usable came back: the network, or an answer that says "not now".
#[derive(Clone, Debug)]
pub(crate) struct Failure(pub(crate) Error);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Failure {}

impl Http {
    /// Builds the client; `ca` is a PEM file whose certificates are trusted besides the system's.
    /// Costs milliseconds, so it is built only when something has to be asked.
    pub(crate) fn new(identity: &Identity, ca: Option<&Path>) -> Result<Self, Error> {
        let broker = &identity.broker;
        // Fails only if it is already set, which is what is wanted.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("kubectl-tenant/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            .timeout(WHOLE)
            // A redirect would carry a session or a token where nobody meant it to go.
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
            Error::other(format!("cannot set up the HTTP client: {}", causes(&error)))
        })?;
        Ok(Self { client, deadline: None, identity: identity.clone() })
    }

    /// The same client with an end to all of its requests.
    pub(crate) fn until(self, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// The same client with the time that all pages of a list may take.
    pub(crate) fn for_a_list(self) -> Self {
        self.until(Instant::now() + LIST)
    }

    /// How long a request may take from now on.
    pub(crate) fn time_left(&self) -> Duration {
        self.deadline
            .map_or(WHOLE, |deadline| deadline.saturating_duration_since(Instant::now()).min(WHOLE))
    }

    /// The failure of a broker that took too long, request by request.
    pub(crate) fn too_slow(&self) -> Error {
        Error::unreachable(format!(
            "the broker {} cannot be reached: no answer within the time limit",
            self.identity.broker
        ))
        .hint(SLOW_HINT)
    }

    /// Sends a request and reads the whole answer. A 5xx is a [`Failure`], so that nobody can take
    /// it for a no; every other status is the caller's to read.
    pub(crate) async fn send(&self, request: http::Request<Vec<u8>>) -> Result<Answer, Failure> {
        let path = request.uri().path().to_owned();
        let unreachable = |error: &reqwest::Error| Failure(self.unreachable(error));
        let mut request =
            reqwest::Request::try_from(request).map_err(|error| unreachable(&error))?;
        let left = self.time_left();
        if left.is_zero() {
            return Err(Failure(self.too_slow()));
        }
        *request.timeout_mut() = Some(left);
        let mut response =
            self.client.execute(request).await.map_err(|error| unreachable(&error))?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| unreachable(&error))? {
            body.extend_from_slice(&chunk);
            if body.len() > LARGEST {
                return Err(Failure(Error::unreachable(format!(
                    "{}{path} answered with more than {LARGEST} bytes",
                    self.identity.broker
                ))));
            }
        }
        let mut answer = http::Response::new(body);
        *answer.status_mut() = response.status();
        *answer.headers_mut() = response.headers().clone();
        if answer.status().is_server_error() || answer.status().as_u16() == 429 {
            return Err(Failure(self.not_now(&answer)));
        }
        Ok(answer)
    }

    fn unreachable(&self, error: &reqwest::Error) -> Error {
        let why = causes(error);
        let hint = if why.contains("certificate") {
            "if the broker's certificate comes from a private CA, set TENANT_BROKER_CA to its PEM file"
        } else if error.is_timeout() {
            SLOW_HINT
        } else {
            "check the address, the network, the VPN and the proxy settings"
        };
        Error::unreachable(format!("the broker {} cannot be reached: {why}", self.identity.broker))
            .hint(hint)
    }

    /// 5xx and 429: whatever was asked is not answered, try again later.
    fn not_now(&self, answer: &Answer) -> Error {
        let status = answer.status();
        let error = match problem(answer) {
            Some(problem) => Error::unreachable(format!(
                "the broker {} cannot answer now: {}{}",
                self.identity.broker,
                problem.detail,
                request_id(&problem)
            )),
            None => {
                Error::unreachable(format!("the broker {} answered {status}", self.identity.broker))
            }
        };
        match answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()) {
            Some(seconds) if seconds.bytes().all(|byte| byte.is_ascii_digit()) => {
                error.hint(format!("try again in {seconds} s"))
            }
            _ => error.hint("try again in a while"),
        }
    }

    /// What a refusal means: only the broker's own words count. An answer that is not in the
    /// broker's form came from something in between, and is no reason to send anybody to a login.
    pub(crate) fn refusal(&self, answer: &Answer) -> Error {
        let Some(problem) = problem(answer) else {
            return Error::unreachable(format!(
                "{} answered {}, but not as a tenant broker does",
                self.identity.broker,
                answer.status()
            ))
            .hint("check the address; a proxy or a captive portal may be in between");
        };
        let id = request_id(&problem);
        match problem.code() {
            Code::Unauthenticated => Error::sign_in(&self.identity, problem.detail),
            Code::WorkspaceSuspended => Error::refused(format!("the workspace is suspended{id}"))
                .hint(format!("ask an administrator of {}", self.identity.broker)),
            Code::WorkspaceNotReady => {
                Error::refused(format!("{}{id}", problem.detail)).hint("try again in a few seconds")
            }
            Code::UnknownTier => Error::refused(format!("{}{id}", problem.detail))
                .hint("choose another one with --tier"),
            Code::TierConflict => Error::refused(format!("{}{id}", problem.detail))
                .hint("leave out --tier to use the workspace as it is"),
            Code::NotFound => Error::refused(format!("not found: {}{id}", problem.detail))
                .hint("see what is yours: kubectl tenant workspaces"),
            _ => Error::refused(format!(
                "the broker refused ({}): {}{id}",
                problem.code, problem.detail
            )),
        }
    }
}

/// Seconds by which the server's clock is ahead of `now`, from the `Date` header (RFC 9110
/// section 6.6.1).
pub(crate) fn clock_offset(answer: &Answer, now: i64) -> Option<i64> {
    let date = answer.headers().get(DATE)?.to_str().ok()?;
    let date = jiff::fmt::rfc2822::parse(date).ok()?;
    Some(date.timestamp().as_second() - now)
}

fn problem(answer: &Answer) -> Option<Problem> {
    serde_json::from_slice(answer.body()).ok()
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

/// The innermost cause, which says most, without repeating what the outer ones quote of it.
fn causes(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer within the time limit".to_owned();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
