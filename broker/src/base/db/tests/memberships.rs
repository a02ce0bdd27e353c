//! Migrations 0017 and 0019: tenants of a cluster, and workspaces that are memberships in them.

use super::{
    personal_tenants::{add_user, add_workspace, number, user, workspace},
    *,
};

on_both_engines!(workspaces_of_earlier_brokers_are_no_memberships);

const ADD_TENANT: &str = "INSERT INTO tenants (id, name, created_at) VALUES ($1, 'solar', 0)";
const ADD_MEMBERSHIP: &str = "\
INSERT INTO workspaces (id, tenant_id, user_id, cluster, k8s_namespace, home_namespace, \
  k8s_sa_name, tier, quota_cpu, quota_memory, status, status_changed_at, created_at) \
VALUES ($1, $2, $3, 'internal-cluster', $4, 'tenant-solar', 'member', 'basic', '', '', \
  'provisioned', 0, 9)";

/// Inserts the membership of a user in the tenant, with this value of the unique column.
async fn add_membership(db: &Db, tenant: Uuid, member: i64, key: &str) -> sqlx::Result<()> {
    let mut tx = db.begin().await?;
    on_engine!(tx.connection(), c => sqlx::query(ADD_MEMBERSHIP)
        .bind(workspace(10 + member)).bind(tenant).bind(user(member)).bind(key)
        .execute(c).await.map(drop))?;
    tx.commit().await
}

async fn workspaces_of_earlier_brokers_are_no_memberships(on: On) {
    const MEMBERSHIPS: &str = "SELECT COUNT(*) FROM membership_homes WHERE home = 'tenant-solar'";
    const PERSONAL: &str = "\
        SELECT COUNT(*) FROM workspaces WHERE home_namespace IS NULL AND left_status IS NULL \
          AND k8s_sa_name = 'sa-tenant-admin'";
    let place = TestDatabase::new(on).await;
    let db = place.connect().await;
    migrate_to(&db, 18).await;
    for number in 1..=3 {
        add_user(&db, number).await;
    }
    assert!(add_workspace(&db, 1).await);
    db.migrate().await.unwrap();
    // A broker of schema 14 still runs.
    assert!(add_workspace(&db, 2).await && !add_workspace(&db, 1).await);
    let tenant = user(50);
    let mut tx = db.begin().await.unwrap();
    on_engine!(tx.connection(), c =>
        sqlx::query(ADD_TENANT).bind(tenant).execute(c).await.map(drop))
    .unwrap();
    tx.commit().await.unwrap();
    add_membership(&db, tenant, 1, "tenant-solar 1").await.unwrap();
    add_membership(&db, tenant, 2, "tenant-solar 2").await.unwrap();
    for key in [format!("tenant-{}", user(1)), "tenant-solar 1".to_owned()] {
        let error = add_membership(&db, tenant, 3, &key).await.unwrap_err();
        assert!(error.as_database_error().unwrap().is_unique_violation(), "{key}: {error}");
    }
    assert_eq!(number(&db, MEMBERSHIPS).await, 2, "members share the home");
    assert_eq!(number(&db, PERSONAL).await, 2);
    assert!(!add_workspace(&db, 2).await, "a member keeps the personal workspace");
    assert_eq!(number(&db, "SELECT oldest_program FROM schema_compatibility").await, 14);
}

/// Applies a migration while another transaction changes these tables.
async fn migrate_while_changing(last: i64, tables: &[&str]) {
    let place = TestDatabase::new(On::Postgres).await;
    let db = place.connect().await;
    migrate_to(&db, last - 1).await;
    let mut other = db.begin().await.unwrap();
    for table in tables {
        let lock = format!("LOCK TABLE {table} IN ROW EXCLUSIVE MODE");
        on_engine!(other.connection(), c =>
            sqlx::query(sqlx::AssertSqlSafe(lock)).execute(c).await.map(drop))
        .unwrap();
    }
    let upgrading = place.connect().await;
    let migrated = tokio::time::timeout(BOUND, migrate_to(&upgrading, last)).await;
    migrated.expect("the migration does not wait for the other transaction");
    drop(other);
}

/// `made_by` is no reference, because that would lock the table of users.
#[tokio::test]
async fn tenants_get_their_namespaces_while_users_and_workspaces_are_changed() {
    migrate_while_changing(17, &["users", "workspaces", "audit_logs", "issued_credentials"]).await;
}

#[tokio::test]
async fn workspaces_become_memberships_while_other_tables_are_changed() {
    migrate_while_changing(19, &["users", "tenants", "audit_logs", "issued_credentials"]).await;
}
