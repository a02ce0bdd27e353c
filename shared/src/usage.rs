//! Gateway usage of a workspace.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Gateway usage of a workspace on one day with one verb.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct UsageDay {
    /// Day in UTC, for example `2026-11-21`.
    pub day: String,
    /// `get`, `list`, `watch`, `connect` (exec, attach, port-forward, logs -f, proxy), `create`,
    /// `update`, `patch` or `delete`.
    pub verb: String,
    /// Number of requests that were forwarded to the API server.
    pub requests: u64,
    /// Number of requests that a rate limit refused.
    pub throttled: u64,
    /// Bytes received from the client.
    pub bytes_up: u64,
    /// Bytes received from the API server.
    pub bytes_down: u64,
    /// Total duration in seconds of the streams that ended on this day.
    pub stream_seconds: u64,
}

/// Gateway usage of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct Usage {
    /// Identifier of the workspace.
    pub workspace_id: Uuid,
    /// Usage by day, the newest first, and by verb.
    pub items: Vec<UsageDay>,
}
