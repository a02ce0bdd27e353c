//! The authenticated caller of a request.

use tenant_shared::{GATEWAY_SCOPE, Role};
use uuid::Uuid;

use super::{AuthenticationError, sessions};
use crate::{
    audit::{Action, Event},
    base::clock::timestamp,
};

/// The authenticated caller of a request. Only [`Identity`](super::Identity) makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub(super) user_id: Uuid,
    pub(super) email: String,
    pub(super) role: Role,
    pub(super) session_id: Uuid,
    /// Milliseconds since 1970.
    pub(super) session_expires_at: i64,
    pub(super) scope: String,
    /// When the session was last used, in milliseconds since 1970.
    pub(super) last_used_at: i64,
    /// The only workspace of a machine.
    pub(super) workspace_id: Option<Uuid>,
}

impl Caller {
    /// A caller whose session is not looked up.
    #[cfg(test)]
    pub(crate) fn for_tests(clock: &crate::base::clock::Clock, user_id: Uuid, role: Role) -> Self {
        Self {
            user_id,
            email: format!("{user_id}@example.com"),
            role,
            session_id: clock.random_id(),
            session_expires_at: i64::MAX,
            scope: String::new(),
            last_used_at: clock.now_ms(),
            workspace_id: None,
        }
    }

    /// An audit event with the caller as its actor; callers add the other fields with struct update
    /// syntax.
    pub(crate) fn event(&self, action: Action) -> Event {
        Event {
            user_id: Some(self.user_id),
            session_id: Some(self.session_id),
            ..Event::success(action)
        }
    }

    /// Identifier of the user.
    pub fn user_id(&self) -> Uuid {
        self.user_id
    }

    /// E-mail address of the user.
    pub fn email(&self) -> &str {
        &self.email
    }

    /// Role of the user; always [`Role::User`] for a machine.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Identifier of the session.
    pub fn session_id(&self) -> Uuid {
        self.session_id
    }

    /// Absolute end of the session, which use does not extend.
    pub fn session_expires_at(&self) -> jiff::Timestamp {
        timestamp(self.session_expires_at)
    }

    /// Whether the session was granted this scope (RFC 6749 section 3.3).
    pub(crate) fn has_scope(&self, name: &str) -> bool {
        sessions::contains_scope(&self.scope, name)
    }

    /// The only workspace that this session may use, if it is a machine's; it may do nothing else.
    pub fn only_workspace(&self) -> Option<Uuid> {
        self.workspace_id
    }

    /// Whether the token is valid for the gateway and nothing else.
    pub(crate) fn is_gateway_only(&self) -> bool {
        self.scope == GATEWAY_SCOPE
    }

    /// Refuses a token that is for the gateway only.
    pub(super) fn require_api_scope(self) -> Result<Self, AuthenticationError> {
        if self.is_gateway_only() { Err(AuthenticationError::GatewayScope) } else { Ok(self) }
    }

    /// Refuses a machine.
    pub(super) fn require_user(self) -> Result<Self, AuthenticationError> {
        match self.workspace_id {
            None => Ok(self),
            Some(_) => Err(AuthenticationError::Machine),
        }
    }
}
