//! `/me` and `/users`.

use poem_openapi::{
    ApiResponse, OpenApi,
    param::{Path, Query},
    payload::Json,
};
use tenant_shared::{
    Code, EndedSessions, Me, Role, SessionInfo, SessionList, SuspendRequest, UserInfo, UserList,
    UserStatus,
};
use uuid::Uuid;

use super::{Bearer, Caller, Identity, provider, session, session::Which, user};
use crate::{access, clock::timestamp, http::OptionalJson, problem::Failure};

/// Sessions of a list at most; nobody has as many.
const MOST_SESSIONS: u32 = 1000;
/// Users of a page.
const PAGE: u32 = 100;

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
    /// Every program and browser that is signed in as the caller.
    #[oai(path = "/sessions", method = "get", operation_id = "listMySessions")]
    async fn sessions(&self, caller: Bearer) -> Result<Json<SessionList>, Failure> {
        let items = self.identity.sessions_of(&caller.0, caller.0.user_id).await?;
        Ok(Json(SessionList { items }))
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

/// Operations on users, for administrators.
#[derive(Clone, Debug)]
pub struct UserApi {
    /// Who is calling, and who there is.
    pub identity: Identity,
}

#[OpenApi(prefix_path = "/users")]
impl UserApi {
    /// List users
    #[oai(path = "/", method = "get", operation_id = "listUsers")]
    async fn list(
        &self,
        caller: Bearer,
        /// `next_cursor` of the page before.
        #[oai(validator(max_length = 254))]
        cursor: Query<Option<String>>,
    ) -> Result<Json<UserList>, Failure> {
        access::manage_users(&caller.0)?;
        let after = cursor.0.unwrap_or_default();
        let mut rows = user::list(&self.identity.db, &after, PAGE + 1).await?;
        let more = rows.len() > PAGE as usize;
        rows.truncate(PAGE as usize);
        let next_cursor = rows.last().filter(|_| more).map(|row| row.email.clone());
        let items = rows.into_iter().map(user::Listed::wire).collect::<Result<_, _>>()?;
        Ok(Json(UserList { items, next_cursor }))
    }

    /// Show a user
    #[oai(path = "/:id", method = "get", operation_id = "showUser")]
    async fn show(
        &self,
        caller: Bearer,
        /// Its identifier.
        id: Path<Uuid>,
    ) -> Result<Json<UserInfo>, Failure> {
        access::manage_users(&caller.0)?;
        Ok(Json(self.find(id.0).await?))
    }

    /// Suspend a user
    ///
    /// Every session ends at once and nothing is issued any more, on every replica. Kubernetes
    /// tokens that were issued before live on for two hours at most; suspending the workspace ends
    /// them as well. The body may be left out.
    #[oai(path = "/:id/suspend", method = "post", operation_id = "suspendUser")]
    async fn suspend(
        &self,
        caller: Bearer,
        /// Its identifier.
        id: Path<Uuid>,
        request: OptionalJson<SuspendRequest>,
    ) -> Result<Json<UserInfo>, Failure> {
        let permit = access::manage_users(&caller.0)?;
        self.find(id.0).await?;
        if id.0 == caller.0.user_id {
            let text = "you cannot suspend yourself; another administrator has to";
            return Err(Failure::new(Code::Forbidden, text));
        }
        self.identity.set_active(&permit, id.0, false, request.0.reason).await?;
        Ok(Json(self.find(id.0).await?))
    }

    /// Let a user in again
    ///
    /// Sessions from before stay ended. The body may be left out.
    #[oai(path = "/:id/resume", method = "post", operation_id = "resumeUser")]
    async fn resume(
        &self,
        caller: Bearer,
        /// Its identifier.
        id: Path<Uuid>,
        request: OptionalJson<SuspendRequest>,
    ) -> Result<Json<UserInfo>, Failure> {
        let permit = access::manage_users(&caller.0)?;
        self.find(id.0).await?;
        self.identity.set_active(&permit, id.0, true, request.0.reason).await?;
        Ok(Json(self.find(id.0).await?))
    }

    /// List a user's sessions
    #[oai(path = "/:id/sessions", method = "get", operation_id = "listSessionsOfUser")]
    async fn sessions(
        &self,
        caller: Bearer,
        /// The user's identifier.
        id: Path<Uuid>,
    ) -> Result<Json<SessionList>, Failure> {
        access::manage_users(&caller.0)?;
        self.find(id.0).await?;
        let items = self.identity.sessions_of(&caller.0, id.0).await?;
        Ok(Json(SessionList { items }))
    }

    /// End a user's sessions
    ///
    /// One of them, or all.
    #[oai(path = "/:id/sessions", method = "delete", operation_id = "endSessionsOfUser")]
    async fn end_sessions(
        &self,
        caller: Bearer,
        /// The user's identifier.
        id: Path<Uuid>,
        /// Only this session.
        session_id: Query<Option<Uuid>>,
    ) -> Result<Json<EndedSessions>, Failure> {
        access::manage_users(&caller.0)?;
        self.find(id.0).await?;
        let which = session_id.0.map_or(Which::All, Which::One);
        let ended = self.identity.end_sessions(&caller.0, id.0, which).await?;
        Ok(Json(EndedSessions { ended }))
    }
}

impl UserApi {
    async fn find(&self, id: Uuid) -> Result<UserInfo, Failure> {
        let found = user::find(&self.identity.db, id).await?;
        found
            .ok_or_else(|| {
                let text = "there is no such user; `kubectl tenant users list` lists them";
                Failure::new(Code::NotFound, text)
            })?
            .wire()
    }
}

impl Identity {
    /// The sessions of a user that are alive, the newest first.
    ///
    /// # Errors
    /// The database's.
    pub(crate) async fn sessions_of(
        &self,
        by: &Caller,
        user_id: Uuid,
    ) -> Result<Vec<SessionInfo>, Failure> {
        let now = self.clock.now_ms();
        let rows = session::of_user(&self.db, user_id, now, MOST_SESSIONS).await?;
        Ok(rows.into_iter().map(|row| row.wire(by.session_id)).collect())
    }
}

impl session::Listed {
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

impl user::Listed {
    fn wire(self) -> Result<UserInfo, Failure> {
        let role = Role::parse(&self.role).ok_or_else(|| Failure::internal(&NoRole(self.id)))?;
        let status = if self.is_active() { UserStatus::Active } else { UserStatus::Suspended };
        Ok(UserInfo {
            id: self.id,
            email: self.email,
            role,
            status,
            created_at: timestamp(self.created_at).into(),
        })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("users.role of {0} is no role")]
struct NoRole(Uuid);
