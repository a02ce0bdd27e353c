//! Rows of `tenants` that have, or had, an object in the cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use uuid::Uuid;

use super::undecodable;
use crate::{
    base::{db::Tx, error_chain},
    on_engine,
    tenant::{ApiGroup, TenantName},
};

/// Name in the database of a closed tenant that was suspended.
pub(super) const CLOSED_SUSPENDED: &str = "closed_suspended";

/// Status of a tenant in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantStatus {
    /// Its members and owners have their rights.
    Active,
    /// The rights in the cluster are being revoked.
    Suspending,
    /// Nobody has rights in it.
    Suspended,
    /// The rights in the cluster are being restored.
    Resuming,
    /// Its object is gone, and its name is free.
    Closed,
}

impl TenantStatus {
    /// All statuses.
    pub const ALL: [Self; 5] =
        [Self::Active, Self::Suspending, Self::Suspended, Self::Resuming, Self::Closed];

    /// Statuses until a decision is carried out.
    pub const TRANSITIONS: [Self; 2] = [Self::Suspending, Self::Resuming];

    /// Name in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suspending => "suspending",
            Self::Suspended => "suspended",
            Self::Resuming => "resuming",
            Self::Closed => "closed",
        }
    }

    /// Parses the name of a status.
    pub fn parse(name: &str) -> Option<Self> {
        if name == CLOSED_SUSPENDED {
            return Some(Self::Closed);
        }
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }
}

/// A tenant that has, or had, an object of the kind `Tenant`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantRow {
    /// Identifier of the tenant. An object that was deleted and made again is another tenant.
    pub id: Uuid,
    /// Name of the object. That of a closed tenant may be another tenant's by now.
    pub name: TenantName,
    /// API group of the object.
    pub group: ApiGroup,
    /// `metadata.uid` of the object.
    pub object_uid: String,
    /// Status of the tenant.
    pub status: TenantStatus,
    /// When the status changed, in milliseconds since 1970.
    pub status_changed_at: i64,
    /// When the broker first saw the object, in milliseconds since 1970.
    pub created_at: i64,
}

impl TenantRow {
    /// The row of a tenant that no database has. Its identifier and its times are zero.
    #[cfg(test)]
    pub(crate) fn for_tests(name: &str, status: TenantStatus) -> Self {
        Self {
            id: Uuid::nil(),
            name: name.parse().unwrap(),
            group: ApiGroup::TenantBroker,
            object_uid: "uid-1".to_owned(),
            status,
            status_changed_at: 0,
            created_at: 0,
        }
    }

    /// Whether this is the row of the object with this metadata. An object that was deleted and made
    /// again has another uid.
    pub fn is_row_of(&self, object: &ObjectMeta) -> bool {
        object.uid.as_deref() == Some(self.object_uid.as_str())
    }

    /// Name of the lease under which one replica at a time works on the tenant.
    pub fn lease_name(&self) -> String {
        format!("tenant/{}", self.id)
    }

    /// Whether the row is of the object with this group and uid.
    pub(super) fn is_of(&self, group: ApiGroup, uid: &str) -> bool {
        self.group == group && self.object_uid == uid
    }
}

/// Changes no value but locks the row, and so serializes this transaction with one that suspends or
/// closes the tenant.
const LOCK_ACTIVE: &str = "\
UPDATE tenants SET status = status WHERE id = $1 AND name IS NOT NULL AND status = $2";

/// Locks the row of an active tenant until the transaction ends; `false` if the tenant is
/// suspended, closed or a personal one.
///
/// # Errors
/// The database failed.
pub(crate) async fn lock_active_tenant(tx: &mut Tx, id: Uuid) -> sqlx::Result<bool> {
    on_engine!(tx.connection(), c => sqlx::query(LOCK_ACTIVE)
        .bind(id).bind(TenantStatus::Active.as_str())
        .execute(c).await.map(|done| done.rows_affected() == 1))
}

/// The columns of a row that is no personal tenant.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct StoredTenant {
    id: Uuid,
    name: Option<String>,
    closed_name: Option<String>,
    object_group: String,
    object_uid: String,
    status: String,
    status_changed_at: i64,
    created_at: i64,
}

/// SQL: selects [`StoredTenant`]s.
macro_rules! select_tenant {
    ($rest:literal) => {
        concat!(
            "SELECT id, name, closed_name, object_group, object_uid, status, status_changed_at, \
             created_at FROM tenants ",
            $rest
        )
    };
}
pub(super) use select_tenant;

impl StoredTenant {
    /// The row; `None` if this version cannot read it. The tenant is then left alone, and so the
    /// others are not.
    pub(super) fn readable(self) -> Option<TenantRow> {
        let name = self.name.clone().unwrap_or_default();
        match TenantRow::try_from(self) {
            Ok(row) => Some(row),
            Err(error) => {
                tracing::warn!(
                    tenant = name,
                    error = error_chain(&error),
                    "tenant left alone, because this version cannot read its row"
                );
                None
            }
        }
    }
}

impl TryFrom<StoredTenant> for TenantRow {
    type Error = sqlx::Error;

    /// A value that this version does not know is an error, so that nothing is done to the tenant.
    fn try_from(stored: StoredTenant) -> Result<Self, sqlx::Error> {
        let name = stored.name.or(stored.closed_name).unwrap_or_default();
        let (group, status) = (stored.object_group, stored.status);
        Ok(Self {
            id: stored.id,
            name: name.parse().map_err(|_| undecodable("name", &name))?,
            group: ApiGroup::ALL
                .into_iter()
                .find(|known| known.name() == group)
                .ok_or_else(|| undecodable("object_group", &group))?,
            object_uid: stored.object_uid,
            status: TenantStatus::parse(&status).ok_or_else(|| undecodable("status", &status))?,
            status_changed_at: stored.status_changed_at,
            created_at: stored.created_at,
        })
    }
}
