//! Context of the current request: its metadata, and the fields of its log line.

use std::{cell::RefCell, net::IpAddr};

tokio::task_local! {
    /// The request that this task handles; set by [`crate::http`] and [`crate::gateway`].
    pub static REQUEST: RequestContext;
}

/// Metadata of a request, and the fields that its handler adds to the log line.
#[derive(Debug)]
pub struct RequestContext {
    /// Identifier of the request, returned as `X-Request-Id`.
    pub id: String,
    /// Address of the client; behind trusted proxies from `X-Forwarded-For`.
    pub address: Option<IpAddr>,
    /// `User-Agent`, without control characters and truncated.
    pub user_agent: Option<String>,
    /// Fields for the log line: caller, cause of an error.
    pub notes: RefCell<Vec<(&'static str, String)>>,
}

/// Adds a field to the log line of the current request. Outside of a request it does nothing.
pub fn record_field(field: &'static str, value: impl Into<String>) {
    let _ = REQUEST.try_with(|context| {
        if let Ok(mut notes) = context.notes.try_borrow_mut() {
            notes.push((field, value.into()));
        }
    });
}

/// Runs a future, for example as a spawned task, in a copy of the current request's context: its
/// audit events have the request's id and address.
pub fn in_request_context<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let context = REQUEST.try_with(|context| RequestContext {
        id: context.id.clone(),
        address: context.address,
        user_agent: context.user_agent.clone(),
        notes: RefCell::default(),
    });
    async move {
        match context {
            Ok(context) => REQUEST.scope(context, work).await,
            Err(_) => work.await,
        }
    }
}

/// Identifier of the current request.
pub fn request_id() -> Option<String> {
    REQUEST.try_with(|context| context.id.clone()).ok()
}

/// Client address of the current request.
pub fn request_address() -> Option<IpAddr> {
    REQUEST.try_with(|context| context.address).ok().flatten()
}

/// `User-Agent` of the current request: printable, 200 characters at most.
pub fn request_user_agent() -> Option<String> {
    REQUEST.try_with(|context| context.user_agent.clone()).ok().flatten()
}
