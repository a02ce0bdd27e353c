//! The access log: one line for each request, with a level by the status of the response.

use tenant_shared::Code;
use uuid::Uuid;

use crate::base::request_context::{Field, Fields, RequestInfo};

/// A line of the access log.
#[derive(Debug)]
pub struct AccessLogLine<'a> {
    pub message: &'static str,
    pub request: &'a RequestInfo,
    /// Status of the response; 0 if there is none.
    pub status: u16,
    /// The fields that the handler recorded, or those of a forwarded request.
    pub details: Details<'a>,
}

/// The part of a line that depends on who responded.
#[derive(Debug)]
pub enum Details<'a> {
    /// The broker responded; these fields were recorded by the handler.
    Handled(&'a Fields),
    /// The gateway forwarded the request.
    Forwarded(Forwarded<'a>),
}

/// Fields of a forwarded request.
#[derive(Debug)]
pub struct Forwarded<'a> {
    /// Kind of the request: `call`, `watch`, `follow`, `session` or `proxy`.
    pub kind: &'static str,
    /// Bytes of bodies from the client.
    pub bytes_up: u64,
    /// Bytes of bodies from the API server.
    pub bytes_down: u64,
    pub user_id: Uuid,
    pub session_id: Uuid,
    pub workspace_id: Uuid,
    /// The credential (`jti`) that the request was sent with.
    pub credential_id: Option<&'a str>,
    /// Reason of the end, if the end is not the normal one.
    pub ended: Option<&'static str>,
}

impl AccessLogLine<'_> {
    /// Writes the line. The level is `error` if the broker, the database or the cluster failed. Any
    /// other status of 500 or more is `warn`, because a tenant can cause it: its program behind
    /// `/proxy/` chooses any status, and a workspace that is not ready is 503.
    pub fn write(&self) {
        match &self.details {
            Details::Handled(fields) => self.write_handled(fields),
            Details::Forwarded(forwarded) => self.write_forwarded(forwarded),
        }
    }

    fn write_handled(&self, fields: &Fields) {
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    target: "tenant_broker::http",
                    request_id = self.request.id,
                    address = self.request.address.map(tracing::field::display),
                    method = self.request.method.as_str(),
                    path = self.request.path,
                    status = self.status,
                    duration_ms = milliseconds(self.request.started_at.elapsed()),
                    user_id = fields.get(Field::UserId),
                    session_id = fields.get(Field::SessionId),
                    workspace_id = fields.get(Field::WorkspaceId),
                    namespace = fields.get(Field::Namespace),
                    upstream_calls = fields.upstream_calls(),
                    code = fields.get(Field::Code),
                    cause = fields.get(Field::Cause),
                    "{}",
                    self.message
                )
            };
        }
        match self.status {
            500.. if fields.get(Field::Code).is_none_or(is_failure) => line!(error),
            500.. => line!(warn),
            _ => line!(info),
        }
    }

    fn write_forwarded(&self, forwarded: &Forwarded<'_>) {
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    target: "tenant_broker::gateway",
                    request_id = self.request.id,
                    address = self.request.address.map(tracing::field::display),
                    method = self.request.method.as_str(),
                    path = self.request.path,
                    kind = forwarded.kind,
                    status = self.status,
                    duration_ms = milliseconds(self.request.started_at.elapsed()),
                    bytes_up = forwarded.bytes_up,
                    bytes_down = forwarded.bytes_down,
                    user_id = %forwarded.user_id,
                    session_id = %forwarded.session_id,
                    workspace_id = %forwarded.workspace_id,
                    credential_id = forwarded.credential_id,
                    ended = forwarded.ended,
                    "{}",
                    self.message
                )
            };
        }
        if self.status >= 500 { line!(warn) } else { line!(info) }
    }
}

/// Whether an error of this code needs an operator.
fn is_failure(code: &str) -> bool {
    [
        Code::Internal.as_str(),
        Code::StorageUnavailable.as_str(),
        Code::ClusterUnavailable.as_str(),
        // Codes of the issuer (RFC 6749 section 5.2).
        "server_error",
        "temporarily_unavailable",
    ]
    .contains(&code)
}

/// A duration with two decimals.
fn milliseconds(duration: std::time::Duration) -> f64 {
    (duration.as_secs_f64() * 1e5).round() / 1e2
}
