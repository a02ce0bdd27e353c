//! Who stands behind a credential: from a line of the cluster's audit log to the person.

use serde::Serialize;
use uuid::Uuid;

use super::Row;
use crate::{clock::timestamp, db::Db, on_engine};

/// What the API server puts before a token's identifier in
/// `authentication.kubernetes.io/credential-id`.
const PREFIX: &str = "JTI=";

/// Not the identifier of a credential.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "not a credential's identifier: the API server's audit log has it as \
     authentication.kubernetes.io/credential-id, JTI= and a UUID"
)]
pub struct NotACredential;

/// A credential that left, and everything that is known about it.
#[derive(Clone, Debug, Serialize)]
pub struct Issuance {
    /// Its `jti`.
    pub credential_id: String,
    /// When it was issued.
    pub issued_at: jiff::Timestamp,
    /// Until when it works, unless it was taken back.
    pub expires_at: jiff::Timestamp,
    /// To whom.
    pub user_id: Option<Uuid>,
    /// Their address.
    pub email: Option<String>,
    /// For which workspace.
    pub workspace_id: Uuid,
    /// In which namespace.
    pub namespace: String,
    /// In which session.
    pub session: Session,
    /// What the audit trail says of the issuance; gone once retention has cut it.
    pub audit: Option<Row>,
}

/// The session that the credential was asked for in.
#[derive(Clone, Debug, Serialize)]
pub struct Session {
    /// Its identifier.
    pub id: Uuid,
    /// Which program.
    pub client_id: Option<String>,
    /// What the program called itself when the session began.
    pub user_agent: Option<String>,
    /// Where the session began.
    pub ip_address: Option<String>,
    /// When.
    pub created_at: Option<jiff::Timestamp>,
    /// When it ended, if it did.
    pub ended_at: Option<jiff::Timestamp>,
    /// Why.
    pub ended_why: Option<String>,
}

#[derive(sqlx::FromRow)]
struct Found {
    credential_id: String,
    issued_at: i64,
    expires_at: i64,
    user_id: Option<Uuid>,
    email: Option<String>,
    workspace_id: Uuid,
    namespace: String,
    session_id: Uuid,
    client_id: Option<String>,
    user_agent: Option<String>,
    ip_address: Option<String>,
    created_at: Option<i64>,
    ended_at: Option<i64>,
    ended_why: Option<String>,
}

const FIND: &str = "\
SELECT l.credential_id, l.issued_at, l.expires_at, u.id AS user_id, u.email, l.workspace_id, \
  w.k8s_namespace AS namespace, l.session_id, s.client_id, s.user_agent, s.ip_address, \
  s.created_at, s.ended_at, s.ended_why \
FROM issued_credentials l \
JOIN workspaces w ON w.id = l.workspace_id \
LEFT JOIN sessions s ON s.id = l.session_id \
LEFT JOIN users u ON u.id = s.user_id \
WHERE l.credential_id = $1";

/// The workspace is there for the index.
const AUDITED: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM audit_logs WHERE workspace_id = $1 AND credential_id = $2 ORDER BY id LIMIT 1"
);

/// Who a credential was issued to, by its identifier with or without `JTI=`; `None` if it is not on
/// the ledger.
///
/// # Errors
/// The outer error is the database's; the inner one says that the text is no identifier.
pub async fn who(db: &Db, text: &str) -> sqlx::Result<Result<Option<Issuance>, NotACredential>> {
    let text = text.trim();
    let id = text.strip_prefix(PREFIX).unwrap_or(text);
    let Ok(id) = id.parse::<Uuid>() else { return Ok(Err(NotACredential)) };
    let found: Option<Found> = on_engine!(db.reader(), pool =>
        sqlx::query_as(FIND).bind(id.to_string()).fetch_optional(pool).await)?;
    let Some(found) = found else { return Ok(Ok(None)) };
    let audit = on_engine!(db.reader(), pool => sqlx::query_as(AUDITED)
        .bind(found.workspace_id).bind(&found.credential_id)
        .fetch_optional(pool).await)?;
    Ok(Ok(Some(Issuance {
        issued_at: timestamp(found.issued_at),
        expires_at: timestamp(found.expires_at),
        user_id: found.user_id,
        email: found.email,
        workspace_id: found.workspace_id,
        namespace: found.namespace,
        session: Session {
            id: found.session_id,
            client_id: found.client_id,
            user_agent: found.user_agent,
            ip_address: found.ip_address,
            created_at: found.created_at.map(timestamp),
            ended_at: found.ended_at.map(timestamp),
            ended_why: found.ended_why,
        },
        credential_id: found.credential_id,
        audit,
    })))
}

fn or_none<T: ToString>(value: Option<&T>) -> String {
    value.map_or_else(|| "-".to_owned(), ToString::to_string)
}

impl std::fmt::Display for Issuance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            // What a program called itself may hold anything; it stays on its line.
            let value: String =
                value.to_string().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            writeln!(f, "{name:<12} {value}")
        };
        let audit = self.audit.as_ref();
        line("credential", &self.credential_id)?;
        let id = self.user_id.as_ref();
        line("person", &format!("{} ({})", or_none(self.email.as_ref()), or_none(id)))?;
        line("workspace", &self.workspace_id)?;
        line("namespace", &self.namespace)?;
        line("issued", &format!("{} until {}", self.issued_at, self.expires_at))?;
        line("by", &or_none(audit.map(|row| &row.action)))?;
        line("from", &or_none(audit.and_then(|row| row.ip_address.as_ref())))?;
        line("request", &or_none(audit.and_then(|row| row.request_id.as_ref())))?;
        let session = &self.session;
        line("session", &session.id)?;
        line("  client", &or_none(session.client_id.as_ref()))?;
        line("  program", &or_none(session.user_agent.as_ref()))?;
        let since = or_none(session.created_at.as_ref());
        line("  since", &format!("{since}, from {}", or_none(session.ip_address.as_ref())))?;
        if let Some(ended_at) = session.ended_at {
            let why = or_none(session.ended_why.as_ref());
            line("  ended", &format!("{ended_at}: {why}"))?;
        }
        Ok(())
    }
}
