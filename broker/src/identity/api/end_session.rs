//! `DELETE /me/sessions/{id}`

use poem_openapi::{ApiResponse, OpenApi, param::Path};
use tenant_shared::Code;
use uuid::Uuid;

use crate::{
    http::{ApiError, Authenticated},
    identity::{Identity, SessionSelector},
};

/// `endMySession`.
#[derive(Debug)]
pub struct EndMySession {
    pub(super) identity: Identity,
}

/// The session has ended; the response has no body.
#[derive(ApiResponse)]
pub(crate) enum SessionEnded {
    /// The session has ended.
    #[oai(status = 204)]
    Done,
}

#[OpenApi(prefix_path = "/me")]
impl EndMySession {
    /// End one of my sessions
    ///
    /// Takes effect immediately, for every token of the session. 404 if the caller has no such
    /// session.
    #[oai(path = "/sessions/:id", method = "delete", operation_id = "endMySession")]
    async fn end(
        &self,
        caller: Authenticated,
        /// Identifier of the session.
        id: Path<Uuid>,
    ) -> Result<SessionEnded, ApiError> {
        match self.identity.end_own_sessions(&caller.0, SessionSelector::One(id.0)).await? {
            0 => Err(ApiError::new(Code::NotFound, "you have no such session; it may be over")),
            _ => Ok(SessionEnded::Done),
        }
    }
}
