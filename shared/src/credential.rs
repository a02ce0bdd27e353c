//! Credentials: a Kubernetes token for a workspace.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::WireTime;

/// Lifetime of every Kubernetes token in seconds: two hours, asked for and checked, never longer.
pub const TOKEN_LIFETIME_SECONDS: u32 = 7200;

/// Answer of `POST /workspaces/{id}/credentials`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct Credential {
    /// The Kubernetes bearer token: a JWT of the workspace's ServiceAccount. Keep it secret.
    pub token: String,
    /// When the token ends, by the cluster's clock (RFC 3339, UTC).
    pub expiration_timestamp: WireTime,
    /// Seconds until then, by the broker's clock at the time of the answer: a client whose own
    /// clock is wrong adds this to its own time. At most 7200.
    pub expires_in: u32,
    /// The token's `jti`: the id under which the ledger, the audit trail and the cluster's own
    /// audit log know it. Not secret.
    pub credential_id: String,
    /// The workspace the token is for.
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
