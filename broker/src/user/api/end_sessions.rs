//! `DELETE /users/{id}/sessions`

use poem_openapi::{
    OpenApi,
    param::{Path, Query},
    payload::Json,
};
use tenant_shared::EndedSessions;
use uuid::Uuid;

use crate::{
    audit::Action,
    http::{ApiError, Authenticated},
    user::Users,
};

/// `endSessionsOfUser`.
#[derive(Debug)]
pub struct EndSessionsOfUser {
    pub(super) users: Users,
}

#[OpenApi(prefix_path = "/users")]
impl EndSessionsOfUser {
    /// End a user's sessions
    ///
    /// Ends all sessions of the user, or only one.
    #[oai(path = "/:id/sessions", method = "delete", operation_id = "endSessionsOfUser")]
    async fn end_sessions(
        &self,
        caller: Authenticated,
        /// Identifier of the user.
        id: Path<Uuid>,
        /// Identifier of the only session to end.
        session_id: Query<Option<Uuid>>,
    ) -> Result<Json<EndedSessions>, ApiError> {
        let permit = self.users.authorize_audited(&caller.0, id.0, Action::SignOut).await?;
        Ok(Json(self.users.end_sessions(&permit, id.0, session_id.0).await?))
    }
}
