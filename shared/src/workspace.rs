//! Workspaces: one namespace for each user.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::WireTime;

/// Request body of `POST /workspaces/init`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(deny_unknown_fields))]
pub struct InitRequest {
    /// Name of the tier, for example `basic`. The tier decides quota, limits and role.
    #[cfg_attr(feature = "openapi", oai(validator(min_length = 1, max_length = 63)))]
    pub tier: String,
}

/// Maximum resources of a workspace, as Kubernetes quantities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct Quota {
    /// Sum of `requests.cpu` over all pods, in cores, for example `"4"`.
    pub cpu: String,
    /// Sum of `limits.memory` over all pods, for example `"8Gi"`.
    pub memory: String,
}

/// Lifecycle status of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Enum))]
#[cfg_attr(feature = "openapi", oai(rename_all = "snake_case"))]
pub enum WorkspaceStatus {
    /// The objects are being created; no credentials are issued yet.
    Provisioning,
    /// All objects exist; credentials are issued.
    Provisioned,
    /// No credentials are issued any more; the rights in the cluster are being revoked.
    Suspending,
    /// No credential of the workspace works.
    Suspended,
    /// The rights in the cluster are being restored; no credentials are issued yet.
    Resuming,
    /// A foreign object has the name of one of the workspace's objects; an operator has to act.
    Failed,
}

impl WorkspaceStatus {
    /// All statuses.
    pub const ALL: [Self; 6] = [
        Self::Provisioning,
        Self::Provisioned,
        Self::Suspending,
        Self::Suspended,
        Self::Resuming,
        Self::Failed,
    ];

    /// Name on the wire and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Provisioning => "provisioning",
            Self::Provisioned => "provisioned",
            Self::Suspending => "suspending",
            Self::Suspended => "suspended",
            Self::Resuming => "resuming",
            Self::Failed => "failed",
        }
    }

    /// Whether nobody may use the workspace, because an administrator suspended it.
    pub fn is_suspension(self) -> bool {
        matches!(self, Self::Suspending | Self::Suspended)
    }

    /// Parses the name of a status.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }
}

/// An unfinished operation on a workspace, which the broker retries by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct Unfinished {
    /// Names of the open steps in their order, as in `Step`.
    pub open_steps: Vec<String>,
    /// Number of retries since the request.
    pub attempts: u32,
    /// When the next retry is due (RFC 3339, UTC).
    pub next_attempt_at: WireTime,
}

/// Drift: an object of a workspace in the cluster differs from its desired state, and the broker
/// could not correct it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct Drift {
    /// Kind of the object, for example `ResourceQuota`.
    pub kind: String,
    /// Kind of the difference: `missing`, `foreign`, `terminating`, `pod_security`,
    /// `suspended_label`, `spec`, `role`, `subjects`, `replaced`, `unexpected`.
    pub what: String,
    /// When the broker detected it (RFC 3339, UTC).
    pub found_at: WireTime,
}

/// A user's own namespace in a cluster, or their membership in a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct Workspace {
    /// Identifier of the workspace in this API.
    pub id: Uuid,
    /// Name of the workspace's namespace in the cluster; of a membership, the home of its tenant.
    pub namespace: String,
    /// Lifecycle status of the workspace.
    pub status: WorkspaceStatus,
    /// Maximum resources of the workspace.
    pub quota: Quota,
    /// Name of the workspace's tier.
    pub tier: String,
    /// Name of the workspace's cluster.
    pub cluster: String,
    /// Identifier of the user who owns the workspace.
    pub owner: Uuid,
    /// E-mail address of the owner; absent in the response of `init`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub owner_email: Option<String>,
    /// When the workspace was requested (RFC 3339, UTC).
    pub created_at: WireTime,
    /// Unfinished operation, only while the workspace is being created, suspended or resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub unfinished: Option<Unfinished>,
    /// Differences between the cluster and the desired state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", oai(default, skip_serializing_if_is_empty))]
    pub drift: Vec<Drift>,
    /// Name of the tenant that the workspace is a membership in; absent for a personal one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub tenant: Option<String>,
}

/// Response body of `GET /workspaces` and `GET /workspaces/lookup`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct WorkspaceList {
    /// Workspaces, the oldest first.
    pub items: Vec<Workspace>,
    /// Parameter `cursor` for the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub next_cursor: Option<String>,
}
