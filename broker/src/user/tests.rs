//! A user who is suspended while they act.

use tenant_shared::{Role, WorkspaceStatus};

use super::*;
use crate::{
    access,
    identity::{BrowserSessions, Caller, session},
    on_engine,
    testing::{On, Storage, at_once, on_both_engines},
    workspace::WorkspaceError,
};

on_both_engines!(
    who_was_suspended_since_the_look_at_the_session_makes_no_workspace,
    no_workspace_slips_past_a_suspension_at_the_same_time,
    no_session_slips_past_a_suspension_at_the_same_time,
);

async fn users(storage: &Storage) -> Users {
    let (db, clock, metrics) = (storage.db.clone(), storage.clock.clone(), Metrics::default());
    let browser =
        BrowserSessions::new(&"http://127.0.0.1:8080".parse().unwrap(), Vec::new(), 60, 60);
    let identity = Identity::new(db.clone(), clock.clone(), metrics.clone(), browser);
    Users::new(db, clock, identity, storage.workspaces().await, metrics)
}

/// What an administrator needs to suspend somebody.
async fn suspending(storage: &Storage) -> (Permit<ManageUsers>, Permit<SuspendWorkspaces>) {
    let id = storage.user().await;
    let mut tx = storage.db.begin().await.unwrap();
    on_engine!(tx.connection(), c => sqlx::query("UPDATE users SET role = 'admin' WHERE id = $1")
        .bind(id).execute(c).await.map(drop))
    .unwrap();
    tx.commit().await.unwrap();
    let operator = Caller::of_test(&storage.clock, id, Role::Admin);
    let permit = access::manage_users(&operator).unwrap();
    (permit, access::suspend_workspaces(&operator).unwrap())
}

async fn who_was_suspended_since_the_look_at_the_session_makes_no_workspace(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let caller = Caller::of_test(&storage.clock, user, Role::User);
    let (permit, kill) = suspending(&storage).await;
    users(&storage).await.suspend(&permit, &kill, user, None).await.unwrap();
    let workspaces = storage.workspaces().await;
    let refused = workspaces.init(&access::create_workspace(&caller), "basic").await.unwrap_err();
    assert!(matches!(refused, WorkspaceError::NotActive), "{refused}");
    assert_eq!(Failure::from(refused).code(), Code::Unauthenticated);
    assert_eq!(storage.number("SELECT COUNT(*) FROM workspaces").await, 0);
    let audited = "SELECT COUNT(*) FROM audit_logs WHERE action = 'InitWorkspace'";
    assert_eq!(storage.number(audited).await, 0);
}

async fn no_workspace_slips_past_a_suspension_at_the_same_time(on: On) {
    let storage = Storage::new(on).await;
    let users = users(&storage).await;
    for _ in 0..8 {
        let user = storage.user().await;
        let caller = Caller::of_test(&storage.clock, user, Role::User);
        let inits = (0..4).map(|_| {
            let permit = access::create_workspace(&caller);
            let workspaces = users.workspaces.clone();
            tokio::spawn(async move { workspaces.init(&permit, "basic").await.map(drop) })
        });
        let inits: Vec<_> = inits.collect();
        let suspend = {
            let (users, (permit, kill)) = (users.clone(), suspending(&storage).await);
            async move { users.suspend(&permit, &kill, user, None).await.map(drop) }
        };
        for result in at_once([suspend]).await {
            result.unwrap();
        }
        for init in inits {
            // The cluster is away, or the user is.
            init.await.unwrap().unwrap_err();
        }
        for workspace in users.workspaces.of_user(user).await.unwrap() {
            assert_eq!(workspace.status(), WorkspaceStatus::Suspending, "{user}");
        }
    }
}

/// A sign-in that has begun its session, but has not committed, when the user is suspended.
async fn no_session_slips_past_a_suspension_at_the_same_time(on: On) {
    let storage = Storage::new(on).await;
    let users = users(&storage).await;
    let (user, now) = (storage.user().await, storage.clock.now_ms());
    let (permit, kill) = suspending(&storage).await;
    let new = session::New {
        id: storage.clock.random_id(),
        user_id: user,
        client_id: "kubectl-tenant",
        scope: "",
        ip_address: None,
        user_agent: None,
        auth_time: now,
        created_at: now,
        idle_expires_at: now + 60_000,
        expires_at: now + 60_000,
        workspace_id: None,
        user_suspensions: None,
    };
    let mut tx = storage.db.begin().await.unwrap();
    session::begin(&mut tx, &new).await.unwrap().unwrap();
    let suspension = {
        let users = users.clone();
        tokio::spawn(async move { users.suspend(&permit, &kill, user, None).await.map(drop) })
    };
    // SQLite lets one write at a time. PostgreSQL has to wait for the row of the user.
    if let On::Postgres = on {
        let waits = "SELECT COUNT(*) FROM pg_stat_activity \
                     WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while !suspension.is_finished() && storage.number(waits).await == 0 {
            tokio::task::yield_now().await;
        }
    }
    tx.commit().await.unwrap();
    suspension.await.unwrap().unwrap();
    let (permit, _) = suspending(&storage).await;
    users.resume(&permit, user, None).await.unwrap();
    let alive = "SELECT COUNT(*) FROM sessions WHERE ended_at IS NULL";
    assert_eq!(storage.number(alive).await, 0);
}
