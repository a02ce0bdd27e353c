//! `/me`.

use poem_openapi::{
    ApiResponse, OpenApi,
    param::{Path, Query},
    payload::Json,
};
use tenant_shared::{Code, EndedSessions, Me, SessionInfo, SessionList};
use uuid::Uuid;

use super::{Bearer, Caller, Identity, provider, session, session::Which};
use crate::{
    clock::timestamp,
    list::{self, Cursor},
    problem::Failure,
};

/// Sessions of a page at most, and where the caller names no number.
pub(crate) const MOST_SESSIONS: u32 = 1000;

/// Operations about the person who calls.
#[derive(Clone, Debug)]
pub struct IdentityApi {
    /// Who is calling.
    pub identity: Identity,
}

/// Nothing is left to say.
#[derive(ApiResponse)]
pub(crate) enum Ended {
    /// It is over.
    #[oai(status = 204)]
    Done,
}

#[OpenApi(prefix_path = "/me")]
impl IdentityApi {
    /// Who am I
    ///
    /// The signed-in user and the session that this request used.
    #[oai(path = "/", method = "get", operation_id = "me")]
    async fn me(&self, Bearer(caller): Bearer) -> Result<Json<Me>, Failure> {
        let provider = provider::signed_in_at(&self.identity.db, caller.session_id).await?;
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
    /// Every program and browser that is signed in as the caller, the newest first; `next_cursor` is
    /// there while there are more.
    #[oai(path = "/sessions", method = "get", operation_id = "listMySessions")]
    async fn sessions(
        &self,
        caller: Bearer,
        /// `next_cursor` of the page before.
        #[oai(validator(max_length = 64))]
        cursor: Query<Option<String>>,
        /// Rows of a page, 1 to 1000, 1000 if not given.
        #[oai(validator(minimum(value = "1"), maximum(value = "1000")))]
        limit: Query<Option<u32>>,
    ) -> Result<Json<SessionList>, Failure> {
        let after = cursor.0.as_deref().map(Cursor::parse).transpose()?;
        let limit = list::limit(limit.0, MOST_SESSIONS, MOST_SESSIONS)?;
        let caller = &caller.0;
        Ok(Json(self.identity.sessions_of(caller, caller.user_id, after, limit).await?))
    }

    /// End one of my sessions
    ///
    /// At once, with everything that it was given. 404 if the caller has no such session.
    #[oai(path = "/sessions/:id", method = "delete", operation_id = "endMySession")]
    async fn end_session(
        &self,
        caller: Bearer,
        /// Its identifier.
        id: Path<Uuid>,
    ) -> Result<Ended, Failure> {
        let caller = &caller.0;
        match self.identity.end_sessions(caller, caller.user_id, Which::One(id.0)).await? {
            0 => Err(Failure::new(Code::NotFound, "you have no such session; it may be over")),
            _ => Ok(Ended::Done),
        }
    }

    /// End all my sessions
    ///
    /// The one that asks as well, unless `keep_current=true`.
    #[oai(path = "/sessions", method = "delete", operation_id = "endMySessions")]
    async fn end_sessions(
        &self,
        caller: Bearer,
        /// Whether the session that asks goes on.
        keep_current: Query<Option<bool>>,
    ) -> Result<Json<EndedSessions>, Failure> {
        let caller = &caller.0;
        let which = match keep_current.0 {
            Some(true) => Which::AllBut(caller.session_id),
            _ => Which::All,
        };
        let ended = self.identity.end_sessions(caller, caller.user_id, which).await?;
        Ok(Json(EndedSessions { ended }))
    }
}

impl Identity {
    /// A page of the sessions of a user that are alive, the newest first.
    ///
    /// # Errors
    /// The database's.
    pub(crate) async fn sessions_of(
        &self,
        by: &Caller,
        user_id: Uuid,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<SessionList, Failure> {
        let (now, after) = (self.clock.now_ms(), after.unwrap_or(Cursor::NEWEST));
        // One row more than asked for tells whether there is a next page.
        let mut rows = session::of_user(&self.db, user_id, now, after, limit + 1).await?;
        let next_cursor = list::page(&mut rows, limit, |row| row.cursor().to_string());
        let items = rows.into_iter().map(|row| row.wire(by.session_id)).collect();
        Ok(SessionList { items, next_cursor })
    }
}

impl session::Listed {
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
