//! HTTP API of workspaces: `/workspaces`.

mod error;
mod init;
mod list;
mod look_up;
mod resume;
mod show;
mod suspend;

use self::{init::Init, list::List, look_up::LookUp, resume::Resume, show::Show, suspend::Suspend};
use super::Workspaces;

/// Operations on workspaces.
pub type WorkspaceApi = (Init, List, LookUp, Show, Suspend, Resume);

/// The operations on these workspaces. `authority` is the same service on the database connections
/// that are reserved for suspensions.
pub fn api(workspaces: Workspaces, authority: Workspaces) -> WorkspaceApi {
    (
        Init { workspaces: workspaces.clone() },
        List { workspaces: workspaces.clone() },
        LookUp { workspaces: workspaces.clone() },
        Show { workspaces },
        Suspend { workspaces: authority.clone() },
        Resume { workspaces: authority },
    )
}
