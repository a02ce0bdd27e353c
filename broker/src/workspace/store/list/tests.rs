//! Lists and lookups on both engines, with many rows.

use tenant_shared::WorkspaceStatus as Status;

use super::*;
use crate::{
    base::db::Engine,
    testing::{On, Storage, on_both_engines},
};

on_both_engines!(
    a_name_is_found_by_each_of_its_forms,
    pages_give_every_row_once,
    names_and_pages_use_an_index,
);

/// Number of rows, high enough that a full table scan is the wrong plan.
const ROW_COUNT: i64 = 20_000;

fn ids(rows: &[ListedWorkspace]) -> Vec<Uuid> {
    rows.iter().map(|it| it.workspace.id).collect()
}

fn name(text: &dyn std::fmt::Display) -> Name {
    text.to_string().parse().unwrap()
}

/// Inserts users with one workspace each, all created in the same millisecond.
async fn fill(storage: &Storage) {
    let mut tx = storage.db.begin().await.unwrap();
    match tx.connection() {
        Engine::Postgres(c) => {
            for statement in [
                "INSERT INTO users (id, email, status, role, created_at) \
                 SELECT gen_random_uuid(), 'user' || n || '@example.com', 'active', 'user', 0 \
                 FROM generate_series(1, $1) n",
                "INSERT INTO tenants (id, created_at) SELECT id, 0 FROM users LIMIT $1",
                "INSERT INTO workspaces (id, tenant_id, user_id, cluster, k8s_namespace, \
                   k8s_sa_name, tier, quota_cpu, quota_memory, status, status_changed_at, \
                   created_at) \
                 SELECT gen_random_uuid(), id, id, 'c', 'tenant-' || id, 'sa', 'basic', '4', \
                   '8Gi', 'provisioned', 0, 0 FROM users LIMIT $1",
            ] {
                sqlx::query(statement).bind(ROW_COUNT).execute(&mut *c).await.unwrap();
            }
        }
        Engine::Sqlite(c) => {
            for statement in [
                "WITH RECURSIVE numbers(n) AS \
                   (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $1) \
                 INSERT INTO users (id, email, status, role, created_at) \
                 SELECT randomblob(16), 'user' || n || '@example.com', 'active', 'user', 0 \
                 FROM numbers",
                "INSERT INTO tenants (id, created_at) SELECT id, 0 FROM users LIMIT $1",
                "INSERT INTO workspaces (id, tenant_id, user_id, cluster, k8s_namespace, \
                   k8s_sa_name, tier, quota_cpu, quota_memory, status, status_changed_at, \
                   created_at) \
                 SELECT randomblob(16), id, id, 'c', 'tenant-' || lower(hex(id)), 'sa', 'basic', \
                   '4', '8Gi', 'provisioned', 0, 0 FROM users LIMIT $1",
            ] {
                sqlx::query(statement).bind(ROW_COUNT).execute(&mut *c).await.unwrap();
            }
        }
    }
    tx.commit().await.unwrap();
}

async fn a_name_is_found_by_each_of_its_forms(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let first = storage.workspace(user, Status::Provisioned).await;
    storage.clock.advance(1);
    let second = storage.workspace(user, Status::Suspended).await;
    let other = storage.user().await;
    let theirs = storage.workspace(other, Status::Provisioned).await;

    let by_name = async |name: &Name| ids(&by_name(&storage.db, name, 9).await.unwrap());
    assert_eq!(by_name(&name(&first)).await, [first]);
    // The name of an owner gives all their workspaces; the case of the address does not matter.
    assert_eq!(by_name(&name(&user)).await, [first, second]);
    assert_eq!(by_name(&name(&format!("{user}@EXAMPLE.com"))).await, [first, second]);
    // In these tests a namespace has the identifier of its workspace as its name.
    assert_eq!(by_name(&Name::Namespace(theirs.to_string())).await, [theirs]);
    for nobody in ["tenant-x", "x@example.com", "00000000-0000-0000-0000-000000000000"] {
        assert!(by_name(&name(&nobody)).await.is_empty(), "{nobody}");
    }
    let like = format!("%{}", &format!("{user}@example.com")[1..]);
    assert!(by_name(&Name::Email(like)).await.is_empty(), "an exact match only");
    let listed = by_id(&storage.db, theirs).await.unwrap().unwrap().to_api();
    assert_eq!(listed.owner_email, Some(format!("{other}@example.com")));
}

async fn pages_give_every_row_once(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let mut all = Vec::new();
    for _ in 0..3 {
        // Two of the same millisecond, so that the identifier decides the order.
        for _ in 0..2 {
            all.push(storage.workspace(user, Status::Provisioned).await);
        }
        storage.clock.advance(1);
    }
    let stranger = storage.user().await;
    let theirs = storage.workspace(stranger, Status::Provisioned).await;
    for (owner, expected) in [(Some(user), 6), (None, 7), (Some(stranger), 1)] {
        for size in [1, 2, 3, 9] {
            let (mut seen, mut after) = (Vec::new(), Cursor::OLDEST);
            loop {
                let rows = page(&storage.db, owner, after, size).await.unwrap();
                let Some(last) = rows.last() else { break };
                after = last.cursor();
                seen.extend(ids(&rows));
            }
            assert_eq!(seen.len(), expected);
            assert_eq!(owner == Some(user), !seen.contains(&theirs));
            assert!(owner == Some(stranger) || all.iter().all(|id| seen.contains(id)));
        }
    }
    assert_eq!(count(&storage.db, 3).await.unwrap(), 3);
    assert_eq!(count(&storage.db, 9).await.unwrap(), 7);
}

/// The query plan as text.
async fn plan(storage: &Storage, statement: &str, values: [&str; 3]) -> String {
    match storage.db.reader() {
        Engine::Postgres(pool) => {
            // A plan for these values, which the server also makes for the first executions of a
            // prepared statement.
            let mut text = statement.to_owned();
            for (place, value) in values.into_iter().enumerate() {
                text = text.replace(&format!("${}", place + 1), value);
            }
            let text = sqlx::AssertSqlSafe(format!("EXPLAIN {text}"));
            sqlx::query_scalar::<_, String>(text).fetch_all(pool).await.unwrap().join("\n")
        }
        Engine::Sqlite(pool) => {
            let text = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
            let rows: Vec<(i64, i64, i64, String)> =
                sqlx::query_as(text).fetch_all(pool).await.unwrap();
            rows.into_iter().map(|row| row.3).collect::<Vec<_>>().join("\n")
        }
    }
}

async fn names_and_pages_use_an_index(on: On) {
    let storage = Storage::new(on).await;
    fill(&storage).await;
    let (id, text) = ("'6ba7b810-9dad-11d1-80b4-00c04fd430c8'", "'user77@example.com'");
    for (statement, values) in [
        (BY_ID, [id, "9", ""]),
        (BY_ID_OF_EITHER, [id, "9", ""]),
        (BY_NAMESPACE, [text, "9", ""]),
        (BY_EMAIL, [text, "9", ""]),
        (ALL, ["0", id, "500"]),
    ] {
        let plan = plan(&storage, statement, values).await;
        let scans = ["Seq Scan", "SCAN workspaces", "SCAN u", "TEMP B-TREE"];
        assert!(!scans.iter().any(|scan| plan.contains(scan)), "{statement}\n{plan}");
        assert!(["Index", "USING INDEX"].iter().any(|it| plan.contains(it)), "{plan}");
    }
    let rows = by_name(&storage.db, &name(&"user77@example.com"), 9).await.unwrap();
    assert_eq!(rows[0].owner_email, "user77@example.com");
    assert_eq!(count(&storage.db, u32::MAX).await.unwrap(), ROW_COUNT);
}
