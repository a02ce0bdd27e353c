//! Concurrent requests of a user and their suspension.

use tenant_shared::{Role, WorkspaceStatus};

use super::*;
use crate::{
    access::{CreateWorkspace, Resource as _},
    identity::{BrowserSessions, sessions},
    on_engine,
    testing::{On, Storage, on_both_engines, run_concurrently},
    workspace::WorkspaceError,
};

on_both_engines!(
    all_workspaces_of_a_user_are_suspended,
    a_user_suspended_after_authentication_creates_no_workspace,
    no_workspace_survives_a_concurrent_suspension,
    no_session_survives_a_concurrent_suspension,
    a_suspended_administrator_cannot_resume_themselves,
    refused_requests_do_not_use_the_connections_of_suspensions,
);

async fn users(storage: &Storage) -> Users {
    let (db, clock, metrics) = (storage.db.clone(), storage.clock.clone(), Metrics::default());
    let browser =
        BrowserSessions::new(&"http://127.0.0.1:8080".parse().unwrap(), Vec::new(), 60, 60);
    let identity = Identity::new(db.clone(), clock.clone(), metrics.clone(), browser);
    let workspaces = storage.workspaces().await;
    let refusals = db.clone();
    Users::new(Dependencies { db, refusals, clock, identity, workspaces, metrics })
}

/// The permits of a new administrator to suspend a user.
async fn suspending(storage: &Storage) -> (Permit<ManageUsers>, Permit<SuspendWorkspaces>) {
    let id = storage.user().await;
    let mut tx = storage.db.begin().await.unwrap();
    on_engine!(tx.connection(), c => sqlx::query("UPDATE users SET role = 'admin' WHERE id = $1")
        .bind(id).execute(c).await.map(drop))
    .unwrap();
    tx.commit().await.unwrap();
    let operator = Caller::for_tests(&storage.clock, id, Role::Admin);
    (access::authorize_all(&operator).unwrap(), access::authorize_all(&operator).unwrap())
}

async fn all_workspaces_of_a_user_are_suspended(on: On) {
    let storage = Storage::new(on).await;
    let users = users(&storage).await;
    let user = storage.user().await;
    for _ in 0..=MAX_CONCURRENT_SUSPENSIONS {
        storage.workspace(user, WorkspaceStatus::Provisioned).await;
    }
    let (permit, kill) = suspending(&storage).await;
    let suspension = users.suspend(&permit, &kill, user, None).await.unwrap();
    let mut tx = storage.db.begin().await.unwrap();
    let rows = users.workspaces.for_user_in(&mut tx, &kill, user).await.unwrap();
    let oldest_first: Vec<_> = rows.iter().map(|row| row.resource().id()).collect();
    let suspended: Vec<_> = suspension.workspaces.iter().map(|workspace| workspace.id).collect();
    assert_eq!(suspended, oldest_first);
    assert_eq!(suspended.len(), MAX_CONCURRENT_SUSPENSIONS + 1);
    // The cluster does not answer.
    assert!(rows.iter().all(|row| row.resource().status() == WorkspaceStatus::Suspending));
}

/// The request was authenticated before the suspension.
async fn a_suspended_administrator_cannot_resume_themselves(on: On) {
    let storage = Storage::new(on).await;
    let users = users(&storage).await;
    let (attacker, _) = suspending(&storage).await;
    let (operator, kill) = suspending(&storage).await;
    let id = attacker.caller().user_id();
    users.suspend(&operator, &kill, id, None).await.unwrap();
    let refused = users.resume(&attacker, id, None).await.unwrap_err();
    assert!(matches!(refused, UserError::FormerAdministrator), "{refused}");
    let refused = users.change_email(&attacker, id, None, None).await.unwrap_err();
    assert!(matches!(refused, UserError::FormerAdministrator), "{refused}");
    let refused = users.set_groups(&attacker, id, Some(vec!["ops".into()]), None).await;
    assert!(matches!(refused, Err(UserError::FormerAdministrator)), "{refused:?}");
    assert!(users.groups(&operator, id).await.unwrap().groups.is_empty());
    assert_eq!(users.existing(&operator, id).await.unwrap().status, UserStatus::Suspended);
}

async fn refused_requests_do_not_use_the_connections_of_suspensions(on: On) {
    let (storage, refusals) = (Storage::new(on).await, Storage::new(on).await);
    let users = Users { refusals: refusals.db.clone(), ..users(&storage).await };
    let caller = Caller::for_tests(&storage.clock, storage.user().await, Role::User);
    let action = Action::SignOut;
    users.authorize_audited(&caller, storage.clock.random_id(), action).await.unwrap_err();
    let (operator, kill) = suspending(&storage).await;
    let id = operator.caller().user_id();
    let (other, _) = suspending(&storage).await;
    users.suspend(&other, &kill, id, None).await.unwrap();
    let refused = users.resume(&operator, id, None).await.unwrap_err();
    assert!(matches!(refused, UserError::FormerAdministrator), "{refused}");
    let rows = "SELECT COUNT(*) FROM audit_logs WHERE outcome = 'refused'";
    assert_eq!((storage.number(rows).await, refusals.number(rows).await), (0, 2));
}

async fn a_user_suspended_after_authentication_creates_no_workspace(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let caller = Caller::for_tests(&storage.clock, user, Role::User);
    let (permit, kill) = suspending(&storage).await;
    users(&storage).await.suspend(&permit, &kill, user, None).await.unwrap();
    let workspaces = storage.workspaces().await;
    let permit = access::authorize_all::<CreateWorkspace>(&caller).unwrap();
    let refused = workspaces.init(&permit, "basic").await.unwrap_err();
    assert!(matches!(refused, WorkspaceError::NotActive), "{refused}");
    assert_eq!(storage.number("SELECT COUNT(*) FROM workspaces").await, 0);
    let audited = "SELECT COUNT(*) FROM audit_logs WHERE action = 'InitWorkspace'";
    assert_eq!(storage.number(audited).await, 0);
}

async fn no_workspace_survives_a_concurrent_suspension(on: On) {
    let storage = Storage::new(on).await;
    let users = users(&storage).await;
    for _ in 0..8 {
        let user = storage.user().await;
        let caller = Caller::for_tests(&storage.clock, user, Role::User);
        let inits = (0..4).map(|_| {
            let permit = access::authorize_all::<CreateWorkspace>(&caller).unwrap();
            let workspaces = users.workspaces.clone();
            tokio::spawn(async move { workspaces.init(&permit, "basic").await.map(drop) })
        });
        let inits: Vec<_> = inits.collect();
        let (permit, kill) = suspending(&storage).await;
        let suspend = {
            let (users, kill) = (users.clone(), kill.clone());
            async move { users.suspend(&permit, &kill, user, None).await.map(drop) }
        };
        for result in run_concurrently([suspend]).await {
            result.unwrap();
        }
        for init in inits {
            // The cluster does not answer, or the user is suspended.
            init.await.unwrap().unwrap_err();
        }
        let mut tx = storage.db.begin().await.unwrap();
        for workspace in users.workspaces.for_user_in(&mut tx, &kill, user).await.unwrap() {
            assert_eq!(workspace.resource().status(), WorkspaceStatus::Suspending, "{user}");
        }
    }
}

/// The sign-in has inserted its session, but has not committed, when the user is suspended.
async fn no_session_survives_a_concurrent_suspension(on: On) {
    let storage = Storage::new(on).await;
    let users = users(&storage).await;
    let (user, now) = (storage.user().await, storage.clock.now_ms());
    let (permit, kill) = suspending(&storage).await;
    let new = sessions::NewSession {
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
    sessions::begin(&mut tx, &new).await.unwrap().unwrap();
    let suspension = {
        let users = users.clone();
        tokio::spawn(async move { users.suspend(&permit, &kill, user, None).await.map(drop) })
    };
    // SQLite has one writer at a time. On PostgreSQL the suspension has to wait for the user's row.
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
