//! Users, as administrators see them.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Role, Suspension, WireTime};

/// Status of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Enum))]
#[cfg_attr(feature = "openapi", oai(rename_all = "snake_case"))]
pub enum UserStatus {
    /// The user may sign in.
    Active,
    /// The user may not sign in; all of their sessions have ended.
    Suspended,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct UserInfo {
    /// Identifier of the user.
    pub id: Uuid,
    /// E-mail address that the user signs in with.
    pub email: String,
    /// Role of the user.
    pub role: Role,
    /// Status of the user.
    pub status: UserStatus,
    /// When the user was created (RFC 3339, UTC).
    pub created_at: WireTime,
}

/// Request body of `POST /users/{id}/email`. The whole body may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(deny_unknown_fields, skip_serializing_if_is_none))]
pub struct ChangeEmailRequest {
    /// New e-mail address. Without it the user gets the placeholder `ID@no-verified-email.invalid`,
    /// which nobody owns.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(validator(max_length = 254)))]
    pub email: Option<String>,
    /// Reason for the audit trail; at most 500 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(validator(max_length = 500)))]
    pub reason: Option<String>,
}

/// Request body of `POST /users/{id}/groups`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(deny_unknown_fields, skip_serializing_if_is_none))]
pub struct SetGroupsRequest {
    /// All groups of the user, at most 64; an empty list takes all away. The list is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<String>>,
    /// Reason for the audit trail; at most 500 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(validator(max_length = 500)))]
    pub reason: Option<String>,
}

/// Groups of a user in Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct UserGroups {
    /// Identifier of the user.
    pub id: Uuid,
    /// E-mail address that the user signs in with.
    pub email: String,
    /// Names of the groups, sorted. The group of everybody (`tenants.everybody`) is left out.
    pub groups: Vec<String>,
    /// Issuer identifier of the sign-in provider that decides on the groups; absent for a local
    /// account, whose groups administrators decide on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub issuer: Option<String>,
}

/// Response body of `GET /users`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct UserList {
    /// Users, sorted by e-mail address.
    pub items: Vec<UserInfo>,
    /// Parameter `cursor` for the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub next_cursor: Option<String>,
}

/// Response body of `POST /users/{id}/suspend`: 200 when every step is done, 202 when the broker
/// retries open steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct UserSuspension {
    /// The suspended user, who has no session any more.
    #[serde(flatten)]
    #[cfg_attr(feature = "openapi", oai(flatten))]
    pub user: UserInfo,
    /// Workspaces of the user, which are suspended too.
    #[serde(default)]
    pub workspaces: Vec<Suspension>,
}
