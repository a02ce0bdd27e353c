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
    /// Every status.
    pub const ALL: [Self; 6] = [
        Self::Provisioning,
        Self::Provisioned,
        Self::Suspending,
        Self::Suspended,
        Self::Resuming,
        Self::Failed,
    ];

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
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }
}

/// What the broker has begun with a workspace and goes on with by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct Unfinished {
    /// The steps that are not done yet, in their order; the names are those of `Step`.
    pub open_steps: Vec<String>,
    /// How often the broker has tried again since the request.
    pub attempts: u32,
    /// From when on it tries again (RFC 3339, UTC).
    pub next_attempt_at: WireTime,
}

/// Something of a workspace in the cluster that is not as it has to be, and that the broker could not
/// set right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct Drift {
    /// Kind of the object, for example `ResourceQuota`.
    pub kind: String,
    /// What is wrong with it: `missing`, `foreign`, `terminating`, `pod_security`,
    /// `suspended_label`, `spec`, `role`, `subjects`, `replaced`, `unexpected`.
    pub what: String,
    /// When the broker found it (RFC 3339, UTC).
    pub found_at: WireTime,
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
    /// The e-mail address of that user; absent in the answer of `init`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub owner_email: Option<String>,
    /// When it was asked for (RFC 3339, UTC).
    pub created_at: WireTime,
    /// What the broker goes on with: only while it is being made, suspended or resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub unfinished: Option<Unfinished>,
    /// What is not as it has to be in the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", oai(default, skip_serializing_if_is_empty))]
    pub drift: Vec<Drift>,
}

/// Answer of `GET /workspaces` and `GET /workspaces/lookup`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct WorkspaceList {
    /// The workspaces, the oldest first.
    pub items: Vec<Workspace>,
    /// For the next page: the parameter `cursor`; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub next_cursor: Option<String>,
}
