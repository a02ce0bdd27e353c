//! Resolution of a credential: from the credential id in the audit log of the cluster to the user.

use serde::Serialize;
use tenant_shared::sanitize;
use uuid::Uuid;

use crate::{
    audit::{self, AuditTrail},
    base::{clock::timestamp, db::Db},
    on_engine,
};

/// The prefix that the API server puts before the `jti` of a token in
/// `authentication.kubernetes.io/credential-id`.
const JTI_PREFIX: &str = "JTI=";

/// A text that is not a credential id.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "not a credential id: the audit log of the API server has it as \
     authentication.kubernetes.io/credential-id, JTI= and a UUID"
)]
pub struct InvalidCredentialId;

/// An issued credential and everything that the broker knows about it.
#[derive(Clone, Debug, Serialize)]
pub struct Issuance {
    /// The `jti` of the token.
    pub credential_id: String,
    /// When it was issued.
    pub issued_at: jiff::Timestamp,
    /// When it expires, unless it was revoked before.
    pub expires_at: jiff::Timestamp,
    /// The user it was issued to.
    pub user_id: Option<Uuid>,
    /// Current e-mail address of the user.
    pub email: Option<String>,
    /// The workspace it gives access to.
    pub workspace_id: Uuid,
    /// Namespace of the workspace.
    pub namespace: String,
    /// The session that requested it.
    pub session: Session,
    /// Audit row of the issuance; `None` once retention has deleted it.
    pub audit: Option<audit::TrailRow>,
}

/// The session that requested the credential.
#[derive(Clone, Debug, Serialize)]
pub struct Session {
    pub id: Uuid,
    /// OAuth client id.
    pub client_id: Option<String>,
    /// User agent of the client when the session began.
    pub user_agent: Option<String>,
    /// Client address when the session began.
    pub ip_address: Option<String>,
    /// When the session began.
    pub created_at: Option<jiff::Timestamp>,
    /// When the session ended, if it did.
    pub ended_at: Option<jiff::Timestamp>,
    pub ended_why: Option<String>,
}

#[derive(sqlx::FromRow)]
struct LedgerRow {
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

const FIND_CREDENTIAL: &str = "\
SELECT c.credential_id, c.issued_at, c.expires_at, s.user_id, e.email, c.workspace_id, \
  COALESCE(h.home, m.namespace) AS namespace, c.session_id, s.client_id, s.user_agent, \
  s.ip_address, s.created_at, s.ended_at, s.ended_why \
FROM issued_credentials c \
JOIN workspace_members m ON m.workspace_id = c.workspace_id \
LEFT JOIN membership_homes h ON h.workspace_id = c.workspace_id \
LEFT JOIN user_sessions s ON s.session_id = c.session_id \
LEFT JOIN user_emails e ON e.user_id = s.user_id \
WHERE c.credential_id = $1";

/// Finds the user whom a credential was issued to. `text` is the credential id, with or without
/// `JTI=`. `None` if the ledger has no such credential.
///
/// # Errors
/// The outer error is that of the database; the inner one says that `text` is not a credential id.
pub async fn resolve_credential(
    db: &Db,
    text: &str,
) -> sqlx::Result<Result<Option<Issuance>, InvalidCredentialId>> {
    let text = text.trim();
    let id = text.strip_prefix(JTI_PREFIX).unwrap_or(text);
    let Ok(id) = id.parse::<Uuid>() else { return Ok(Err(InvalidCredentialId)) };
    let found: Option<LedgerRow> = on_engine!(db.reader(), pool =>
        sqlx::query_as(FIND_CREDENTIAL).bind(id.to_string()).fetch_optional(pool).await)?;
    let Some(found) = found else { return Ok(Ok(None)) };
    let audit = AuditTrail::new(db.clone());
    let audit = audit.issuance(found.workspace_id, &found.credential_id).await?;
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
            // The client chooses its user agent.
            writeln!(f, "{name:<12} {}", sanitize(&value.to_string()))
        };
        let audit = self.audit.as_ref();
        line("credential", &self.credential_id)?;
        let id = self.user_id.as_ref();
        line("person", &format!("{} ({})", or_none(self.email.as_ref()), or_none(id)))?;
        line("workspace", &self.workspace_id)?;
        line("namespace", &self.namespace)?;
        line("issued", &format!("{} until {}", self.issued_at, self.expires_at))?;
        line("by", &or_none(audit.map(audit::TrailRow::action).as_ref()))?;
        line("from", &or_none(audit.and_then(audit::TrailRow::ip_address).as_ref()))?;
        line("request", &or_none(audit.and_then(audit::TrailRow::request_id).as_ref()))?;
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
