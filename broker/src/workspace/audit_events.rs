//! Audit events of workspaces.

use super::WorkspaceRow;
use crate::{
    access::{Permit, SuspendWorkspaces},
    audit::{self, Action},
};

/// An event of an administrator, on a workspace and its owner.
pub(super) fn admin_event(
    permit: &Permit<SuspendWorkspaces, WorkspaceRow>,
    action: Action,
    reason: Option<String>,
) -> audit::Event {
    let workspace = permit.resource();
    let event = permit.caller().event(action);
    audit::Event { workspace_id: Some(workspace.id), reason, ..event }.to_user(workspace.user_id)
}

/// An event of the broker itself, on a workspace and its owner.
pub(super) fn broker_event(workspace: &WorkspaceRow, action: Action) -> audit::Event {
    audit::Event { workspace_id: Some(workspace.id), ..audit::Event::success(action) }
        .to_user(workspace.user_id)
}
