//! HTTP API of the caller's own account: `/me` and its sessions.

use poem_openapi::{
    ApiResponse, OpenApi,
    param::{Path, Query},
    payload::Json,
};
use tenant_shared::{Code, EndedSessions, Me, SessionInfo, SessionList};
use uuid::Uuid;

use super::{Authenticated, Caller, Identity, provider, session, session::SessionSelector};
use crate::{
    base::{
        clock::timestamp,
        paging::{self, Cursor},
    },
    http::{ApiError, query},
};

/// Sessions of a page at most; also the default of `limit`.
pub(crate) const MAX_SESSIONS: u32 = 1000;

/// Operations on the caller's own account.
#[derive(Clone, Debug)]
pub struct IdentityApi {
    /// Users, sessions and access tokens.
    pub identity: Identity,
}

/// The session has ended; the response has no body.
#[derive(ApiResponse)]
pub(crate) enum SessionEnded {
    /// The session has ended.
    #[oai(status = 204)]
    Done,
}

#[OpenApi(prefix_path = "/me")]
impl IdentityApi {
    /// Who am I
    ///
    /// The signed-in user and the session that this request used.
    #[oai(path = "/", method = "get", operation_id = "me")]
    async fn me(&self, Authenticated(caller): Authenticated) -> Result<Json<Me>, ApiError> {
        let provider = provider::provider_of_session(&self.identity.db, caller.session_id).await?;
        Ok(Json(Me {
            id: caller.user_id,
            email: caller.email,
            role: caller.role,
            session_id: caller.session_id,
            session_expires_at: timestamp(caller.session_expires_at).into(),
            provider,
        }))
    }

    /// List my sessions
    ///
    /// Every program and browser that is signed in as the caller, newest first. `next_cursor` is
    /// set while there are more.
    #[oai(path = "/sessions", method = "get", operation_id = "listMySessions")]
    async fn sessions(
        &self,
        caller: Authenticated,
        /// `next_cursor` of the previous page.
        #[oai(validator(max_length = 64))]
        cursor: Query<Option<String>>,
        /// Sessions of a page, 1 to 1000; the default is 1000.
        #[oai(validator(minimum(value = "1"), maximum(value = "1000")))]
        limit: Query<Option<u32>>,
    ) -> Result<Json<SessionList>, ApiError> {
        let after = cursor.0.as_deref().map(query::parse_cursor).transpose()?;
        let limit = query::parse_limit(limit.0, MAX_SESSIONS, MAX_SESSIONS)?;
        let caller = &caller.0;
        Ok(Json(self.identity.sessions_of(caller, caller.user_id, after, limit).await?))
    }

    /// End one of my sessions
    ///
    /// Takes effect immediately, for every token of the session. 404 if the caller has no such
    /// session.
    #[oai(path = "/sessions/:id", method = "delete", operation_id = "endMySession")]
    async fn end_session(
        &self,
        caller: Authenticated,
        /// Identifier of the session.
        id: Path<Uuid>,
    ) -> Result<SessionEnded, ApiError> {
        let caller = &caller.0;
        match self.identity.end_sessions(caller, caller.user_id, SessionSelector::One(id.0)).await?
        {
            0 => Err(ApiError::new(Code::NotFound, "you have no such session; it may be over")),
            _ => Ok(SessionEnded::Done),
        }
    }

    /// End all my sessions
    ///
    /// Ends the session of this request as well, unless `keep_current=true`.
    #[oai(path = "/sessions", method = "delete", operation_id = "endMySessions")]
    async fn end_sessions(
        &self,
        caller: Authenticated,
        /// Whether to keep the session of this request.
        keep_current: Query<Option<bool>>,
    ) -> Result<Json<EndedSessions>, ApiError> {
        let caller = &caller.0;
        let which = match keep_current.0 {
            Some(true) => SessionSelector::AllBut(caller.session_id),
            _ => SessionSelector::All,
        };
        let ended = self.identity.end_sessions(caller, caller.user_id, which).await?;
        Ok(Json(EndedSessions { ended }))
    }
}

impl Identity {
    /// Lists a page of the valid sessions of a user, newest first.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn sessions_of(
        &self,
        by: &Caller,
        user_id: Uuid,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<SessionList, ApiError> {
        let (now, after) = (self.clock.now_ms(), after.unwrap_or(Cursor::NEWEST));
        // One row more than requested tells whether there is a next page.
        let mut rows = session::list_for_user(&self.db, user_id, now, after, limit + 1).await?;
        let next_cursor = paging::truncate_page(&mut rows, limit, |row| row.cursor().to_string());
        let items = rows.into_iter().map(|row| row.wire(by.session_id)).collect();
        Ok(SessionList { items, next_cursor })
    }
}

impl session::SessionRow {
    fn cursor(&self) -> Cursor {
        Cursor { created_at: self.created_at, id: self.id }
    }

    fn wire(self, current: Uuid) -> SessionInfo {
        SessionInfo {
            current: self.id == current,
            id: self.id,
            client: self.client_id,
            created_at: timestamp(self.created_at).into(),
            last_used_at: timestamp(self.last_used_at).into(),
            expires_at: timestamp(self.expires_at).into(),
            ip_address: self.ip_address,
            user_agent: self.user_agent,
        }
    }
}
