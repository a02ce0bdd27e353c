//! The role as which the broker connects to PostgreSQL.

use super::Db;

/// `session_user` is the role of the URL. `current_user` may be another one after `SET ROLE`, which
/// anybody with the URL can undo.
const SELECT_ROLE: &str = "\
SELECT CAST(rolname AS TEXT), rolsuper, rolcreaterole, rolbypassrls \
FROM pg_roles WHERE rolname = session_user";

/// A role of PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseRole {
    /// Its name, unquoted.
    pub name: String,
    /// Attributes (PostgreSQL, "CREATE ROLE") that reach beyond the broker's database, which the
    /// broker does not need.
    pub excess_attributes: Vec<&'static str>,
}

impl DatabaseRole {
    /// The statement that takes these attributes away.
    pub fn alter_statement(&self) -> String {
        let name = self.name.replace('"', "\"\"");
        let attributes: Vec<String> =
            self.excess_attributes.iter().map(|attribute| format!("NO{attribute}")).collect();
        format!("ALTER ROLE \"{name}\" {}", attributes.join(" "))
    }
}

impl Db {
    /// The role that is signed in; `None` for SQLite, which has no roles.
    ///
    /// # Errors
    /// The database does not answer, or the role may not read `pg_roles`.
    pub async fn role(&self) -> sqlx::Result<Option<DatabaseRole>> {
        let Self::Postgres(pool) = self else { return Ok(None) };
        let found: Option<(String, bool, bool, bool)> =
            sqlx::query_as(SELECT_ROLE).fetch_optional(pool).await?;
        Ok(found.map(|(name, is_superuser, creates_roles, bypasses_row_security)| {
            let attributes = [
                (is_superuser, "SUPERUSER"),
                (creates_roles, "CREATEROLE"),
                (bypasses_row_security, "BYPASSRLS"),
            ];
            let excess = attributes.into_iter().filter(|(has_it, _)| *has_it);
            DatabaseRole { name, excess_attributes: excess.map(|(_, it)| it).collect() }
        }))
    }
}
