//! Backup and restore with many workspaces: time, size, and how soon all ServiceAccounts are
//! replaced.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sqlx::{Connection as _, PgConnection, SqliteConnection};

use super::step;
use crate::api::Api;
use crate::binaries::Profile;
use crate::engine::On;
use crate::postgres::Database;
use crate::probe::{self, Probe};
use crate::progress::print_message;
use crate::world::World;

/// Workspaces that really exist in the cluster; the audit log is read in one page.
const MAX_REAL: usize = 400;
/// Time limit of the replacement of their ServiceAccounts.
const REPLACE_TIMEOUT: Duration = Duration::from_mins(10);

/// Rows of users with a provisioned workspace and an expired credential each. Their namespaces do
/// not exist, so the broker is stopped again as soon as it is ready.
const POSTGRES: [&str; 3] = [
    "INSERT INTO users (id, email, status, role, created_at) \
     SELECT gen_random_uuid(), 'many' || n || '@example.com', 'active', 'user', n \
     FROM generate_series(1, $1) n",
    "INSERT INTO workspaces (id, user_id, cluster, k8s_namespace, k8s_sa_name, k8s_sa_uid, tier, \
       quota_cpu, quota_memory, status, status_changed_at, created_at) \
     SELECT gen_random_uuid(), id, 'internal-cluster', 'tenant-' || id, 'sa-tenant-admin', \
       id::text, 'basic', '4', '8Gi', 'provisioned', created_at, created_at \
     FROM users WHERE email LIKE 'many%' AND $1 > 0",
    "INSERT INTO issued_credentials (credential_id, workspace_id, session_id, issued_at, expires_at) \
     SELECT id::text, id, user_id, created_at, created_at FROM workspaces \
     WHERE k8s_sa_uid IS NOT NULL AND $1 > 0",
];
const SQLITE: [&str; 3] = [
    "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $1) \
     INSERT INTO users (id, email, status, role, created_at) \
     SELECT randomblob(16), 'many' || n || '@example.com', 'active', 'user', n FROM numbers",
    "INSERT INTO workspaces (id, user_id, cluster, k8s_namespace, k8s_sa_name, k8s_sa_uid, tier, \
       quota_cpu, quota_memory, status, status_changed_at, created_at) \
     SELECT randomblob(16), id, 'internal-cluster', 'tenant-' || lower(hex(id)), \
       'sa-tenant-admin', hex(id), 'basic', '4', '8Gi', 'provisioned', created_at, created_at \
     FROM users WHERE email LIKE 'many%' AND $1 > 0",
    "INSERT INTO issued_credentials (credential_id, workspace_id, session_id, issued_at, expires_at) \
     SELECT hex(id), id, user_id, created_at, created_at FROM workspaces \
     WHERE k8s_sa_uid IS NOT NULL AND $1 > 0",
];

/// Restores on both engines: first `real` workspaces of the cluster, until all of their
/// ServiceAccounts are replaced, then `many` rows, until the broker is ready.
///
/// # Errors
/// A step fails; the error names it.
pub async fn run(many: u32, real: usize) -> Result<()> {
    ensure!(real <= MAX_REAL, "at most {MAX_REAL} workspaces of the cluster");
    for on in [On::Sqlite, On::Postgres] {
        print_message(&format!("restore on {on:?}"));
        Box::pin(restore_real(on, real)).await?;
        Box::pin(restore_many(on, many)).await?;
    }
    Ok(())
}

async fn world(on: On) -> Result<World> {
    let builder = World::builder()
        .own_control_plane()
        .profile(Profile::Release)
        .setting("log.level", "info")
        .setting("sweep_seconds", 1);
    let builder = match on {
        On::Sqlite => builder,
        On::Postgres => builder.postgres(),
    };
    step("start the control plane and the broker", Box::pin(builder.start())).await
}

async fn restore_real(on: On, real: usize) -> Result<()> {
    let world = world(on).await?;
    let operator = world.administrator("operator").await?;
    let make = async {
        for number in 0..real {
            let person = world.person(&format!("person{number}")).await?;
            person.api().await?.init("basic").await?;
        }
        anyhow::Ok(())
    };
    step(&format!("make {real} people with workspaces"), make).await?;
    let database = Box::pin(back_up_and_restore(&world, on)).await?;
    let began = Instant::now();
    world.broker().start().await?;
    let admin = operator.api().await?;
    probe::until("all ServiceAccounts to be replaced", REPLACE_TIMEOUT, || async {
        let count = count_replaced(&admin).await?;
        Ok(if count >= real { Probe::Ready(()) } else { Probe::NotYet(count.to_string()) })
    })
    .await?;
    let seconds = began.elapsed().as_secs_f64();
    print_message(&format!(
        "  {seconds:>8.2} s  from the start until all ServiceAccounts are replaced"
    ));
    drop(database);
    Ok(())
}

async fn count_replaced(admin: &Api) -> Result<usize> {
    let page = admin.audit_logs("action=ServiceAccountReplaced&limit=500").await?;
    Ok(page.items.len())
}

async fn restore_many(on: On, many: u32) -> Result<()> {
    let world = world(on).await?;
    let what = format!("insert {many} users, workspaces and credentials");
    step(&what, fill(&world, on, many)).await?;
    let database = Box::pin(back_up_and_restore(&world, on)).await?;
    step("start the broker until it is ready", world.broker().start()).await?;
    drop(database);
    Ok(())
}

/// Backs the broker up, stops it, loses its database and restores that.
async fn back_up_and_restore(world: &World, on: On) -> Result<Option<Database>> {
    let broker = world.broker();
    let folder = world.folder().join("backup");
    let path = folder.to_str().context("the path is not UTF-8")?;
    let back_up = async { broker.run(&["backup", "--to", path]).await?.success() };
    step("back up while the broker runs", back_up).await?;
    print_message(&format!("  {:>8.2} MiB the backup", size_mib(&folder)?));
    broker.stop().await?;
    let database = match on {
        On::Sqlite => {
            for file in ["broker.db", "broker.db-wal", "broker.db-shm"] {
                let _ = std::fs::remove_file(broker.state_dir().join(file));
            }
            None
        }
        On::Postgres => {
            let database = world.postgres()?.database("restored").await?;
            broker.set("database.url", database.url().as_str());
            Some(database)
        }
    };
    let restore = async { broker.run(&["restore", "--from", path]).await?.success() };
    step("restore", restore).await?;
    Ok(database)
}

async fn fill(world: &World, on: On, many: u32) -> Result<()> {
    let (count, url) = (i64::from(many), world.database_url()?);
    match on {
        On::Postgres => {
            let mut connection = PgConnection::connect(url.as_str()).await?;
            for statement in POSTGRES {
                sqlx::query(statement).bind(count).execute(&mut connection).await?;
            }
        }
        On::Sqlite => {
            let mut connection = SqliteConnection::connect(url.as_str()).await?;
            for statement in SQLITE {
                sqlx::query(statement).bind(count).execute(&mut connection).await?;
            }
            connection.close().await?;
        }
    }
    Ok(())
}

/// Sum of the sizes of the files in a folder, in MiB.
fn size_mib(folder: &Path) -> Result<f64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).context("read the backup's folder")? {
        bytes += entry?.metadata()?.len();
    }
    let kib = u32::try_from(bytes / 1024).context("the backup is too large to print its size")?;
    Ok(f64::from(kib) / 1024.0)
}
