//! `DELETE /me/sessions`

use poem_openapi::{OpenApi, param::Query, payload::Json};
use tenant_shared::EndedSessions;

use crate::{
    http::{ApiError, Authenticated},
    identity::{Identity, SessionSelector},
};

/// `endMySessions`.
#[derive(Debug)]
pub struct EndMySessions {
    pub(super) identity: Identity,
}

#[OpenApi(prefix_path = "/me")]
impl EndMySessions {
    /// End all my sessions
    ///
    /// Ends the session of this request as well, unless `keep_current=true`.
    #[oai(path = "/sessions", method = "delete", operation_id = "endMySessions")]
    async fn end_all(
        &self,
        caller: Authenticated,
        /// Whether to keep the session of this request.
        keep_current: Query<Option<bool>>,
    ) -> Result<Json<EndedSessions>, ApiError> {
        let caller = &caller.0;
        let which = match keep_current.0 {
            Some(true) => SessionSelector::AllBut(caller.session_id()),
            _ => SessionSelector::All,
        };
        let ended = self.identity.end_own_sessions(caller, which).await?;
        Ok(Json(EndedSessions { ended }))
    }
}
