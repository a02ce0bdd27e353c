//! Context of the current request: its metadata, and the fields of its access-log line.

use std::{
    cell::{Cell, RefCell},
    net::IpAddr,
    sync::Arc,
    time::Instant,
};

use http::Method;

tokio::task_local! {
    /// The request that this task handles; set by the outer HTTP stack.
    pub static REQUEST: RequestContext;
}

/// Metadata of a request.
#[derive(Clone, Debug)]
pub struct RequestInfo {
    /// Identifier of the request, returned as `X-Request-Id`.
    pub id: String,
    /// Address of the client; behind trusted proxies from `X-Forwarded-For`.
    pub address: Option<IpAddr>,
    /// `User-Agent`, without control characters and truncated to 200 characters.
    pub user_agent: Option<String>,
    /// HTTP method.
    pub method: Method,
    /// Path, truncated to 300 characters; without the query because that may be secret.
    pub path: String,
    /// When the request arrived.
    pub started_at: Instant,
}

/// A field that handlers add to the access-log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Identifier of the authenticated user.
    UserId,
    SessionId,
    WorkspaceId,
    /// Code of the error.
    Code,
    /// Causes of the error, which the client does not get; several are separated by `; `.
    Cause,
}

/// Number of variants of [`Field`].
const FIELDS: usize = Field::Cause as usize + 1;

/// The recorded fields of a request.
#[derive(Clone, Debug, Default)]
pub struct Fields([Option<String>; FIELDS]);

impl Fields {
    /// The value of a field.
    pub fn get(&self, field: Field) -> Option<&str> {
        self.0[field as usize].as_deref()
    }

    fn set(&mut self, field: Field, value: String) {
        let slot = &mut self.0[field as usize];
        *slot = match slot.take() {
            Some(earlier) if field == Field::Cause => Some(format!("{earlier}; {value}")),
            _ => Some(value),
        };
    }
}

/// The current request, and the fields that its handler added.
#[derive(Debug)]
pub struct RequestContext {
    /// Metadata of the request.
    pub info: Arc<RequestInfo>,
    fields: RefCell<Fields>,
    /// Whether the handler writes the access-log line itself.
    is_log_deferred: Cell<bool>,
}

impl RequestContext {
    /// The context of a request without fields.
    pub fn new(info: Arc<RequestInfo>) -> Self {
        Self { info, fields: RefCell::default(), is_log_deferred: Cell::default() }
    }

    /// Takes the recorded fields; `None` if the handler writes the access-log line itself.
    pub fn take_fields(&self) -> Option<Fields> {
        (!self.is_log_deferred.get()).then(|| self.fields.take())
    }
}

/// Adds a field to the access-log line of the current request. Outside of a request it does nothing.
pub fn record_field(field: Field, value: impl Into<String>) {
    let _ = REQUEST.try_with(|context| {
        if let Ok(mut fields) = context.fields.try_borrow_mut() {
            fields.set(field, value.into());
        }
    });
}

/// Defers the access-log line of the current request: the handler writes it when the response body
/// has ended.
pub fn defer_access_log() {
    let _ = REQUEST.try_with(|context| context.is_log_deferred.set(true));
}

/// Runs a future, for example as a spawned task, in a copy of the current request's context: its
/// audit events have the request's id and address.
pub fn in_request_context<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let context = REQUEST.try_with(|context| RequestContext::new(Arc::clone(&context.info)));
    async move {
        match context {
            Ok(context) => REQUEST.scope(context, work).await,
            Err(_) => work.await,
        }
    }
}

/// Identifier of the current request.
pub fn request_id() -> Option<String> {
    REQUEST.try_with(|context| context.info.id.clone()).ok()
}

/// Client address of the current request.
pub fn request_address() -> Option<IpAddr> {
    REQUEST.try_with(|context| context.info.address).ok().flatten()
}

/// `User-Agent` of the current request: printable, 200 characters at most.
pub fn request_user_agent() -> Option<String> {
    REQUEST.try_with(|context| context.info.user_agent.clone()).ok().flatten()
}
