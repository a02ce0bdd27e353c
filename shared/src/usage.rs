//! What a workspace used of the gateway.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What a workspace used of the gateway on one day with one verb.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct UsageDay {
    /// The day, in UTC: `2026-11-21`.
    pub day: String,
    /// `get`, `list`, `watch`, `connect` (exec, attach, port-forward, logs -f, proxy), `create`,
    /// `update`, `patch` or `delete`.
    pub verb: String,
    /// Requests that went on to the API server.
    pub requests: u64,
    /// Requests that were refused because there were too many.
    pub throttled: u64,
    /// Bytes from the client.
    pub bytes_up: u64,
    /// Bytes from the API server.
    pub bytes_down: u64,
    /// How long streams that ended on the day had been open, together, in seconds.
    pub stream_seconds: u64,
}

/// What a workspace used of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct Usage {
    /// Which.
    pub workspace_id: Uuid,
    /// By day, the newest first, and by verb.
    pub items: Vec<UsageDay>,
}
