//! Checks of the database: the role of the broker, and namespaces that no workspace has.

use super::Check;
use crate::{
    base::{
        db::{DatabaseRole, Db},
        error_chain,
    },
    cluster::Cluster,
    workspace,
};

/// The expected state of the PostgreSQL role.
const ROLE_TITLE: &str = "the broker's PostgreSQL role reaches no further than its database";
/// The expected state of the namespaces.
const TITLE: &str = "every namespace of a tenant has its workspace in the database";
/// Limit of names in the detail. An administrator has to go through them one by one.
const MAX_NAMED: usize = 50;

/// Checks the database, and compares the cluster with it. SQLite has no roles, and without tables
/// there is nothing to compare.
pub async fn check_database(cluster: &Cluster, db: &Db) -> Vec<Check> {
    let role = match db.role().await {
        Ok(role) => role.as_ref().map(check_role),
        Err(error) => Some(Check::warned(ROLE_TITLE, error_chain(&error))),
    };
    role.into_iter().chain(compare_namespaces(cluster, db).await).collect()
}

/// It only warns, because the broker works with any role.
fn check_role(role: &DatabaseRole) -> Check {
    if role.excess_attributes.is_empty() {
        return Check::passed(ROLE_TITLE, "");
    }
    Check::warned(
        ROLE_TITLE,
        format!(
            "{} has {}: a stolen database.url gives rights on the whole server. As another superuser \
             run {}; if PostgreSQL refuses, give the broker a role of its own (docs/upgrade.md)",
            role.name,
            role.excess_attributes.join(", "),
            role.alter_statement()
        ),
    )
}

/// Finds namespaces of tenants that no workspace in the database has; `None` if the database has no
/// tables yet. It only warns, because nobody gets tokens for such a namespace.
async fn compare_namespaces(cluster: &Cluster, db: &Db) -> Option<Check> {
    match db.schema_status().await {
        Ok(status) if status.schema == 0 => return None,
        Ok(_) => {}
        Err(error) => return Some(Check::warned(TITLE, error_chain(&error))),
    }
    Some(match workspace::orphaned_namespaces(cluster, db).await {
        Ok(orphans) if orphans.is_empty() => Check::passed(TITLE, ""),
        Ok(orphans) => {
            let names: Vec<&str> = orphans.iter().take(MAX_NAMED).map(String::as_str).collect();
            Check::warned(
                TITLE,
                format!(
                    "{} have none, {} among them: they were created after the backup that was \
                     restored, or by a broker with another database. Nobody gets tokens for them, \
                     and nothing deletes them (docs/backup.md)",
                    orphans.len(),
                    names.join(", ")
                ),
            )
        }
        Err(error) => Check::warned(TITLE, error_chain(&error)),
    })
}

/// The check of the namespaces where the database could not be opened.
pub fn unreachable_database(why: &str) -> Check {
    Check::warned(TITLE, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        doctor::CheckOutcome,
        testing::{On, Storage, on_both_engines},
    };

    on_both_engines!(the_role_is_checked_on_postgresql_only);

    async fn the_role_is_checked_on_postgresql_only(on: On) {
        let storage = Storage::new(on).await;
        let checks = check_database(&storage.no_cluster().await, &storage.db).await;
        let checks_role = checks.iter().any(|check| check.check == ROLE_TITLE);
        assert_eq!(checks_role, matches!(on, On::Postgres), "{checks:?}");
    }

    #[test]
    fn the_warning_about_a_role_says_what_to_do() {
        let mut role = DatabaseRole { name: "broker".to_owned(), excess_attributes: Vec::new() };
        assert_eq!(check_role(&role).outcome, CheckOutcome::Pass);
        role.excess_attributes = vec!["SUPERUSER", "BYPASSRLS"];
        let check = check_role(&role);
        assert_eq!(check.outcome, CheckOutcome::Warn);
        let advice = "ALTER ROLE \"broker\" NOSUPERUSER NOBYPASSRLS";
        assert!(check.detail.contains(advice), "{}", check.detail);
    }
}
