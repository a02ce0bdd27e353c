//! Context of the current request: its metadata, and the fields of its access-log line.

use std::{
    cell::{Cell, RefCell},
    net::IpAddr,
    sync::Arc,
    time::Instant,
};

use http::Method;
use uuid::Uuid;

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
    /// Identifier of the user.
    UserId,
    SessionId,
    WorkspaceId,
    /// The namespace of a request of model services.
    Namespace,
    /// Code of the error.
    Code,
    /// Causes of the error, which the client does not get; several are separated by `; `.
    Cause,
}

/// Number of variants of [`Field`].
const FIELDS: usize = Field::Cause as usize + 1;
/// The variants of [`Field`], in the order of their values.
const ALL_FIELDS: [Field; FIELDS] = [
    Field::UserId,
    Field::SessionId,
    Field::WorkspaceId,
    Field::Namespace,
    Field::Code,
    Field::Cause,
];

/// The recorded fields of a request.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    texts: [Option<String>; FIELDS],
    upstream_calls: u32,
}

impl Fields {
    /// The value of a field.
    pub fn get(&self, field: Field) -> Option<&str> {
        self.texts[field as usize].as_deref()
    }

    /// Calls to the API server that model services made for the request; `None` if there were none.
    pub fn upstream_calls(&self) -> Option<u32> {
        (self.upstream_calls > 0).then_some(self.upstream_calls)
    }

    fn set(&mut self, field: Field, value: String) {
        let slot = &mut self.texts[field as usize];
        *slot = match slot.take() {
            Some(earlier) if field == Field::Cause => Some(format!("{earlier}; {value}")),
            _ => Some(value),
        };
    }

    /// Sets the fields that the other ones have.
    fn merge(&mut self, other: Self) {
        for (field, value) in ALL_FIELDS.into_iter().zip(other.texts) {
            if let Some(value) = value {
                self.set(field, value);
            }
        }
    }
}

/// Identifiers of the authenticated caller.
#[derive(Clone, Copy, Debug)]
struct CallerIds {
    user: Uuid,
    session: Uuid,
}

/// The current request, and the fields that its handler added.
#[derive(Debug)]
pub struct RequestContext {
    /// Metadata of the request.
    pub info: Arc<RequestInfo>,
    caller: Cell<Option<CallerIds>>,
    fields: RefCell<Fields>,
    /// Calls to the API server that model services made for the request.
    upstream_calls: Cell<u32>,
    /// Whether the handler writes the access-log line itself.
    is_log_deferred: Cell<bool>,
}

impl RequestContext {
    /// The context of a request without fields.
    pub fn new(info: Arc<RequestInfo>) -> Self {
        Self {
            info,
            caller: Cell::default(),
            fields: RefCell::default(),
            upstream_calls: Cell::default(),
            is_log_deferred: Cell::default(),
        }
    }

    /// The context of a request that no client sent.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Self::new(Arc::new(RequestInfo {
            id: "r-1".to_owned(),
            address: None,
            user_agent: None,
            method: Method::GET,
            path: "/".to_owned(),
            started_at: Instant::now(),
        }))
    }

    /// Whether the credential of the request belongs to a session.
    pub fn is_authenticated(&self) -> bool {
        self.caller.get().is_some()
    }

    /// Takes the recorded fields; `None` if the handler writes the access-log line itself. The
    /// identifiers of the caller are among them, unless the handler recorded others.
    pub fn drain_fields(&self) -> Option<Fields> {
        if self.is_log_deferred.get() {
            return None;
        }
        let mut fields = self.fields.take();
        fields.upstream_calls = self.upstream_calls.get();
        if let Some(caller) = self.caller.get() {
            for (field, id) in [(Field::UserId, caller.user), (Field::SessionId, caller.session)] {
                if fields.get(field).is_none() {
                    fields.set(field, id.to_string());
                }
            }
        }
        Some(fields)
    }
}

/// Records user and session of the authenticated caller of the current request. It allocates
/// nothing, because it is called for each request of the gateway, and the line of a forwarded
/// request has the identifiers from elsewhere. Outside of a request it does nothing.
pub fn record_caller(user: Uuid, session: Uuid) {
    let _ = REQUEST.try_with(|context| context.caller.set(Some(CallerIds { user, session })));
}

/// Adds a field to the access-log line of the current request. Outside of a request it does nothing.
pub fn record_field(field: Field, value: impl Into<String>) {
    let _ = REQUEST.try_with(|context| {
        if let Ok(mut fields) = context.fields.try_borrow_mut() {
            fields.set(field, value.into());
        }
    });
}

/// Counts a call to the API server for the current request. Outside of a request it does nothing.
pub fn record_upstream_call() {
    let _ = REQUEST.try_with(|context| {
        context.upstream_calls.set(context.upstream_calls.get().saturating_add(1));
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

/// Runs a future as a task, which goes on if the current request is dropped because its client
/// disconnected. Its audit events have the request's id and address. The fields that it records are
/// added to the access-log line of the request; if that is written already, the cause of a failure
/// has a line of its own.
///
/// # Errors
/// The future panicked, or the runtime stops.
pub async fn spawn_in_request_context<F>(work: F) -> Result<F::Output, tokio::task::JoinError>
where
    F: Future<Output: Send> + Send + 'static,
{
    let request = Arc::new(());
    let has_ended = Arc::downgrade(&request);
    let work = in_request_context(async move {
        let output = work.await;
        let fields = REQUEST.try_with(RequestContext::drain_fields).ok().flatten();
        let cause = fields.as_ref().and_then(|fields| fields.get(Field::Cause));
        if let Some(cause) = cause
            && has_ended.strong_count() == 0
        {
            tracing::warn!(
                request_id = request_id(),
                cause,
                "a change failed whose client had disconnected"
            );
        }
        (output, fields)
    });
    let (output, fields) = tokio::spawn(work).await?;
    drop(request);
    let fields = fields.unwrap_or_default();
    let _ = REQUEST.try_with(|context| {
        context.upstream_calls.update(|calls| calls.saturating_add(fields.upstream_calls));
        if let Ok(mut all) = context.fields.try_borrow_mut() {
            all.merge(fields);
        }
    });
    Ok(output)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_is_in_the_fields_unless_the_handler_records_another_user() {
        let (user, session, other) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
        let recorded = |handler: &dyn Fn()| {
            REQUEST.sync_scope(RequestContext::for_tests(), || {
                handler();
                REQUEST.with(RequestContext::drain_fields)
            })
        };
        let authenticated = recorded(&|| {
            record_caller(user, session);
            assert!(REQUEST.with(RequestContext::is_authenticated));
        });
        let authenticated = authenticated.unwrap();
        assert_eq!(authenticated.get(Field::UserId), Some(user.to_string().as_str()));
        assert_eq!(authenticated.get(Field::SessionId), Some(session.to_string().as_str()));
        let signed_in = recorded(&|| {
            record_field(Field::UserId, other);
            record_caller(user, session);
        });
        let signed_in = signed_in.unwrap();
        assert_eq!(signed_in.get(Field::UserId), Some(other.to_string().as_str()));
        assert_eq!(signed_in.get(Field::SessionId), Some(session.to_string().as_str()));
        let anonymous = recorded(&|| {
            record_field(Field::Code, "unauthenticated");
            assert!(!REQUEST.with(RequestContext::is_authenticated));
        });
        let anonymous = anonymous.unwrap();
        assert_eq!((anonymous.get(Field::UserId), anonymous.upstream_calls()), (None, None));
        let with_calls = recorded(&|| {
            record_upstream_call();
            record_upstream_call();
        });
        assert_eq!(with_calls.unwrap().upstream_calls(), Some(2));
        let forwarded = recorded(&|| {
            record_caller(user, session);
            defer_access_log();
        });
        assert!(forwarded.is_none());
    }

    #[tokio::test]
    async fn a_spawned_task_goes_on_without_its_request_and_adds_fields_to_it() {
        let (resume, resumed) = tokio::sync::oneshot::channel::<()>();
        let (ended, end) = tokio::sync::oneshot::channel();
        let work = spawn_in_request_context(async move {
            resumed.await.unwrap();
            ended.send(request_id()).unwrap();
        });
        let dropped = REQUEST.scope(RequestContext::for_tests(), async {
            let _ = tokio::time::timeout(std::time::Duration::ZERO, work).await;
        });
        dropped.await;
        resume.send(()).unwrap();
        assert_eq!(end.await.unwrap().as_deref(), Some("r-1"));

        let recorded = REQUEST.scope(RequestContext::for_tests(), async {
            record_field(Field::Cause, "first");
            let work = async { record_field(Field::Cause, "second") };
            spawn_in_request_context(work).await.unwrap();
            REQUEST.with(RequestContext::drain_fields).unwrap()
        });
        for (field, index) in ALL_FIELDS.into_iter().zip(0..) {
            assert_eq!(field as usize, index);
        }
        assert_eq!(recorded.await.get(Field::Cause), Some("first; second"));
    }
}
