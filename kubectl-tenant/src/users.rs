//! The command `users`: user administration.

use tenant_shared::{Name, UserGroups, UserInfo, UserList, UserStatus, WorkspaceStatus};
use uuid::Uuid;

use crate::{
    account::Account,
    broker::{Broker, Page},
    cli::{
        options::ListArgs,
        users::{Users as Options, UsersAction},
    },
    error::{Error, Kind},
    output::{self, Format},
    runtime,
    store::AccountFlags,
    world::World,
};

/// Runs `users`.
pub(crate) fn users(
    flags: &AccountFlags,
    options: &Options,
    world: &mut World,
) -> Result<(), Error> {
    match &options.action {
        None => list(flags, options.listed, world),
        Some(UsersAction::List(listed)) => list(flags, *listed, world),
        Some(UsersAction::Suspend { user, reason, shown }) => {
            let account = Account::open(flags, world)?;
            let user = runtime::block_on(async {
                let id = resolve(&account.broker, user).await?;
                account.broker.suspend_user(id, reason.text.as_deref()).await
            })??;
            output::show(world, shown.output, &user, |it| table(std::slice::from_ref(&it.user)))?;
            world.print_message("Every session of this user has ended.");
            for workspace in &user.workspaces {
                let (id, status) = (workspace.id, workspace.status.as_str());
                world.print_message(match workspace.status {
                    WorkspaceStatus::Suspended => format!("Workspace {id} is suspended."),
                    _ => format!(
                        "Workspace {id} is {status}: the broker continues with it by itself. Wait \
                         for it: kubectl tenant suspend {id}"
                    ),
                });
            }
            Ok(())
        }
        Some(UsersAction::Resume { user, reason, shown }) => {
            let account = Account::open(flags, world)?;
            let user = runtime::block_on(async {
                let id = resolve(&account.broker, user).await?;
                account.broker.resume_user(id, reason.text.as_deref()).await
            })??;
            show(&user, shown.output, world)?;
            world.print_message(
                "Suspended workspaces stay suspended; to resume one: kubectl tenant resume ID",
            );
            Ok(())
        }
        Some(UsersAction::Rename { user, email, reason, shown }) => {
            let account = Account::open(flags, world)?;
            let renamed = runtime::block_on(async {
                let id = resolve(&account.broker, user).await?;
                account.broker.change_email(id, email.as_deref(), reason.text.as_deref()).await
            })??;
            let id = renamed.id;
            show(&renamed, shown.output, world)?;
            world.print_message(format!(
                "Sessions and workspaces stay as they are. To prevent sign-ins: kubectl tenant \
                 users suspend {id}"
            ));
            Ok(())
        }
        Some(UsersAction::Groups { user, set, none, reason, shown }) => {
            let account = Account::open(flags, world)?;
            let groups = runtime::block_on(async {
                let id = resolve(&account.broker, user).await?;
                if *none || !set.is_empty() {
                    account.broker.set_groups(id, set, reason.text.as_deref()).await
                } else {
                    account.broker.groups(id).await
                }
            })??;
            output::show(world, shown.output, &groups, groups_table)?;
            if let Some(issuer) = &groups.issuer {
                world.print_message(format!(
                    "The sign-in provider {issuer} decides on these groups."
                ));
            }
            Ok(())
        }
    }
}

fn groups_table(user: &UserGroups) -> String {
    let rows: Vec<[String; 1]> = user.groups.iter().map(|group| [group.clone()]).collect();
    output::columns(["GROUP"], &rows)
}

/// Resolves a name to a user's identifier. The broker looks it up, because the list of all users
/// may be long.
pub(crate) async fn resolve(broker: &Broker, name: &Name) -> Result<Uuid, Error> {
    match (broker.user_named(name).await, name) {
        // As for workspaces, an identifier needs no lookup.
        (Err(error), Name::Id(id)) if error.kind == Kind::Refused => Ok(*id),
        (found, _) => Ok(found?.id),
    }
}

fn list(flags: &AccountFlags, options: ListArgs, world: &mut World) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    let broker = account.broker.with_list_timeout();
    let Page { items, next_cursor, more } = runtime::block_on(broker.users(options.limit))??;
    let found = UserList { items, next_cursor };
    output::show(world, options.shown.output, &found, |it| table(&it.items))?;
    output::report_truncation(world, found.items.len(), more);
    Ok(())
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
