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
}
