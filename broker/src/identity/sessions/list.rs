//! The list of a user's valid sessions.

use tenant_shared::{SessionInfo, SessionList};
use uuid::Uuid;

use crate::{
    base::{
        clock::timestamp,
        db::Db,
        paging::{self, Cursor},
    },
    identity::{Caller, Identity},
    on_engine,
};

/// Sessions of a page at most; also the default of `limit`.
pub(crate) const MAX_SESSIONS: u32 = 1000;

/// A session in the list of its user's sessions.
#[derive(Debug, sqlx::FromRow)]
struct SessionRow {
    id: Uuid,
    client_id: String,
    ip_address: Option<String>,
    user_agent: Option<String>,
    created_at: i64,
    last_used_at: i64,
    expires_at: i64,
}

const LIST_FOR_USER: &str = "\
SELECT id, client_id, ip_address, user_agent, created_at, last_used_at, expires_at \
FROM sessions WHERE user_id = $1 AND ended_at IS NULL AND idle_expires_at > $2 \
  AND expires_at > $2 AND (created_at, id) < ($4, $5) \
ORDER BY created_at DESC, id DESC LIMIT $3";

/// Lists the valid sessions of a user, newest first, after this cursor.
async fn list_for_user(
    db: &Db,
    user_id: Uuid,
    now: i64,
    after: Cursor,
    limit: u32,
) -> sqlx::Result<Vec<SessionRow>> {
    on_engine!(db.reader(), pool => sqlx::query_as(LIST_FOR_USER)
        .bind(user_id).bind(now).bind(i64::from(limit)).bind(after.created_at).bind(after.id)
        .fetch_all(pool).await)
}

impl SessionRow {
    fn cursor(&self) -> Cursor {
        Cursor { created_at: self.created_at, id: self.id }
    }

    fn into_info(self, current: Uuid) -> SessionInfo {
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

impl Identity {
    /// Lists a page of the caller's own valid sessions, newest first.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn sessions_of_caller(
        &self,
        caller: &Caller,
        after: Option<Cursor>,
        limit: u32,
    ) -> sqlx::Result<SessionList> {
        self.sessions_of_user(caller, caller.user_id, after, limit).await
    }

    /// Lists a page of the valid sessions of a user, newest first, for a reader who may see them.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn sessions_of_user(
        &self,
        reader: &Caller,
        user_id: Uuid,
        after: Option<Cursor>,
        limit: u32,
    ) -> sqlx::Result<SessionList> {
        let (now, after) = (self.clock.now_ms(), after.unwrap_or(Cursor::NEWEST));
        // One row more than requested tells whether there is a next page.
        let mut rows = list_for_user(&self.db, user_id, now, after, limit + 1).await?;
        let next_cursor = paging::truncate_page(&mut rows, limit, |row| row.cursor().to_string());
        let items = rows.into_iter().map(|row| row.into_info(reader.session_id)).collect();
        Ok(SessionList { items, next_cursor })
    }
}
