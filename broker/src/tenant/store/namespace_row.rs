//! Rows of `tenant_namespaces`.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::undecodable;
use crate::base::error_chain;

/// Status of a namespace of a tenant in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceStatus {
    /// Its objects are being created.
    Creating,
    /// All of its objects exist.
    Active,
    /// It exists beyond the quota of the tenant, so nobody has rights in it.
    OverQuota,
    /// It is being deleted.
    Terminating,
    /// It was deleted by others, and is not made again.
    Gone,
    /// Its tenant was closed. It does not belong to a later tenant of the same name.
    Orphaned,
}

impl NamespaceStatus {
    /// All statuses.
    pub const ALL: [Self; 6] = [
        Self::Creating,
        Self::Active,
        Self::OverQuota,
        Self::Terminating,
        Self::Gone,
        Self::Orphaned,
    ];

    /// Name in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Active => "active",
            Self::OverQuota => "over_quota",
            Self::Terminating => "terminating",
            Self::Gone => "gone",
            Self::Orphaned => "orphaned",
        }
    }

    /// Parses the name of a status.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// Whether a namespace of this status is counted in the quota of its tenant.
    pub fn counts(self) -> bool {
        matches!(self, Self::Creating | Self::Active | Self::Terminating)
    }
}

/// A namespace of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceRow {
    /// Name of the namespace.
    pub name: String,
    /// Identifier of the tenant that it belongs to, or belonged to when that was closed.
    pub tenant_id: Uuid,
    /// Status of the namespace.
    pub status: NamespaceStatus,
    /// The user who made it; `None` if it was made at the API server.
    pub made_by: Option<Uuid>,
    /// When the tenant claimed it, in milliseconds since 1970.
    pub created_at: i64,
    /// When the status was last set, in milliseconds since 1970. Of a row that is `Creating` it is
    /// also set when the namespace is first seen in the cluster.
    pub change_at: i64,
}

impl NamespaceRow {
    /// Whether the namespace was seen in the cluster since it was claimed. A claim has one time, and
    /// each later change has another.
    pub fn was_seen(&self) -> bool {
        self.change_at != self.created_at
    }
}

/// The rows of a tenant's namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceRows {
    /// Rows by name.
    pub rows: Vec<NamespaceRow>,
    /// Names of the namespaces whose rows this version cannot read. They are left alone.
    pub unreadable: BTreeSet<String>,
}

impl NamespaceRows {
    /// Decodes rows, each on its own.
    pub(super) fn decode(stored: Vec<StoredNamespace>) -> Self {
        let mut all = Self::default();
        for stored in stored {
            let name = stored.name.clone();
            match NamespaceRow::try_from(stored) {
                Ok(row) => all.rows.push(row),
                Err(error) => {
                    tracing::warn!(
                        namespace = name,
                        error = error_chain(&error),
                        "namespace left alone, because this version cannot read its row"
                    );
                    all.unreadable.insert(name);
                }
            }
        }
        all.rows.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }
}

/// The columns of a row.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct StoredNamespace {
    name: String,
    tenant_id: Uuid,
    status: String,
    made_by: Option<Uuid>,
    created_at: i64,
    change_at: i64,
}

/// SQL: selects [`StoredNamespace`]s.
macro_rules! select_namespace {
    ($rest:literal) => {
        concat!(
            "SELECT name, tenant_id, status, made_by, created_at, change_at FROM tenant_namespaces ",
            $rest
        )
    };
}
pub(super) use select_namespace;

impl TryFrom<StoredNamespace> for NamespaceRow {
    type Error = sqlx::Error;

    /// A status that this version does not know is an error, so that nothing is done to the
    /// namespace.
    fn try_from(stored: StoredNamespace) -> Result<Self, sqlx::Error> {
        let StoredNamespace { name, tenant_id, status, made_by, created_at, change_at } = stored;
        let status =
            NamespaceStatus::parse(&status).ok_or_else(|| undecodable("status", &status))?;
        Ok(Self { name, tenant_id, status, made_by, created_at, change_at })
    }
}
