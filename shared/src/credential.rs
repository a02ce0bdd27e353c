//! Kubernetes credentials of a workspace.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::WireTime;

/// Lifetime of every Kubernetes token in seconds: two hours. The broker requests and verifies it,
/// and never accepts a longer one.
pub const TOKEN_LIFETIME_SECONDS: u32 = 7200;

/// Response body of `POST /workspaces/{id}/credentials`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct Credential {
    /// Kubernetes bearer token: a JWT of the workspace's ServiceAccount. Keep it secret.
    pub token: String,
    /// When the token expires, by the cluster's clock (RFC 3339, UTC).
    pub expiration_timestamp: WireTime,
    /// Seconds until the token expires, by the broker's clock at the time of the response: a client
    /// whose own clock is wrong adds this to its own time. At most 7200.
    pub expires_in: u32,
    /// `jti` of the token: its id in the ledger, in the audit trail and in the cluster's own audit
    /// log. Not secret.
    pub credential_id: String,
    /// Workspace that the token is for.
    pub workspace_id: Uuid,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("token", &"[hidden]")
            .field("expiration_timestamp", &self.expiration_timestamp)
            .field("expires_in", &self.expires_in)
            .field("credential_id", &self.credential_id)
            .field("workspace_id", &self.workspace_id)
            .finish()
    }
}
