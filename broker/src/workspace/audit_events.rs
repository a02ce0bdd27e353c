//! Audit events of workspaces.

use super::WorkspaceRow;
use crate::{
    access::{Permit, SuspendWorkspaces},
    audit::{self, Action},
    identity::Caller,
};

/// An event with the caller as its actor.
pub(super) fn event_by(caller: &Caller, action: Action) -> audit::Event {
    audit::Event {
        user_id: Some(caller.user_id()),
        session_id: Some(caller.session_id()),
        ..audit::Event::success(action)
    }
}

/// An event of an administrator, on a workspace and its owner.
pub(super) fn admin_event(
    permit: &Permit<SuspendWorkspaces, WorkspaceRow>,
    action: Action,
    reason: Option<String>,
) -> audit::Event {
    let workspace = permit.resource();
    let event = event_by(permit.caller(), action);
    audit::Event { workspace_id: Some(workspace.id), reason, ..event }.to_user(workspace.user_id)
}

/// An event of the broker itself, on a workspace and its owner.
pub(super) fn broker_event(workspace: &WorkspaceRow, action: Action) -> audit::Event {
    audit::Event { workspace_id: Some(workspace.id), ..audit::Event::success(action) }
        .to_user(workspace.user_id)
}
