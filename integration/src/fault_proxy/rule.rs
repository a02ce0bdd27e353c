//! Which requests fail, and how.

use std::fmt;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};

/// The head of a request that came to the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// 1 for the first request that the proxy saw.
    pub number: usize,
    /// The method.
    pub method: Method,
    /// The path without the query.
    pub path: String,
    /// The query, empty if there is none.
    pub query: String,
}

impl Seen {
    pub(super) fn new<B>(number: usize, request: &Request<B>) -> Self {
        Self {
            number,
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
        }
    }

    /// Whether it asks for a token of a ServiceAccount (TokenRequest).
    pub fn is_token_request(&self) -> bool {
        self.method == Method::POST
            && self.path.contains("/serviceaccounts/")
            && self.path.ends_with("/token")
    }

    /// Whether it has this method and its path ends so.
    pub fn is(&self, method: &Method, path_end: &str) -> bool {
        self.method == *method && self.path.ends_with(path_end)
    }
}

/// Something to do at a point of a request, with a chance to wait.
type Hook = Arc<dyn Fn(Seen) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// What happens to a request.
#[derive(Clone)]
pub enum Fault {
    /// This answer; the API server never sees the request.
    Answer {
        /// Status.
        status: StatusCode,
        /// Headers.
        headers: HeaderMap,
        /// Body.
        body: String,
    },
    /// The connection ends without an answer; the API server never sees the request.
    CutBefore,
    /// The API server answers, and the connection ends without the answer.
    CutAfter,
    /// The connection ends after so many bytes of the answer's body.
    CutBody(usize),
    /// Something is done before the request goes to the API server.
    Before(Hook),
    /// Something is done when the API server has answered, before the answer goes back.
    After(Hook),
}

impl Fault {
    /// An answer with this status and a Kubernetes `Status` as its body.
    pub fn answer(status: StatusCode) -> Self {
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
        Self::Answer { status, headers, body: body.to_string() }
    }

    /// The same with one more header, if it is an answer.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        if let Self::Answer { headers, .. } = &mut self {
            headers.insert(name, value);
        }
        self
    }

    /// The request waits before it goes to the API server.
    pub fn delay(time: Duration) -> Self {
        Self::before(move |_| tokio::time::sleep(time))
    }

    /// Does this, and waits for it, before the request goes to the API server.
    pub fn before<F>(hook: impl Fn(Seen) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::Before(Arc::new(move |seen| Box::pin(hook(seen))))
    }

    /// Does this, and waits for it, when the API server has answered, before the answer goes back.
    pub fn after<F>(hook: impl Fn(Seen) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::After(Arc::new(move |seen| Box::pin(hook(seen))))
    }
}

/// A fault for some requests: those that satisfy a condition, and of these all or some by count.
pub struct Rule {
    fault: Fault,
    when: Box<dyn Fn(&Seen) -> bool + Send + Sync>,
    which: RangeInclusive<usize>,
    matched: AtomicUsize,
    fired: AtomicUsize,
}

impl Rule {
    /// This fault for every request.
    pub fn new(fault: Fault) -> Self {
        Self {
            fault,
            when: Box::new(|_| true),
            which: 1..=usize::MAX,
            matched: AtomicUsize::new(0),
            fired: AtomicUsize::new(0),
        }
    }

    /// Only for requests that satisfy this.
    #[must_use]
    pub fn when(mut self, when: impl Fn(&Seen) -> bool + Send + Sync + 'static) -> Self {
        self.when = Box::new(when);
        self
    }

    /// Only for the `n`th of them, counted from 1 and from the adding of the rule.
    #[must_use]
    pub fn nth(self, n: usize) -> Self {
        self.within(n..=n)
    }

    /// Only for those whose count, from 1 and from the adding of the rule, is in this range.
    #[must_use]
    pub fn within(mut self, which: RangeInclusive<usize>) -> Self {
        self.which = which;
        self
    }

    /// How often it had its effect.
    pub fn fired(&self) -> usize {
        self.fired.load(Ordering::SeqCst)
    }

    pub(super) fn fault(&self) -> &Fault {
        &self.fault
    }

    /// Counts the request and says whether the fault is for it.
    pub(super) fn fires(&self, seen: &Seen) -> bool {
        if !(self.when)(seen) {
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
