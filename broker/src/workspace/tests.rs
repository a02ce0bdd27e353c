//! Authorization of actions on workspaces, on both engines.

use tenant_shared::{Name, Role, WorkspaceStatus};

use super::*;
use crate::{
    access::{AccessError, ReadWorkspace, Resource as _, SuspendWorkspaces, UseWorkspace},
    audit::Action,
    identity::Caller,
    testing::{On, Storage, on_both_engines},
};

on_both_engines!(
    a_refusal_is_recorded_unless_there_is_no_such_workspace,
    a_caller_gets_permits_for_their_own_workspaces,
);

const REFUSED: &str = "SELECT COUNT(*) FROM audit_logs WHERE outcome = 'refused' \
                       AND workspace_id IS NOT NULL AND reason IS NOT NULL";

async fn caller(storage: &Storage, role: Role) -> Caller {
    Caller::for_tests(&storage.clock, storage.user().await, role)
}

async fn a_refusal_is_recorded_unless_there_is_no_such_workspace(on: On) {
    let storage = Storage::new(on).await;
    let workspaces = storage.workspaces().await;
    let owner = caller(&storage, Role::User).await;
    let stranger = caller(&storage, Role::User).await;
    let administrator = caller(&storage, Role::Admin).await;
    let id = storage.workspace(owner.user_id(), WorkspaceStatus::Provisioned).await;
    let nothing = storage.clock.random_id();
    let action = Action::IssueCredential;

    let permit = workspaces.authorize_audited::<UseWorkspace>(&owner, id, action).await.unwrap();
    assert_eq!(permit.resource().id(), id);
    for (caller, id, expected, recorded) in [
        (&stranger, id, AccessError::WorkspaceNotFound, 1),
        (&administrator, id, AccessError::NotOwner, 2),
        (&owner, nothing, AccessError::WorkspaceNotFound, 2),
    ] {
        let refused =
            workspaces.authorize_audited::<UseWorkspace>(caller, id, action).await.unwrap_err();
        assert!(matches!(refused, WorkspaceError::Access(it) if it == expected), "{refused}");
        assert_eq!(storage.number(REFUSED).await, recorded);
    }
    // This refusal does not depend on what exists.
    let action = Action::SuspendWorkspace;
    for (id, recorded) in [(id, 3), (nothing, 4)] {
        let refused = workspaces.authorize_audited::<SuspendWorkspaces>(&owner, id, action).await;
        let refused = refused.unwrap_err();
        let expected = AccessError::NotAdministrator;
        assert!(matches!(refused, WorkspaceError::Access(it) if it == expected), "{refused}");
        assert_eq!(storage.number(REFUSED).await, recorded);
    }
    workspaces.authorize::<UseWorkspace>(&stranger, id).await.unwrap_err();
    assert_eq!(storage.number(REFUSED).await, 4, "only authorize_audited records refusals");
}

async fn a_caller_gets_permits_for_their_own_workspaces(on: On) {
    let storage = Storage::new(on).await;
    let workspaces = storage.workspaces().await;
    let owner = caller(&storage, Role::User).await;
    let stranger = caller(&storage, Role::User).await;
    let administrator = caller(&storage, Role::Admin).await;
    let first = storage.workspace(owner.user_id(), WorkspaceStatus::Suspended).await;
    storage.clock.advance(1);
    let second = storage.workspace(owner.user_id(), WorkspaceStatus::Provisioned).await;

    let usable = workspaces.usable_by(&owner).await.unwrap();
    let ids: Vec<Uuid> = usable.iter().map(|permit| permit.resource().id()).collect();
    assert_eq!(ids, [first, second]);
    for other in [&stranger, &administrator] {
        assert!(workspaces.usable_by(other).await.unwrap().is_empty());
    }
    assert!(matches!(workspaces.active(&usable[0]), Err(WorkspaceError::Suspended)));
    let active = workspaces.active(&usable[1]).unwrap();
    assert_eq!((active.workspace_id(), active.namespace()), (second, &*second.to_string()));

    let name = Name::Id(owner.user_id());
    for caller in [&owner, &administrator] {
        let named = workspaces.by_name(caller, &name).await.unwrap();
        assert_eq!(named.iter().map(|it| it.id).collect::<Vec<_>>(), [first, second]);
        let permit = workspaces.authorize::<ReadWorkspace>(caller, second).await.unwrap();
        assert_eq!(workspaces.show(&permit).await.unwrap(), named[1]);
    }
    let refused = workspaces.by_name(&stranger, &name).await.unwrap_err();
    assert!(matches!(refused, WorkspaceError::Access(AccessError::NameNotFound)), "{refused}");
}
