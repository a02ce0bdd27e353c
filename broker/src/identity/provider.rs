//! People who sign in at a provider: who they are there, and which user they are here.
//!
//! A person is found by issuer and subject and by nothing else. An e-mail address finds nobody: a
//! provider that lets people write what they like must not give anyone another person's workspace.

use tenant_shared::{Role, SignedInAt};
use uuid::Uuid;

use super::{
    Identity,
    email::Email,
    user::{self, ACTIVE},
};
use crate::{
    audit::{self, Action, Event},
    clock::Clock,
    db::{Db, Tx},
    on_engine,
};

/// Somebody whom a provider knows.
#[derive(Debug)]
pub(crate) struct Person<'a> {
    /// Name of the provider in the configuration.
    pub(crate) connector: &'a str,
    /// Identifier of the provider.
    pub(crate) issuer: &'a str,
    /// Identifier of the person there.
    pub(crate) subject: &'a str,
    /// What they are called there.
    pub(crate) username: Option<&'a str>,
    /// Their address, if the provider has verified it.
    pub(crate) email: Option<&'a Email>,
    /// What they may do here.
    pub(crate) role: Role,
}

/// The user that a person is here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// The user.
    pub(crate) user_id: Uuid,
    /// Who they are at the provider.
    pub(crate) identity_id: Uuid,
}

/// A person who may not come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotAdmitted {
    /// Their address belongs to another user, and nobody is made that user by an address.
    EmailTaken,
    /// The account is suspended.
    Suspended(Uuid),
}

/// What can come between two statements, so that the whole is tried again.
enum Tried {
    Done(Result<Known, NotAdmitted>),
    Again,
}

impl Identity {
    /// The user of a person, made at their first sign-in; their role is what the provider says now.
    /// Of several first sign-ins at once one makes the user.
    ///
    /// # Errors
    /// The outer error is the database's.
    pub(crate) async fn admit(
        &self,
        person: &Person<'_>,
    ) -> sqlx::Result<Result<Known, NotAdmitted>> {
        loop {
            let mut tx = self.db.begin().await?;
            let tried = match by_subject(&mut tx, person.issuer, person.subject).await? {
                Some(row) => Tried::Done(self.again(&mut tx, person, &row).await?),
                None => self.first(&mut tx, person).await?,
            };
            match tried {
                Tried::Done(done) => {
                    if done.is_ok() {
                        tx.commit().await?;
                    }
                    return Ok(done);
                }
                // The other sign-in has committed, so the next look finds what it made.
                Tried::Again => drop(tx),
            }
        }
    }

    async fn again(
        &self,
        tx: &mut Tx,
        person: &Person<'_>,
        row: &Row,
    ) -> sqlx::Result<Result<Known, NotAdmitted>> {
        if row.status != ACTIVE {
            return Ok(Err(NotAdmitted::Suspended(row.user_id)));
        }
        set_role(tx, &self.clock, row.user_id, person.role, person.connector).await?;
        let now = self.clock.now_ms();
        on_engine!(tx.connection(), c => sqlx::query(SEEN)
            .bind(row.id).bind(person.username).bind(now).execute(c).await.map(drop))?;
        if let Some(email) = person.email {
            // Taken from nobody: an address that another user has stays theirs.
            on_engine!(tx.connection(), c => sqlx::query(SET_EMAIL)
                .bind(row.user_id).bind(email.as_str()).execute(c).await.map(drop))?;
        }
        Ok(Ok(Known { user_id: row.user_id, identity_id: row.id }))
    }

    async fn first(&self, tx: &mut Tx, person: &Person<'_>) -> sqlx::Result<Tried> {
        let (user_id, identity_id) = (self.clock.random_id(), self.clock.random_id());
        let now = self.clock.now_ms();
        let email = match person.email {
            Some(email) => email.as_str().to_owned(),
            None => placeholder(user_id),
        };
        let new = user::New { id: user_id, email: &email, password_hash: None, role: person.role };
        if !user::insert(tx, &new, now).await? {
            // Perhaps by another first sign-in of the same person.
            let made = by_subject(tx, person.issuer, person.subject).await?;
            return Ok(match made {
                Some(_) => Tried::Again,
                None => Tried::Done(Err(NotAdmitted::EmailTaken)),
            });
        }
        let inserted = on_engine!(tx.connection(), c => sqlx::query(INSERT)
            .bind(identity_id).bind(user_id).bind(person.issuer).bind(person.subject)
            .bind(person.username).bind(now)
            .execute(c).await.map(|done| done.rows_affected() == 1))?;
        if !inserted {
            return Ok(Tried::Again);
        }
        let event = Event {
            user_id: Some(user_id),
            reason: Some(format!("from {}, role {}", person.connector, person.role.as_str())),
            ..Event::success(Action::CreateUser)
        };
        audit::record(tx, &self.clock, event).await?;
        Ok(Tried::Done(Ok(Known { user_id, identity_id })))
    }
}

/// What stands for the address of a person who has none: unique, and below a
/// domain that nobody can own (RFC 2606 section 2).
pub(crate) fn placeholder(user_id: Uuid) -> String {
    format!("{user_id}@no-verified-email.invalid")
}

/// Gives a user the role that the provider says, and records it if it is another one.
///
/// # Errors
/// The database's.
pub(crate) async fn set_role(
    tx: &mut Tx,
    clock: &Clock,
    user_id: Uuid,
    role: Role,
    connector: &str,
) -> sqlx::Result<()> {
    let changed = on_engine!(tx.connection(), c => sqlx::query(SET_ROLE)
        .bind(user_id).bind(role.as_str())
        .execute(c).await.map(|done| done.rows_affected() == 1))?;
    if !changed {
        return Ok(());
    }
    let event = Event {
        reason: Some(format!("{connector} says: {}", role.as_str())),
        ..Event::success(Action::ChangeRole)
    }
    .to_user(user_id);
    audit::record(tx, clock, event).await
}

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    user_id: Uuid,
    status: String,
}

const BY_SUBJECT: &str = "\
SELECT i.id, i.user_id, u.status FROM identities i JOIN users u ON u.id = i.user_id \
WHERE i.issuer = $1 AND i.subject = $2";

async fn by_subject(tx: &mut Tx, issuer: &str, subject: &str) -> sqlx::Result<Option<Row>> {
    on_engine!(tx.connection(), c => sqlx::query_as(BY_SUBJECT)
        .bind(issuer).bind(subject).fetch_optional(c).await)
}

const INSERT: &str = "\
INSERT INTO identities (id, user_id, issuer, subject, username, created_at, signed_in_at) \
VALUES ($1, $2, $3, $4, $5, $6, $6) ON CONFLICT (issuer, subject) DO NOTHING";

const SEEN: &str = "UPDATE identities SET username = $2, signed_in_at = $3 WHERE id = $1";

const SET_EMAIL: &str = "\
UPDATE users SET email = $2 WHERE id = $1 AND email <> $2 \
  AND NOT EXISTS (SELECT 1 FROM users o WHERE o.email = $2 AND o.id <> $1)";

const SET_ROLE: &str = "UPDATE users SET role = $2 WHERE id = $1 AND role <> $2";

const SIGNED_IN_AT: &str = "\
SELECT connector, username, removal_seconds FROM upstream_grants WHERE session_id = $1";

/// The provider that a session began at.
///
/// # Errors
/// The database's.
pub(super) async fn signed_in_at(db: &Db, session_id: Uuid) -> sqlx::Result<Option<SignedInAt>> {
    let row: Option<(String, Option<String>, i64)> = on_engine!(db.reader(), pool =>
        sqlx::query_as(SIGNED_IN_AT).bind(session_id).fetch_optional(pool).await)?;
    Ok(row.map(|(name, username, removal_seconds)| SignedInAt { name, username, removal_seconds }))
}
