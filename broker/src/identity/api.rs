//! `GET /me`.

use poem_openapi::{OpenApi, payload::Json};
use tenant_shared::Me;

use super::{Bearer, Identity};
use crate::problem::Failure;

/// Operations about the person who calls.
#[derive(Clone, Debug)]
pub struct IdentityApi {
    /// Who is calling.
    pub identity: Identity,
}

#[OpenApi]
impl IdentityApi {
    /// Who am I
    ///
    /// The signed-in user and the session that this request used.
    #[oai(path = "/me", method = "get")]
    #[expect(clippy::unused_async, reason = "the macro wants it, and the caller knows it all")]
    async fn me(&self, Bearer(caller): Bearer) -> Result<Json<Me>, Failure> {
        Ok(Json(Me {
            id: caller.user_id,
            email: caller.email,
            role: caller.role,
            session_id: caller.session_id,
            session_expires_at: crate::clock::timestamp(caller.session_expires_at).into(),
        }))
    }
}
