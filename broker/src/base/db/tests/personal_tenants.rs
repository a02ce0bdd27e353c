//! Migrations 0015 and 0016: each workspace gets the personal tenant of its user, which stays one in
//! 0017.

use super::*;

on_both_engines!(workspaces_of_earlier_brokers_get_personal_tenants);

pub(super) fn user(number: i64) -> Uuid {
    Uuid::from_u128(u128::try_from(number).unwrap())
}

pub(super) fn workspace(number: i64) -> Uuid {
    user(100 + number)
}

const ADD_USER: &str = "\
INSERT INTO users (id, email, status, role, created_at) VALUES ($1, $2, 'active', 'user', 0)";
const ADD_WORKSPACE: &str = "\
INSERT INTO workspaces (id, user_id, cluster, k8s_namespace, k8s_sa_name, tier, quota_cpu, \
  quota_memory, status, status_changed_at, created_at) \
VALUES ($1, $2, 'internal-cluster', $3, 'sa-tenant-admin', 'basic', '4', '8Gi', 'provisioned', 0, \
  $4) \
ON CONFLICT (k8s_namespace) DO NOTHING";
const ADD_REFERENCE: &str = "\
INSERT INTO drifts (workspace_id, kind, what, found_at) VALUES ($1, 'altered', 'a quota', 0)";

pub(super) async fn add_user(db: &Db, number: i64) {
    let mut tx = db.begin().await.unwrap();
    on_engine!(tx.connection(), c => sqlx::query(ADD_USER)
        .bind(user(number)).bind(number.to_string()).execute(c).await.map(drop))
    .unwrap();
    tx.commit().await.unwrap();
}

/// Inserts the workspace of a user as a broker that knows schema 14 does; false if it exists.
pub(super) async fn add_workspace(db: &Db, number: i64) -> bool {
    let user = user(number);
    let mut tx = db.begin().await.unwrap();
    let added = on_engine!(tx.connection(), c => sqlx::query(ADD_WORKSPACE)
        .bind(workspace(number)).bind(user).bind(format!("tenant-{user}")).bind(number)
        .execute(c).await.map(|done| done.rows_affected()))
    .unwrap();
    tx.commit().await.unwrap();
    added == 1
}

async fn add_reference(db: &Db, number: i64) {
    let mut tx = db.begin().await.unwrap();
    on_engine!(tx.connection(), c => sqlx::query(ADD_REFERENCE)
        .bind(workspace(number)).execute(c).await.map(drop))
    .unwrap();
    tx.commit().await.unwrap();
}

pub(super) async fn number(db: &Db, statement: &'static str) -> i64 {
    on_engine!(db.reader(), pool => sqlx::query_scalar(statement).fetch_one(pool).await).unwrap()
}

/// A workspace, its tenant, and name and time of that.
type TenantOfWorkspace = (Uuid, Uuid, Option<String>, i64);

const MEMBERS: &str = "SELECT COUNT(*) FROM workspace_members";
const NO_OBJECT: &str = "\
SELECT COUNT(*) FROM tenants \
WHERE object_group IS NULL AND object_uid IS NULL AND status IS NULL \
  AND status_changed_at IS NULL AND closed_name IS NULL";
const TENANTS: &str = "\
SELECT w.id, t.id, t.name, t.created_at FROM workspaces w JOIN tenants t ON t.id = w.tenant_id \
ORDER BY w.created_at";

async fn workspaces_of_earlier_brokers_get_personal_tenants(on: On) {
    let place = Arc::new(TestDatabase::new(on).await);
    let db = place.connect().await;
    migrate_to(&db, 14).await;
    for number in 1..=5 {
        add_user(&db, number).await;
    }
    assert!(add_workspace(&db, 1).await && add_workspace(&db, 2).await);
    add_reference(&db, 1).await;
    migrate_to(&db, 15).await;
    // A broker that still runs, while another one is between the two migrations.
    assert!(add_workspace(&db, 3).await && !add_workspace(&db, 1).await);
    for migrated in run_concurrently((0..4).map(|_| {
        let place = Arc::clone(&place);
        async move { place.connect().await.migrate().await }
    }))
    .await
    {
        migrated.unwrap();
    }
    assert!(add_workspace(&db, 4).await && !add_workspace(&db, 2).await);
    let tenants: Vec<TenantOfWorkspace> = on_engine!(db.reader(), pool =>
        sqlx::query_as(TENANTS).fetch_all(pool).await)
    .unwrap();
    let expected: Vec<TenantOfWorkspace> =
        (1..=4).map(|n| (workspace(n), user(n), None, n)).collect();
    assert_eq!(tenants, expected);
    assert_eq!(number(&db, "SELECT COUNT(*) FROM tenants").await, 4, "one for each workspace");
    assert_eq!(number(&db, NO_OBJECT).await, 4, "none of them has an object in the cluster");
    assert_eq!(number(&db, MEMBERS).await, 4, "views stay");
    assert_eq!(number(&db, "SELECT COUNT(*) FROM drifts").await, 1, "rows that refer to one stay");
    assert_eq!(number(&db, "SELECT oldest_program FROM schema_compatibility").await, 14);
}

/// Brokers that run meanwhile look workspaces up and issue credentials for them.
#[tokio::test]
async fn workspaces_are_read_and_referred_to_while_they_get_their_tenants() {
    const LOCKED: &str = "\
        SELECT COUNT(*) FROM pg_locks WHERE granted AND mode = 'ShareRowExclusiveLock' \
          AND relation = to_regclass('workspaces')";
    let place = TestDatabase::new(On::Postgres).await;
    let db = place.connect().await;
    migrate_to(&db, 14).await;
    add_user(&db, 1).await;
    assert!(add_workspace(&db, 1).await);
    migrate_to(&db, 15).await;
    // Migration 0016 inserts the same row, and waits for this transaction.
    let mut other = db.begin().await.unwrap();
    on_engine!(other.connection(), c =>
        sqlx::query("INSERT INTO tenants (id, created_at) VALUES ($1, 0)")
            .bind(user(1)).execute(c).await.map(drop))
    .unwrap();
    let upgrading = place.connect().await;
    let upgrade = tokio::spawn(async move { upgrading.migrate().await });
    let locked = async {
        while number(&db, LOCKED).await == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(BOUND, locked).await.expect("the migration locks the table");
    assert_eq!(number(&db, MEMBERS).await, 1);
    add_reference(&db, 1).await;
    assert!(!upgrade.is_finished());
    drop(other);
    upgrade.await.unwrap().unwrap();
    assert_eq!(number(&db, "SELECT COUNT(*) FROM tenants").await, 1);
}
