//! A user who is suspended while they act.

use tenant_shared::{Role, WorkspaceStatus};

use super::*;
use crate::{
    access,
    identity::{BrowserSessions, Caller},
    testing::{On, Storage, at_once, on_both_engines},
    workspace::WorkspaceError,
};

on_both_engines!(
    who_was_suspended_since_the_look_at_the_session_makes_no_workspace,
    no_workspace_slips_past_a_suspension_at_the_same_time,
);

async fn users(storage: &Storage) -> Users {
    let (db, clock, metrics) = (storage.db.clone(), storage.clock.clone(), Metrics::default());
    let browser =
        BrowserSessions::new(&"http://127.0.0.1:8080".parse().unwrap(), Vec::new(), 60, 60);
    let identity = Identity::new(db.clone(), clock.clone(), metrics.clone(), browser);
    Users::new(db, clock, identity, storage.workspaces().await, metrics)
}

fn suspending(storage: &Storage) -> (Permit<ManageUsers>, Permit<SuspendWorkspaces>) {
    let operator = Caller::of_test(&storage.clock, storage.clock.random_id(), Role::Admin);
    let permit = access::manage_users(&operator).unwrap();
    (permit, access::suspend_workspaces(&operator).unwrap())
}

async fn who_was_suspended_since_the_look_at_the_session_makes_no_workspace(on: On) {
    let storage = Storage::new(on).await;
    let user = storage.user().await;
    let caller = Caller::of_test(&storage.clock, user, Role::User);
    let (permit, kill) = suspending(&storage);
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
            let (users, (permit, kill)) = (users.clone(), suspending(&storage));
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
