//! Identities at upstream providers, and the users that they belong to.
//!
//! A user is found by issuer and subject and by nothing else, never by e-mail address, because a
//! provider that lets people choose any address must not give anyone another person's workspace.

use tenant_shared::{Role, SignedInAt};
use uuid::Uuid;

use super::{
    Email, Groups, Identity, rbac_user,
    users::{self, ACTIVE},
};
use crate::{
    audit::{self, Action, Event},
    base::db::Tx,
    on_engine,
};

/// A person as an upstream provider describes them.
#[derive(Debug)]
pub(crate) struct UpstreamIdentity<'a> {
    /// Name of the provider in the configuration.
    pub(crate) connector: &'a str,
    /// Issuer identifier of the provider (`iss`).
    pub(crate) issuer: &'a str,
    /// Identifier of the person at the provider (`sub`).
    pub(crate) subject: &'a str,
    /// User name at the provider, as people see it.
    pub(crate) username: Option<&'a str>,
    /// What the provider says about the person at each sign-in and check.
    pub(crate) claims: UpstreamClaims<'a>,
}

/// What an upstream provider says about a person at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpstreamClaims<'a> {
    /// E-mail address, if the provider has verified it.
    pub(crate) email: Option<&'a Email>,
    /// Role in the broker, from the provider's groups.
    pub(crate) role: Role,
    /// User name for Kubernetes.
    pub(crate) user_name: Option<&'a str>,
    /// Groups for Kubernetes.
    pub(crate) groups: &'a Groups,
}

/// The user that an upstream identity belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmittedUser {
    /// The user's identifier.
    pub(crate) user_id: Uuid,
    /// Identifier of the row in `identities`.
    pub(crate) identity_id: Uuid,
}

/// Error of the admission of an upstream identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotAdmitted {
    /// Another user has the e-mail address; an address never links an identity to a user.
    EmailTaken,
    /// The user with this identifier is suspended.
    Suspended(Uuid),
}

/// Result of one try to admit an identity; a concurrent first sign-in makes it retry.
enum Admission {
    Done(Result<AdmittedUser, NotAdmitted>),
    Retry,
}

impl Identity {
    /// Finds the user of an upstream identity, or creates it at the first sign-in. What the
    /// provider says now is taken over. Of several concurrent first sign-ins one creates the user.
    ///
    /// # Errors
    /// The outer error: the database failed. The inner error: the identity is not admitted.
    pub(crate) async fn admit(
        &self,
        upstream: &UpstreamIdentity<'_>,
    ) -> sqlx::Result<Result<AdmittedUser, NotAdmitted>> {
        loop {
            let mut tx = self.db.begin().await?;
            let admission = match find_by_subject(&mut tx, upstream.issuer, upstream.subject)
                .await?
            {
                Some(row) => Admission::Done(self.update_returning(&mut tx, upstream, &row).await?),
                None => self.create_user_for(&mut tx, upstream).await?,
            };
            match admission {
                Admission::Done(done) => {
                    if done.is_ok() {
                        tx.commit().await?;
                    }
                    return Ok(done);
                }
                // The other sign-in has committed, so the next lookup finds the user that it
                // created.
                Admission::Retry => drop(tx),
            }
        }
    }

    async fn update_returning(
        &self,
        tx: &mut Tx,
        upstream: &UpstreamIdentity<'_>,
        row: &IdentityRow,
    ) -> sqlx::Result<Result<AdmittedUser, NotAdmitted>> {
        if row.status != ACTIVE {
            return Ok(Err(NotAdmitted::Suspended(row.user_id)));
        }
        let now = self.clock.now_ms();
        on_engine!(tx.connection(), c => sqlx::query(UPDATE_SIGN_IN)
            .bind(row.id).bind(upstream.username).bind(now).execute(c).await.map(drop))?;
        let user = AdmittedUser { user_id: row.user_id, identity_id: row.id };
        self.apply_claims(tx, user, &upstream.claims, upstream.connector).await?;
        Ok(Ok(user))
    }

    async fn create_user_for(
        &self,
        tx: &mut Tx,
        upstream: &UpstreamIdentity<'_>,
    ) -> sqlx::Result<Admission> {
        let (user_id, identity_id) = (self.clock.random_id(), self.clock.random_id());
        let now = self.clock.now_ms();
        let role = upstream.claims.role;
        let (email, email_verified_by) = match upstream.claims.email {
            Some(email) => (email.as_str().to_owned(), Some(users::EmailVerifier::Provider)),
            None => (placeholder_email(user_id), None),
        };
        let new = users::NewUser {
            id: user_id,
            email: &email,
            email_verified_by,
            password_hash: None,
            role,
        };
        if !users::insert(tx, &new, now).await? {
            // The address is taken, perhaps by a concurrent first sign-in of the same identity.
            let made = find_by_subject(tx, upstream.issuer, upstream.subject).await?;
            return Ok(match made {
                Some(_) => Admission::Retry,
                None => Admission::Done(Err(NotAdmitted::EmailTaken)),
            });
        }
        let inserted = on_engine!(tx.connection(), c => sqlx::query(INSERT)
            .bind(identity_id).bind(user_id).bind(upstream.issuer).bind(upstream.subject)
            .bind(upstream.username).bind(now)
            .execute(c).await.map(|done| done.rows_affected() == 1))?;
        if !inserted {
            return Ok(Admission::Retry);
        }
        let event = Event {
            user_id: Some(user_id),
            reason: Some(format!("from {}, role {}", upstream.connector, role.as_str())),
            ..Event::success(Action::CreateUser)
        };
        audit::record(tx, &self.clock, event).await?;
        let user = AdmittedUser { user_id, identity_id };
        self.apply_claims(tx, user, &upstream.claims, upstream.connector).await?;
        Ok(Admission::Done(Ok(user)))
    }

    /// Takes over what a provider says about a person: groups and user name for Kubernetes, role,
    /// and a verified e-mail address that no other user has. Changes of groups and role are
    /// recorded in the audit trail.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn apply_claims(
        &self,
        tx: &mut Tx,
        user: AdmittedUser,
        claims: &UpstreamClaims<'_>,
        connector: &str,
    ) -> sqlx::Result<()> {
        let AdmittedUser { user_id, identity_id } = user;
        let now = self.clock.now_ms();
        // The identity before the user, always, so that a sign-in and a check do not deadlock.
        let before =
            rbac_user::set_of_provider(tx, identity_id, claims.groups, claims.user_name).await?;
        if let Some(before) = before {
            rbac_user::mark_changed(tx, user_id, now).await?;
            if before != *claims.groups {
                let change = before.describe_change(claims.groups);
                let event = Event {
                    reason: Some(format!("{connector} says: {change}")),
                    ..Event::success(Action::ChangeGroups)
                }
                .to_user(user_id);
                audit::record(tx, &self.clock, event).await?;
            }
        }
        self.set_role(tx, user_id, claims.role, connector).await?;
        let email = claims.email.map(Email::as_str);
        users::set_email_of_provider(tx, user_id, email, now).await
    }

    /// Sets the role that the provider says, and records it in the audit trail if it changed.
    async fn set_role(
        &self,
        tx: &mut Tx,
        user_id: Uuid,
        role: Role,
        connector: &str,
    ) -> sqlx::Result<()> {
        if !users::set_role(tx, user_id, role).await? {
            return Ok(());
        }
        let event = Event {
            reason: Some(format!("{connector} says: {}", role.as_str())),
            ..Event::success(Action::ChangeRole)
        }
        .to_user(user_id);
        audit::record(tx, &self.clock, event).await
    }

    /// Finds the provider at which a session was started.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn provider_of_session(
        &self,
        session_id: Uuid,
    ) -> sqlx::Result<Option<SignedInAt>> {
        let row: Option<(String, Option<String>, i64)> = on_engine!(self.db.reader(), pool =>
            sqlx::query_as(FIND_PROVIDER).bind(session_id).fetch_optional(pool).await)?;
        let to_api =
            |(name, username, removal_seconds)| SignedInAt { name, username, removal_seconds };
        Ok(row.map(to_api))
    }
}

/// Placeholder address of a user who has no verified one: unique, and below a domain that nobody
/// can own (RFC 2606 section 2).
pub(crate) fn placeholder_email(user_id: Uuid) -> String {
    format!("{user_id}@no-verified-email.invalid")
}

#[derive(sqlx::FromRow)]
struct IdentityRow {
    id: Uuid,
    user_id: Uuid,
    status: String,
}

const FIND_BY_SUBJECT: &str = "\
SELECT i.id, i.user_id, u.status FROM identities i JOIN users u ON u.id = i.user_id \
WHERE i.issuer = $1 AND i.subject = $2";

async fn find_by_subject(
    tx: &mut Tx,
    issuer: &str,
    subject: &str,
) -> sqlx::Result<Option<IdentityRow>> {
    on_engine!(tx.connection(), c => sqlx::query_as(FIND_BY_SUBJECT)
        .bind(issuer).bind(subject).fetch_optional(c).await)
}

const INSERT: &str = "\
INSERT INTO identities (id, user_id, issuer, subject, username, created_at, signed_in_at) \
VALUES ($1, $2, $3, $4, $5, $6, $6) ON CONFLICT (issuer, subject) DO NOTHING";

const UPDATE_SIGN_IN: &str = "UPDATE identities SET username = $2, signed_in_at = $3 WHERE id = $1";

const FIND_PROVIDER: &str = "\
SELECT connector, username, removal_seconds FROM session_providers WHERE session_id = $1";
