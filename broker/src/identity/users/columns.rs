//! Values of the columns of `users`.

use tenant_shared::Role;
use uuid::Uuid;

/// Status of a user who may sign in; any other one may not.
pub(crate) const ACTIVE: &str = "active";

/// Status of a suspended user.
pub(super) const SUSPENDED: &str = "suspended";

/// Verifier of the e-mail address of a user, so that it can be a user name in Kubernetes. An
/// account that its user registered has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::identity) enum EmailVerifier {
    /// The provider at which the user signs in.
    Provider,
    /// An administrator or operator, who gave the user the address.
    Administrator,
}

impl EmailVerifier {
    /// The value of the column.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Administrator => "administrator",
        }
    }
}

/// Parses the role of a user. An unknown role is a decoding error.
pub(in crate::identity) fn parse_role(role: &str, user_id: Uuid) -> sqlx::Result<Role> {
    Role::parse(role).ok_or_else(|| sqlx::Error::ColumnDecode {
        index: "role".to_owned(),
        source: format!("users.role of {user_id} is {role:?}, which is no role").into(),
    })
}
