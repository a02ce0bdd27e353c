//! SQL on the names and groups of people, in `users` and `identities`.

use std::collections::BTreeMap;

use sqlx::QueryBuilder;
use uuid::Uuid;

use super::{Groups, NameOwnership, RbacUser, RbacUserRules};
use crate::{
    base::db::{Db, Tx},
    on_engine,
};

/// Maximum people of one statement; far below the limits of both engines on parameters.
const MAX_BATCH: usize = 500;

const PERSONS: &str = "\
SELECT u.id, u.email, u.email_verified_by, u.groups, i.issuer, i.user_name, \
  i.groups AS provider_groups \
FROM users u LEFT JOIN identities i ON i.user_id = u.id \
WHERE u.status = 'active' AND u.id IN (";

#[derive(sqlx::FromRow)]
struct RbacUserRow {
    id: Uuid,
    email: String,
    email_verified_by: Option<String>,
    groups: Option<String>,
    issuer: Option<String>,
    user_name: Option<String>,
    provider_groups: Option<String>,
}

/// The Kubernetes user names and groups of these users. A user who may not sign in, or does not
/// exist, is left out. One statement reads up to 500 users.
///
/// # Errors
/// The database failed, or a row has groups in another form.
pub async fn rbac_users(
    db: &Db,
    rules: &RbacUserRules,
    users: &[Uuid],
) -> sqlx::Result<BTreeMap<Uuid, RbacUser>> {
    let mut persons: BTreeMap<Uuid, RbacUser> = BTreeMap::new();
    for batch in users.chunks(MAX_BATCH) {
        for row in select(db, batch).await? {
            let person = persons.entry(row.id).or_default();
            person.groups.insert(rules.everybody.clone());
            for column in [&row.groups, &row.provider_groups] {
                person.groups.extend(Groups::from_column(column.as_deref())?.into_names());
            }
            let ownership = NameOwnership {
                verified_email: row.email_verified_by.is_some().then_some(row.email.as_str()),
                at_provider: row.issuer.as_deref().zip(row.user_name.as_deref()),
            };
            // Of several identities, which no broker gives a user today, the first one's name.
            if person.user_name.is_none() {
                person.user_name = rules.user_name(&ownership);
            }
        }
    }
    Ok(persons)
}

async fn select(db: &Db, users: &[Uuid]) -> sqlx::Result<Vec<RbacUserRow>> {
    on_engine!(db.reader(), pool => {
        let mut statement = QueryBuilder::new(PERSONS);
        let mut identifiers = statement.separated(", ");
        for id in users {
            identifiers.push_bind(*id);
        }
        statement.push(") ORDER BY u.id, i.id");
        // Each number of users is a different statement; caching them would evict others.
        statement.build_query_as().persistent(false).fetch_all(pool).await
    })
}

const CHANGED: &str = "\
SELECT id, person_changed_at FROM users WHERE person_changed_at > $1";

/// The users whose user name or groups changed after this time, and when, in milliseconds since
/// 1970. A change is stamped before its transaction commits, so polls have to overlap. Brokers of versions
/// before migration 0018 stamp nothing.
///
/// # Errors
/// The database failed.
pub async fn rbac_users_changed_since(db: &Db, since: i64) -> sqlx::Result<Vec<(Uuid, i64)>> {
    on_engine!(db.reader(), pool =>
        sqlx::query_as(CHANGED).bind(since).fetch_all(pool).await)
}

const MARK_CHANGED: &str = "UPDATE users SET person_changed_at = $2 WHERE id = $1";

/// Records that the user name or the groups of a user changed.
pub(in crate::identity) async fn mark_changed(
    tx: &mut Tx,
    user_id: Uuid,
    now: i64,
) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c =>
        sqlx::query(MARK_CHANGED).bind(user_id).bind(now).execute(c).await.map(drop))
}

/// Groups and user name of an identity, as stored.
type OfProvider = (Option<String>, Option<String>);

const FIND_OF_PROVIDER: &str = "SELECT groups, user_name FROM identities WHERE id = $1";

/// Locks the row without changing it.
const LOCK_OF_PROVIDER: &str = "\
UPDATE identities SET groups = groups WHERE id = $1 RETURNING groups, user_name";

const SET_OF_PROVIDER: &str = "UPDATE identities SET groups = $2, user_name = NULL WHERE id = $1";

const CLAIM_USER_NAME: &str = "\
UPDATE identities SET user_name = $2 WHERE id = $1 AND NOT EXISTS \
  (SELECT 1 FROM identities o \
   WHERE o.issuer = identities.issuer AND o.user_name = $2 AND o.id <> $1)";

/// Stores the groups and the user name that a provider says. A name that another person of the
/// provider has stays theirs, and this person has none then. Returns the groups before, which are
/// the same if only the user name changed; `None` if nothing did.
pub(in crate::identity) async fn set_of_provider(
    tx: &mut Tx,
    identity_id: Uuid,
    groups: &Groups,
    user_name: Option<&str>,
) -> sqlx::Result<Option<Groups>> {
    let column = groups.to_column();
    // Mostly nothing changed, and then nothing is written.
    let (known_groups, known_name): OfProvider = on_engine!(tx.connection(), c =>
        sqlx::query_as(FIND_OF_PROVIDER).bind(identity_id).fetch_one(c).await)?;
    if known_groups == column && known_name.as_deref() == user_name {
        return Ok(None);
    }
    let (before, name_before): OfProvider = on_engine!(tx.connection(), c =>
        sqlx::query_as(LOCK_OF_PROVIDER).bind(identity_id).fetch_one(c).await)?;
    on_engine!(tx.connection(), c => sqlx::query(SET_OF_PROVIDER)
        .bind(identity_id).bind(&column).execute(c).await.map(drop))?;
    let is_theirs = match user_name {
        Some(wanted) => tx.update_if_unique(CLAIM_USER_NAME, identity_id, wanted).await?,
        None => false,
    };
    if before == column && name_before.as_deref() == user_name.filter(|_| is_theirs) {
        return Ok(None);
    }
    // A value that cannot be read is replaced: it must not stop every later sign-in.
    Ok(Some(Groups::from_column(before.as_deref()).unwrap_or_default()))
}

/// Locks the row without changing it.
const LOCK_GIVEN: &str = "UPDATE users SET groups = groups WHERE id = $1 RETURNING groups";

const COUNT_IDENTITIES: &str = "SELECT COUNT(*) FROM identities WHERE user_id = $1";

const SET_GIVEN: &str = "UPDATE users SET groups = $2, person_changed_at = $3 WHERE id = $1";

/// Result of giving groups to a user.
#[derive(Debug)]
pub(crate) enum GivenGroups {
    /// The user has them now instead of these.
    Replaced(Groups),
    /// The groups of the user come from a provider. Nothing was changed.
    OfProvider,
}

/// Replaces the groups that an administrator gave a user. `None` if there is no such user.
pub(crate) async fn give_groups(
    tx: &mut Tx,
    user_id: Uuid,
    groups: &Groups,
    now: i64,
) -> sqlx::Result<Option<GivenGroups>> {
    let row: Option<(Option<String>,)> = on_engine!(tx.connection(), c =>
        sqlx::query_as(LOCK_GIVEN).bind(user_id).fetch_optional(c).await)?;
    let Some((before,)) = row else { return Ok(None) };
    let identities: i64 = on_engine!(tx.connection(), c =>
        sqlx::query_scalar(COUNT_IDENTITIES).bind(user_id).fetch_one(c).await)?;
    if identities > 0 {
        return Ok(Some(GivenGroups::OfProvider));
    }
    let column = groups.to_column();
    if before != column {
        on_engine!(tx.connection(), c => sqlx::query(SET_GIVEN)
            .bind(user_id).bind(&column).bind(now).execute(c).await.map(drop))?;
    }
    Groups::from_column(before.as_deref()).map(|before| Some(GivenGroups::Replaced(before)))
}

const GROUPS_OF_USER: &str = "\
SELECT u.email, u.groups, i.issuer, i.groups AS provider_groups \
FROM users u LEFT JOIN identities i ON i.user_id = u.id WHERE u.id = $1 ORDER BY i.id";

/// The groups of a user, and who decides on them.
#[derive(Debug)]
pub(crate) struct UserGroupsRow {
    pub(crate) email: String,
    pub(crate) groups: Groups,
    /// Issuer identifier of the provider that decides; `None` for a local account.
    pub(crate) issuer: Option<String>,
}

/// The groups of a user without that of everybody. `None` if there is no such user.
pub(crate) async fn groups_of_user(db: &Db, user_id: Uuid) -> sqlx::Result<Option<UserGroupsRow>> {
    type GroupsRow = (String, Option<String>, Option<String>, Option<String>);
    let row: Option<GroupsRow> = on_engine!(db.reader(), pool =>
        sqlx::query_as(GROUPS_OF_USER).bind(user_id).fetch_optional(pool).await)?;
    let Some((email, given, issuer, of_provider)) = row else { return Ok(None) };
    let column = if issuer.is_some() { of_provider } else { given };
    let groups = Groups::from_column(column.as_deref())?;
    Ok(Some(UserGroupsRow { email, groups, issuer }))
}
