//! `GET /me`

use poem_openapi::{OpenApi, payload::Json};
use tenant_shared::Me;

use crate::{
    http::{ApiError, Authenticated},
    identity::Identity,
};

/// `me`.
#[derive(Debug)]
pub struct GetMe {
    pub(super) identity: Identity,
}

#[OpenApi(prefix_path = "/me")]
impl GetMe {
    /// Show my account
    ///
    /// The signed-in user and the session that this request used.
    #[oai(path = "/", method = "get", operation_id = "me")]
    async fn me(&self, caller: Authenticated) -> Result<Json<Me>, ApiError> {
        let caller = &caller.0;
        Ok(Json(Me {
            id: caller.user_id(),
            email: caller.email().to_owned(),
            role: caller.role(),
            session_id: caller.session_id(),
            session_expires_at: caller.session_expires_at().into(),
            provider: self.identity.provider_of_session(caller.session_id()).await?,
        }))
    }
}
