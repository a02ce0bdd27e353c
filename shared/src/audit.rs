//! The audit trail as it is read.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::WireTime;

/// One row of the audit trail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
#[serde(default)]
pub struct AuditEntry {
    /// Identifier of the row; later rows have greater ones.
    pub id: Uuid,
    /// When it was recorded (RFC 3339, UTC).
    pub created_at: WireTime,
    /// What happened, for example `IssueKubeconfig`.
    pub action: String,
    /// `success` or `refused`.
    pub outcome: String,
    /// Who did it; absent when nobody was signed in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<Uuid>,
    /// Their e-mail address now; only in answers to administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_email: Option<String>,
    /// To whom it was done; absent where that is nobody else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_user_id: Option<Uuid>,
    /// Their e-mail address now; only in answers to administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_email: Option<String>,
    /// The workspace it happened to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<Uuid>,
    /// The session it happened in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Uuid>,
    /// The session it was done to; absent where that is no other one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_session_id: Option<Uuid>,
    /// The credential that left, by the `jti` that the cluster's audit log shows too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential_id: Option<String>,
    /// Address the request came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<String>,
    /// The request, as in the log and in the answer's `X-Request-Id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Why, where a person gave a reason or the broker refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl AuditEntry {
    /// What this person may see of the row: what another user did to them, but not that user's address
    /// and session. The address of somebody who was not signed in stays, because it tells the person
    /// who tried to be them.
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
    /// The rows.
    pub items: Vec<AuditEntry>,
    /// Give this as `cursor` to get the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}
