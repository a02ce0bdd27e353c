//! Suspension (the kill switch) and resumption of a workspace.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::WorkspaceStatus;

/// Request body of `suspend` and `resume`, of workspaces, users and tenants. The whole body may be
/// left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(deny_unknown_fields, skip_serializing_if_is_none))]
pub struct SuspendRequest {
    /// Reason for the audit trail; at most 500 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(validator(max_length = 500)))]
    pub reason: Option<String>,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Enum))]
#[cfg_attr(feature = "openapi", oai(rename_all = "snake_case"))]
pub enum StepResult {
    /// The step is done and verified.
    Done,
    /// The step is not done yet; the broker retries it.
    Open,
}

/// A step of a suspension or of a resumption.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
pub struct Step {
    /// Name of the step: `record`, `label_namespace`, `delete_role_bindings`,
    /// `delete_service_account`, `close_streams`, `finish`, and for a resumption `unlabel_namespace`,
    /// `create_objects`. Of the suspension of a tenant: `record`, `home`, `members`, `namespaces`,
    /// `finish`, and of its resumption: `record`, `restore`, `namespaces`.
    pub step: String,
    /// Result of the step.
    pub result: StepResult,
    /// Duration of the step in milliseconds.
    pub duration_ms: f64,
    /// Why an open step of a suspension failed, as the cluster reported it; at most 500 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Response body of `suspend` (200 when every step is done, 202 when the broker retries open steps)
/// and of `resume`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct Suspension {
    /// Identifier of the workspace.
    pub id: Uuid,
    /// Current status of the workspace.
    pub status: WorkspaceStatus,
    /// Steps of the operation. The steps of a suspension are independent: an open step does not
    /// prevent the others from being tried.
    pub steps: Vec<Step>,
}
