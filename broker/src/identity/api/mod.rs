//! HTTP API of the caller's own account: `/me` and its sessions.

mod end_session;
mod end_sessions;
mod list_sessions;
mod me;

use self::{
    end_session::EndMySession, end_sessions::EndMySessions, list_sessions::ListMySessions,
    me::GetMe,
};
use super::Identity;

/// Operations on the caller's own account.
pub type IdentityApi = (GetMe, ListMySessions, EndMySession, EndMySessions);

/// The operations on accounts of this identity.
pub fn api(identity: Identity) -> IdentityApi {
    (
        GetMe { identity: identity.clone() },
        ListMySessions { identity: identity.clone() },
        EndMySession { identity: identity.clone() },
        EndMySessions { identity },
    )
}
