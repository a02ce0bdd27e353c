//! HTTP API of the gateway: `/workspaces/{id}/usage`.

mod usage;

use self::usage::ShowUsage;
use super::Gateway;
use crate::workspace::Workspaces;

/// Operations on the gateway.
pub type GatewayApi = ShowUsage;

/// The operations on this gateway.
pub fn api(workspaces: Workspaces, gateway: Gateway) -> GatewayApi {
    ShowUsage { workspaces, gateway }
}
