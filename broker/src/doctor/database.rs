//! Comparison of the cluster with the database: namespaces that no workspace has.

use super::Check;
use crate::{
    base::{db::Db, error_chain},
    cluster::Cluster,
    workspace,
};

/// The expected state.
const TITLE: &str = "every namespace of a tenant has its workspace in the database";
/// Limit of names in the detail. An administrator has to go through them one by one.
const MAX_NAMED: usize = 50;

/// Finds namespaces of tenants that no workspace in the database has; `None` if the database has no
/// tables yet. It only warns, because nobody gets tokens for such a namespace.
pub async fn compare_database(cluster: &Cluster, db: &Db) -> Option<Check> {
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

/// The same check where the database could not be opened.
pub fn unreachable_database(why: &str) -> Check {
    Check::warned(TITLE, why)
}
