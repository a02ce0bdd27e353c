//! Rules of the fault proxy: which requests fail, and how.

use std::fmt;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use sha2::{Digest as _, Sha256};

/// The head of a request that reached the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// Sequence number, 1 for the first request.
    pub number: usize,
    /// The method.
    pub method: Method,
    /// The path without the query.
    pub path: String,
    /// The query, empty if there is none.
    pub query: String,
    /// The headers. `Authorization` has no value.
    pub headers: HeaderMap,
    /// The first four characters of the token, which say whose kind it is; empty without a token.
    pub token_start: String,
    /// SHA-256 of the token.
    token_hash: [u8; 32],
}

impl RecordedRequest {
    pub(super) fn new<B>(number: usize, request: &Request<B>) -> Self {
        let mut headers = request.headers().clone();
        let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = authorization.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or("");
        let (token_start, token_hash) = (token.chars().take(4).collect(), hash(token));
        if let Some(authorization) = headers.get_mut(AUTHORIZATION) {
            *authorization = HeaderValue::from_static("");
        }
        Self {
            number,
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            headers,
            token_start,
            token_hash,
        }
    }

    /// Whether it is sent with this token.
    pub fn has_token(&self, token: &str) -> bool {
        self.token_hash == hash(token)
    }

    /// Whether the broker sends it with its own credential, which is a certificate, and not with the
    /// token of a ServiceAccount.
    pub fn is_as_broker(&self) -> bool {
        !self.headers.contains_key(AUTHORIZATION)
    }

    /// Whether it requests a token of a ServiceAccount (TokenRequest).
    pub fn is_token_request(&self) -> bool {
        self.method == Method::POST
            && self.path.contains("/serviceaccounts/")
            && self.path.ends_with("/token")
    }

    /// Whether it has this method and its path ends with `path_end`.
    pub fn is(&self, method: &Method, path_end: &str) -> bool {
        self.method == *method && self.path.ends_with(path_end)
    }
}

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// An async callback at a point of a request; the request waits for it.
type Hook = Arc<dyn Fn(RecordedRequest) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// The effect on a request.
#[derive(Clone)]
pub enum Fault {
    /// This response; the API server never sees the request.
    Respond {
        /// HTTP status.
        status: StatusCode,
        /// Response headers.
        headers: HeaderMap,
        /// Response body.
        body: String,
    },
    /// The connection ends without a response; the API server never sees the request.
    CutBefore,
    /// The API server responds, and the connection ends without the response.
    CutAfter,
    /// The connection ends after this number of bytes of the response body.
    CutBody(usize),
    /// A callback runs before the request goes to the API server.
    Before(Hook),
    /// A callback runs after the API server has responded, before the response goes back.
    After(Hook),
}

impl Fault {
    /// Returns a response with this status and a Kubernetes `Status` as its body.
    pub fn respond(status: StatusCode) -> Self {
        let body = serde_json::json!({
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": "a fault that the harness injected",
            "reason": status.canonical_reason().unwrap_or_default().replace(' ', ""),
            "code": status.as_u16(),
        });
        let content_type = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(http::header::CONTENT_TYPE, content_type)]);
        Self::Respond { status, headers, body: body.to_string() }
    }

    /// Adds a header, if the fault is a response.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        if let Self::Respond { headers, .. } = &mut self {
            headers.insert(name, value);
        }
        self
    }

    /// Delays the request before it goes to the API server.
    pub fn delay(time: Duration) -> Self {
        Self::before(move |_| tokio::time::sleep(time))
    }

    /// Runs this callback, and waits for it, before the request goes to the API server.
    pub fn before<F>(hook: impl Fn(RecordedRequest) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::Before(Arc::new(move |request| Box::pin(hook(request))))
    }

    /// Runs this callback, and waits for it, after the API server has responded and before the
    /// response goes back.
    pub fn after<F>(hook: impl Fn(RecordedRequest) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::After(Arc::new(move |request| Box::pin(hook(request))))
    }
}

/// A fault for some requests: those that satisfy a condition, and of these all or some by count.
pub struct Rule {
    fault: Fault,
    when: Box<dyn Fn(&RecordedRequest) -> bool + Send + Sync>,
    which: RangeInclusive<usize>,
    matched: AtomicUsize,
    fired: AtomicUsize,
}

impl Rule {
    /// Creates a rule with this fault for every request.
    pub fn new(fault: Fault) -> Self {
        Self {
            fault,
            when: Box::new(|_| true),
            which: 1..=usize::MAX,
            matched: AtomicUsize::new(0),
            fired: AtomicUsize::new(0),
        }
    }

    /// Restricts the rule to requests that satisfy this condition.
    #[must_use]
    pub fn when(mut self, when: impl Fn(&RecordedRequest) -> bool + Send + Sync + 'static) -> Self {
        self.when = Box::new(when);
        self
    }

    /// Restricts the rule to the `n`th matching request, counted from 1 since the rule was added.
    #[must_use]
    pub fn nth(self, n: usize) -> Self {
        self.within(n..=n)
    }

    /// Restricts the rule to matching requests whose count, from 1 since the rule was added, is in
    /// this range.
    #[must_use]
    pub fn within(mut self, which: RangeInclusive<usize>) -> Self {
        self.which = which;
        self
    }

    /// Returns how often the rule had its effect.
    pub fn fired(&self) -> usize {
        self.fired.load(Ordering::SeqCst)
    }

    pub(super) fn fault(&self) -> &Fault {
        &self.fault
    }

    /// Counts the request and returns whether the rule fires on it.
    pub(super) fn fires(&self, request: &RecordedRequest) -> bool {
        if !(self.when)(request) {
            return false;
        }
        let count = self.matched.fetch_add(1, Ordering::SeqCst) + 1;
        let fires = self.which.contains(&count);
        if fires {
            self.fired.fetch_add(1, Ordering::SeqCst);
        }
        fires
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("which", &self.which)
            .field("matched", &self.matched)
            .field("fired", &self.fired)
            .finish_non_exhaustive()
    }
}
