//! Users and their sessions, as they see themselves.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::WireTime;

/// Role of a user in the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Enum))]
#[cfg_attr(feature = "openapi", oai(rename_all = "snake_case"))]
pub enum Role {
    /// Uses their own workspace.
    User,
    /// Administrator: sees, suspends and resumes every workspace and reads the whole audit trail.
    Admin,
}

impl Role {
    /// Name on the wire and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Admin => "admin",
        }
    }

    /// Parses the name of a role.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::User, Self::Admin].into_iter().find(|role| role.as_str() == name)
    }
}

/// Response body of `GET /me`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct Me {
    /// Identifier of the user; the name of their namespace is `tenant-` followed by it.
    pub id: Uuid,
    /// E-mail address that the user signs in with.
    pub email: String,
    /// Role of the user.
    pub role: Role,
    /// Session of this request.
    pub session_id: Uuid,
    /// When the session ends at the latest, however often it is used (RFC 3339, UTC).
    pub session_expires_at: WireTime,
    /// Identity provider of the session; absent for a local account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub provider: Option<SignedInAt>,
}

/// Identity provider of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct SignedInAt {
    /// Name of the provider in the broker's configuration.
    pub name: String,
    /// Name of the user at the provider, as of the sign-in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub username: Option<String>,
    /// Maximum time in seconds for which a user who was removed at the provider keeps access: a
    /// bridged outage, the last access token and the last Kubernetes token together.
    pub removal_seconds: i64,
}

/// An active session: one sign-in of a program or a browser.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct SessionInfo {
    /// Identifier of the session, for its revocation.
    pub id: Uuid,
    /// Client of the session: `kubectl-tenant`, or `browser` for a session with a cookie.
    pub client: String,
    /// When the session began (RFC 3339, UTC).
    pub created_at: WireTime,
    /// When the session was last used: to the minute for browsers, to the renewal of the token for
    /// programs.
    pub last_used_at: WireTime,
    /// When the session ends at the latest.
    pub expires_at: WireTime,
    /// IP address of the sign-in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub ip_address: Option<String>,
    /// User agent of the sign-in, as the client reported it; not verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub user_agent: Option<String>,
    /// Whether this is the session of this request.
    pub current: bool,
}

/// Response body of `GET /me/sessions` and of `GET /users/{id}/sessions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct SessionList {
    /// Sessions, the newest first.
    pub items: Vec<SessionInfo>,
    /// Parameter `cursor` for the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub next_cursor: Option<String>,
}

/// Number of sessions that a request revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct EndedSessions {
    /// Number of sessions that were active until now.
    pub ended: u32,
}

/// Request body of `POST /auth/login`.
// It has no `Debug`, so that a password is never logged.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(deny_unknown_fields))]
pub struct SignInRequest {
    /// E-mail address of the account, 254 bytes at most.
    #[cfg_attr(feature = "openapi", oai(validator(max_length = 254)))]
    pub email: String,
    /// Password, 1024 bytes at most.
    #[cfg_attr(feature = "openapi", oai(validator(max_length = 1024)))]
    pub password: String,
}

/// Request body of `POST /auth/register`.
// It has no `Debug`, so that a password is never logged.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(deny_unknown_fields))]
pub struct RegisterRequest {
    /// E-mail address to sign in with, 254 bytes at most; it is not verified.
    #[cfg_attr(feature = "openapi", oai(validator(max_length = 254)))]
    pub email: String,
    /// Password of 8 to 1024 bytes.
    #[cfg_attr(feature = "openapi", oai(validator(max_length = 1024)))]
    pub password: String,
}
