//! Who is signed in.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::WireTime;

/// What a user may do beyond their own workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Enum))]
#[cfg_attr(feature = "openapi", oai(rename_all = "snake_case"))]
pub enum Role {
    /// Uses their own workspace.
    User,
    /// Sees, suspends and resumes every workspace and reads the whole audit trail.
    Admin,
}

impl Role {
    /// As written on the wire and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Admin => "admin",
        }
    }

    /// The role of this name, if there is one.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::User, Self::Admin].into_iter().find(|role| role.as_str() == name)
    }
}

/// Answer of `GET /me`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct Me {
    /// The user's identifier; their namespace is `tenant-` and this.
    pub id: Uuid,
    /// The e-mail address they sign in with.
    pub email: String,
    /// What they may do.
    pub role: Role,
    /// The session that this request used.
    pub session_id: Uuid,
    /// When the session ends at the latest, however often it is used (RFC 3339, UTC).
    pub session_expires_at: WireTime,
    /// The provider that the session began at; absent for a local account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub provider: Option<SignedInAt>,
}

/// Where somebody signed in who has no password here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct SignedInAt {
    /// The provider's name in the broker's configuration.
    pub name: String,
    /// What the person is called there, as it was at the sign-in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub username: Option<String>,
    /// How long a person whom the provider removed keeps access at most, in seconds: a bridged
    /// outage, the last access token and the last Kubernetes token together.
    pub removal_seconds: i64,
}

/// A session that is alive: one sign-in of one program or browser.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct SessionInfo {
    /// Identifier, for ending it.
    pub id: Uuid,
    /// What signed in: `kubectl-tenant`, or `browser` for a session with a cookie.
    pub client: String,
    /// When it began (RFC 3339, UTC).
    pub created_at: WireTime,
    /// When it was used last, to the minute for browsers and to the token's renewal for programs.
    pub last_used_at: WireTime,
    /// When it ends at the latest.
    pub expires_at: WireTime,
    /// Address that it began from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub ip_address: Option<String>,
    /// What the program or browser called itself when it signed in; its word only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub user_agent: Option<String>,
    /// Whether it is the session that this request used.
    pub current: bool,
}

/// Answer of `GET /me/sessions` and of `GET /users/{id}/sessions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct SessionList {
    /// The newest first.
    pub items: Vec<SessionInfo>,
    /// For the next page: the parameter `cursor`; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
    pub next_cursor: Option<String>,
}

/// How many sessions a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct EndedSessions {
    /// Those that were alive until now.
    pub ended: u32,
}

/// Body of `POST /auth/login`. It does not print.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(deny_unknown_fields))]
pub struct SignInRequest {
    /// The address of the account, 254 bytes at most.
    #[cfg_attr(feature = "openapi", oai(validator(max_length = 254)))]
    pub email: String,
    /// The password, 1024 bytes at most.
    #[cfg_attr(feature = "openapi", oai(validator(max_length = 1024)))]
    pub password: String,
}

/// Body of `POST /auth/register`. It does not print.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(deny_unknown_fields))]
pub struct RegisterRequest {
    /// The address to sign in with, 254 bytes at most; nobody verifies it.
    #[cfg_attr(feature = "openapi", oai(validator(max_length = 254)))]
    pub email: String,
    /// A password of 8 to 1024 bytes.
    #[cfg_attr(feature = "openapi", oai(validator(max_length = 1024)))]
    pub password: String,
}
