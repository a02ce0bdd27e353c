//! Workspaces: one person's namespace.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::WireTime;

/// Body of `POST /workspaces/init`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(deny_unknown_fields))]
pub struct InitRequest {
    /// Name of the tier, for example `basic`: decides quota, limits and role.
    #[cfg_attr(feature = "openapi", oai(validator(min_length = 1, max_length = 63)))]
    pub tier: String,
}

/// What a workspace may use at most, as Kubernetes quantities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct Quota {
    /// Sum of `requests.cpu` over all pods, in cores, for example `"4"`.
    pub cpu: String,
    /// Sum of `limits.memory` over all pods, for example `"8Gi"`.
    pub memory: String,
}

/// Where a workspace is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Enum))]
#[cfg_attr(feature = "openapi", oai(rename_all = "snake_case"))]
pub enum WorkspaceStatus {
    /// Its objects are being made; nothing is issued yet.
    Provisioning,
    /// All of its objects exist; credentials are issued.
    Provisioned,
    /// Nothing is issued any more; the cluster is being cleaned of its rights.
    Suspending,
    /// Nothing of it works.
    Suspended,
    /// Its rights are being made anew; nothing is issued yet.
    Resuming,
    /// Something foreign is in the way; an operator has to look.
    Failed,
}

impl WorkspaceStatus {
    /// As written on the wire and in the database.
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

    /// The status of this name, if there is one.
    pub fn parse(name: &str) -> Option<Self> {
        [
            Self::Provisioning,
            Self::Provisioned,
            Self::Suspending,
            Self::Suspended,
            Self::Resuming,
            Self::Failed,
        ]
        .into_iter()
        .find(|status| status.as_str() == name)
    }
}

/// One person's corner of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct Workspace {
    /// Identifier in this API.
    pub id: Uuid,
    /// Its namespace in the cluster.
    pub namespace: String,
    /// Where it is in its life.
    pub status: WorkspaceStatus,
    /// What it may use.
    pub quota: Quota,
    /// Name of its tier.
    pub tier: String,
    /// Name of the cluster it is in.
    pub cluster: String,
    /// The user it belongs to.
    pub owner: Uuid,
    /// When it was asked for (RFC 3339, UTC).
    pub created_at: WireTime,
}

/// Answer of `GET /workspaces`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct WorkspaceList {
    /// The caller's own; with `all=true` an administrator gets everybody's.
    pub items: Vec<Workspace>,
}
