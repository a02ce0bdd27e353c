//! Audit trail entries.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::WireTime;

/// An entry of the audit trail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
#[serde(default)]
pub struct AuditEntry {
    /// Identifier of the entry; later entries have greater ones.
    pub id: Uuid,
    /// When the entry was recorded (RFC 3339, UTC).
    pub created_at: WireTime,
    /// Name of the action, for example `IssueKubeconfig`.
    pub action: String,
    /// Outcome of the action: `success` or `refused`.
    pub outcome: String,
    /// User who acted; absent when nobody was signed in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<Uuid>,
    /// Current e-mail address of that user; only in responses to administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_email: Option<String>,
    /// User who was acted on; absent if that is nobody else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_user_id: Option<Uuid>,
    /// Current e-mail address of that user; only in responses to administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_email: Option<String>,
    /// Workspace that was acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<Uuid>,
    /// Session in which the user acted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Uuid>,
    /// Session that was acted on; absent if that is no other one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_session_id: Option<Uuid>,
    /// `jti` of the credential that was issued or revoked, as in the cluster's audit log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential_id: Option<String>,
    /// IP address that the request came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<String>,
    /// Request id, as in the log and in the response header `X-Request-Id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Reason, if a person gave one or the broker refused the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl AuditEntry {
    /// Redacts the entry for this user: the IP address and session of another user who acted on
    /// them are removed. The address of a request without a session stays, because it shows who
    /// tried to sign in as them.
    #[must_use]
    pub fn shown_to(mut self, reader: Uuid) -> Self {
        if self.user_id.is_some_and(|actor| actor != reader) {
            self.ip_address = None;
            self.session_id = None;
        }
        self
    }
}

impl Default for AuditEntry {
    fn default() -> Self {
        Self {
            id: Uuid::nil(),
            created_at: WireTime(jiff::Timestamp::UNIX_EPOCH),
            action: String::new(),
            outcome: String::new(),
            user_id: None,
            user_email: None,
            subject_user_id: None,
            subject_email: None,
            workspace_id: None,
            session_id: None,
            subject_session_id: None,
            credential_id: None,
            ip_address: None,
            request_id: None,
            reason: None,
        }
    }
}

/// A page of the audit trail, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
pub struct AuditPage {
    /// Entries of the page.
    pub items: Vec<AuditEntry>,
    /// Parameter `cursor` for the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}
