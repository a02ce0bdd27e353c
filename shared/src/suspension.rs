//! The kill switch and its way back.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::WorkspaceStatus;

/// Body of `suspend` and `resume`, of workspaces and of users. The whole body may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(deny_unknown_fields, skip_serializing_if_is_none))]
pub struct SuspendRequest {
    /// Why, in words, for the audit trail; at most 500 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(validator(max_length = 500)))]
    pub reason: Option<String>,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Enum))]
#[cfg_attr(feature = "openapi", oai(rename_all = "snake_case"))]
pub enum StepResult {
    /// Done and checked.
    Done,
    /// Not done yet; the broker goes on trying.
    Open,
}

/// One step of a suspension or of a resumption.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
pub struct Step {
    /// Name of the step: `record`, `label_namespace`, `delete_role_bindings`,
    /// `delete_service_account`, `close_streams`, `finish`, and for a resumption `unlabel_namespace`,
    /// `create_objects`.
    pub step: String,
    /// How it ended.
    pub result: StepResult,
    /// How long it took, in milliseconds.
    pub duration_ms: f64,
    /// Why an open step of a suspension could not be done, as the cluster said it; at most 500
    /// characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Answer of `suspend` (200 when every step is done, 202 when the broker goes on with some) and of
/// `resume`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct Suspension {
    /// The workspace.
    pub id: Uuid,
    /// Its status now.
    pub status: WorkspaceStatus,
    /// The steps. Those of a suspension do not wait for each other: one that is open kept none from
    /// being tried.
    pub steps: Vec<Step>,
}
