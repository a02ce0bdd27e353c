//! HTTP API of users for administrators: `/users`.

mod change_email;
mod end_sessions;
mod error;
mod list;
mod list_sessions;
mod look_up;
mod resume;
mod set_groups;
mod show;
mod show_groups;
mod suspend;

use self::{
    change_email::ChangeEmailOfUser, end_sessions::EndSessionsOfUser, list::ListUsers,
    list_sessions::ListSessionsOfUser, look_up::LookUpUser, resume::ResumeUser,
    set_groups::SetGroupsOfUser, show::ShowUser, show_groups::ShowGroupsOfUser,
    suspend::SuspendUser,
};
use super::Users;

/// Operations on users, for administrators.
pub type UserApi = (
    ListUsers,
    LookUpUser,
    ShowUser,
    SuspendUser,
    ResumeUser,
    ChangeEmailOfUser,
    ShowGroupsOfUser,
    SetGroupsOfUser,
    ListSessionsOfUser,
    EndSessionsOfUser,
);

/// The operations of this user service.
pub fn api(users: Users) -> UserApi {
    (
        ListUsers { users: users.clone() },
        LookUpUser { users: users.clone() },
        ShowUser { users: users.clone() },
        SuspendUser { users: users.clone() },
        ResumeUser { users: users.clone() },
        ChangeEmailOfUser { users: users.clone() },
        ShowGroupsOfUser { users: users.clone() },
        SetGroupsOfUser { users: users.clone() },
        ListSessionsOfUser { users: users.clone() },
        EndSessionsOfUser { users },
    )
}
