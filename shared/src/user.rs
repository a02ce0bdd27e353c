//! Users, as administrators see them.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Role, Suspension, WireTime};

/// Whether a user may sign in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Enum))]
#[cfg_attr(feature = "openapi", oai(rename_all = "snake_case"))]
pub enum UserStatus {
    /// May sign in.
    Active,
    /// May not; all sessions have ended.
    Suspended,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct UserInfo {
    /// Identifier.
    pub id: Uuid,
    /// The e-mail address they sign in with.
    pub email: String,
    /// What they may do.
    pub role: Role,
    /// Whether they may sign in.
    pub status: UserStatus,
    /// When they were made (RFC 3339, UTC).
    pub created_at: WireTime,
}

/// Body of `POST /users/{id}/email`. The whole body may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(deny_unknown_fields, skip_serializing_if_is_none))]
pub struct ChangeEmailRequest {
    /// The new address. Without it the user gets `ID@no-verified-email.invalid`, which is nobody's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(validator(max_length = 254)))]
    pub email: Option<String>,
    /// Why, in words, for the audit trail; at most 500 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(validator(max_length = 500)))]
    pub reason: Option<String>,
}

/// Answer of `GET /users`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct UserList {
    /// By e-mail address.
    pub items: Vec<UserInfo>,
    /// For the next page: the parameter `cursor`; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub next_cursor: Option<String>,
}

/// Answer of `POST /users/{id}/suspend`: 200 when every step is done, 202 when the broker goes on with
/// some.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct UserSuspension {
    /// The user, who has no session any more.
    #[serde(flatten)]
    #[cfg_attr(feature = "openapi", oai(flatten))]
    pub user: UserInfo,
    /// Their workspaces, which are suspended too.
    #[serde(default)]
    pub workspaces: Vec<Suspension>,
}
