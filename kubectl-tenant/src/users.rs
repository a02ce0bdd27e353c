//! The command `users`: what administrators do with accounts.

use tenant_shared::{UserInfo, UserList, UserStatus, WorkspaceStatus};

use crate::{
    account::Account,
    cli::{Users as Options, UsersAction},
    error::Error,
    output::{self, Format},
    runtime,
    store::Choice,
    world::World,
};

/// Runs `users`.
pub(crate) fn users(choice: &Choice, options: &Options, world: &mut World) -> Result<(), Error> {
    match &options.action {
        None => list(choice, options.shown.output, world),
        Some(UsersAction::List(shown)) => list(choice, shown.output, world),
        Some(UsersAction::Suspend { id, reason, shown }) => {
            let account = Account::open(choice, world)?;
            let suspended = account.broker.suspend_user(*id, reason.as_deref());
            let user = runtime::block_on(suspended)??;
            output::show(world, shown.output, &user, |it| table(std::slice::from_ref(&it.user)))?;
            world.say("Every session of this user has ended.");
            for workspace in &user.workspaces {
                let (id, status) = (workspace.id, workspace.status.as_str());
                world.say(match workspace.status {
                    WorkspaceStatus::Suspended => format!("Workspace {id} is suspended."),
                    _ => format!(
                        "Workspace {id} is {status}: the broker goes on with it by itself. Wait for \
                         it: kubectl tenant suspend {id}"
                    ),
                });
            }
            Ok(())
        }
        Some(UsersAction::Resume { id, reason, shown }) => {
            let account = Account::open(choice, world)?;
            let user = runtime::block_on(account.broker.resume_user(*id, reason.as_deref()))??;
            show(&user, shown.output, world)?;
            world.say("Suspended workspaces stay so: kubectl tenant resume ID gives one back.");
            Ok(())
        }
        Some(UsersAction::Rename { id, email, reason, shown }) => {
            let account = Account::open(choice, world)?;
            let renamed = account.broker.change_email(*id, email.as_deref(), reason.as_deref());
            show(&runtime::block_on(renamed)??, shown.output, world)?;
            world.say(format!(
                "Sessions and workspaces stay as they are. To keep the user out: kubectl tenant users \
                 suspend {id}"
            ));
            Ok(())
        }
    }
}

fn list(choice: &Choice, format: Format, world: &mut World) -> Result<(), Error> {
    let account = Account::open(choice, world)?;
    let items = runtime::block_on(account.broker.users())??;
    output::show(world, format, &UserList { items, next_cursor: None }, |it| table(&it.items))
}

fn show(user: &UserInfo, format: Format, world: &mut World) -> Result<(), Error> {
    output::show(world, format, user, |it| table(std::slice::from_ref(it)))
}

fn table(users: &[UserInfo]) -> String {
    let rows: Vec<[String; 5]> = users
        .iter()
        .map(|it| {
            [
                it.email.clone(),
                it.role.as_str().to_owned(),
                match it.status {
                    UserStatus::Active => "active".to_owned(),
                    UserStatus::Suspended => "suspended".to_owned(),
                },
                it.created_at.to_string(),
                it.id.to_string(),
            ]
        })
        .collect();
    output::columns(["E-MAIL", "ROLE", "STATUS", "SINCE", "ID"], &rows)
}
