//! The command `users`: user administration.

use tenant_shared::{
    Code, Name, UserGroups, UserInfo, UserList, UserStatus, UserSuspension, Workspace,
    WorkspaceStatus,
};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    account::Account,
    broker::{Broker, Page},
    cli::{
        options::ListArgs,
        users::{RenameUser, Users as Options, UsersAction},
    },
    error::{Error, Kind},
    http::TOTAL_TIMEOUT,
    lookup,
    output::{self, Format},
    runtime,
    store::AccountFlags,
    terminal,
    world::World,
};

/// Bytes of the answer to a question.
const MAX_ANSWER_BYTES: u64 = 256;

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
            let (suspended, workspaces) = runtime::block_on(async {
                let id = resolve(&account.broker, user).await?;
                let suspended = account.broker.suspend_user(id, reason.text.as_deref()).await?;
                Ok::<_, Error>((suspended, workspaces_of(&account.broker, id).await))
            })??;
            output::show(world, shown.output, &suspended, |it| {
                table(std::slice::from_ref(&it.user))
            })?;
            world.print_message("Every session of this user has ended.");
            for line in suspension_lines(&suspended, &workspaces.unwrap_or_default(), flags) {
                world.print_message(line);
            }
            Ok(())
        }
        Some(UsersAction::Resume { user, reason, shown }) => {
            let account = Account::open(flags, world)?;
            let (user, workspaces) = runtime::block_on(async {
                let id = resolve(&account.broker, user).await?;
                let resumed = account.broker.resume_user(id, reason.text.as_deref()).await?;
                Ok::<_, Error>((resumed, workspaces_of(&account.broker, id).await))
            })??;
            show(&user, shown.output, world)?;
            for line in resumption_lines(workspaces.as_deref(), flags) {
                world.print_message(line);
            }
            Ok(())
        }
        Some(UsersAction::Rename(options)) => rename(flags, options, world),
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

fn rename(flags: &AccountFlags, options: &RenameUser, world: &mut World) -> Result<(), Error> {
    let asks = options.email.is_none() && !options.yes;
    if asks && !(world.stdin_is_terminal)() {
        let text = "without --email the user loses the address, which has to be confirmed";
        return Err(Error::usage(text).hint(
            "standard input is no terminal; confirm with --yes, or give the new address: --email \
             ADDRESS",
        ));
    }
    let account = Account::open(flags, world)?;
    let found = runtime::block_on(find(&account.broker, &options.user))??;
    if asks && !confirm_placeholder(&found.shown, world) {
        world.print_message("Nothing was changed.");
        return Ok(());
    }
    // The time for an answer does not count.
    let broker = account.broker.with_deadline(Instant::now() + TOTAL_TIMEOUT);
    let reason = options.reason.text.as_deref();
    let request = broker.change_email(found.id, options.email.as_deref(), reason);
    let renamed = runtime::block_on(request)??;
    let id = renamed.id;
    show(&renamed, options.shown.output, world)?;
    world.print_message(format!(
        "Sessions and workspaces stay as they are. To prevent sign-ins: {}",
        flags.command(&format!("users suspend {id}"))
    ));
    Ok(())
}

fn groups_table(user: &UserGroups) -> String {
    let rows: Vec<[String; 1]> = user.groups.iter().map(|group| [group.clone()]).collect();
    output::columns(["GROUP"], &rows)
}

/// A user, by the identifier for requests and the address or name for messages.
struct FoundUser {
    id: Uuid,
    shown: String,
}

/// Finds the user of a name. The broker looks it up, because the list of all users may be long.
async fn find(broker: &Broker, name: &Name) -> Result<FoundUser, Error> {
    match (broker.user_named(name).await, name) {
        // As for workspaces, an identifier needs no lookup.
        (Err(error), Name::Id(id)) if error.kind == Kind::Refused => {
            Ok(FoundUser { id: *id, shown: id.to_string() })
        }
        (found, _) => found.map(|user| FoundUser { id: user.id, shown: user.email }),
    }
}

/// Resolves a name to a user's identifier.
pub(crate) async fn resolve(broker: &Broker, name: &Name) -> Result<Uuid, Error> {
    Ok(find(broker, name).await?.id)
}

/// The workspaces of a user; [`None`] if the broker does not say.
async fn workspaces_of(broker: &Broker, user: Uuid) -> Option<Vec<Workspace>> {
    match broker.workspaces_named(&Name::Id(user)).await {
        Ok(found) => Some(found.items),
        Err(error) if error.code == Some(Code::NotFound) => Some(Vec::new()),
        Err(_) => None,
    }
}

/// What became of each workspace of a suspended user.
fn suspension_lines(
    suspended: &UserSuspension,
    known: &[Workspace],
    flags: &AccountFlags,
) -> Vec<String> {
    let line = |it: &tenant_shared::Suspension| {
        let workspace = known.iter().find(|workspace| workspace.id == it.id);
        let title = workspace.map_or_else(|| format!("Workspace {}", it.id), lookup::title);
        match it.status {
            WorkspaceStatus::Suspended => format!("{title} is suspended."),
            status => {
                let name = workspace.map_or_else(|| it.id.to_string(), lookup::name_of);
                format!(
                    "{title} is {}: the broker continues with it by itself. Wait for it: {}",
                    status.as_str(),
                    flags.command(&format!("suspend {name}"))
                )
            }
        }
    };
    suspended.workspaces.iter().map(line).collect()
}

/// The workspaces that a resumed user cannot use yet, with the command for each.
fn resumption_lines(workspaces: Option<&[Workspace]>, flags: &AccountFlags) -> Vec<String> {
    let Some(workspaces) = workspaces else {
        return vec![format!(
            "Suspended workspaces stay suspended: {} lists them, and {} resumes one",
            flags.command("workspaces --all"),
            flags.command("resume NAME")
        )];
    };
    let line = |it: &Workspace| {
        let command = flags.command(&format!("resume {}", lookup::name_of(it)));
        format!("{} stays suspended; to resume it: {command}", lookup::title(it))
    };
    workspaces.iter().filter(|it| it.status.is_suspension()).map(line).collect()
}

/// Asks for the address that the user loses.
fn confirm_placeholder(address: &str, world: &World) -> bool {
    let shown = terminal::sanitize(address);
    world.stderr.write(&format!(
        "{shown} is replaced by a placeholder, and others can have the address. The address, to \
         confirm: "
    ));
    world.stdin.line(MAX_ANSWER_BYTES).trim() == address
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

#[cfg(test)]
mod tests {
    use tenant_shared::{Role, Suspension};

    use super::*;
    use crate::lookup::tests::workspace;

    fn suspended(number: u128, tenant: Option<&str>) -> Workspace {
        Workspace { status: WorkspaceStatus::Suspended, ..workspace(number, tenant) }
    }

    #[test]
    fn a_suspended_user_has_workspaces_with_names() {
        let of = |number: u128, status| Suspension {
            id: Uuid::from_u128(number),
            status,
            steps: Vec::new(),
        };
        let suspension = UserSuspension {
            user: UserInfo {
                id: Uuid::from_u128(7),
                email: "bob@example.com".to_owned(),
                role: Role::User,
                status: UserStatus::Suspended,
                created_at: "2026-01-01T00:00:00Z".parse().unwrap(),
            },
            workspaces: vec![
                of(1, WorkspaceStatus::Suspended),
                of(2, WorkspaceStatus::Suspending),
                of(3, WorkspaceStatus::Suspended),
            ],
        };
        let known = [workspace(1, None), workspace(2, Some("solar"))];
        let lines = suspension_lines(&suspension, &known, &AccountFlags::default());
        insta::assert_snapshot!(lines.join("\n"), @r"
        Workspace tenant-00000000-0000-0000-0000-000000000001 of bob@example.com is suspended.
        The membership of bob@example.com in tenant solar is suspending: the broker continues with it by itself. Wait for it: kubectl tenant suspend 00000000-0000-0000-0000-000000000002
        Workspace 00000000-0000-0000-0000-000000000003 is suspended.
        ");
    }

    #[test]
    fn a_resumed_user_gets_a_command_for_each_suspended_workspace() {
        let known = [suspended(1, None), workspace(2, Some("lunar")), suspended(3, Some("solar"))];
        let flags = AccountFlags::default();
        insta::assert_snapshot!(resumption_lines(Some(&known), &flags).join("\n"), @r"
        Workspace tenant-00000000-0000-0000-0000-000000000001 of bob@example.com stays suspended; to resume it: kubectl tenant resume tenant-00000000-0000-0000-0000-000000000001
        The membership of bob@example.com in tenant solar stays suspended; to resume it: kubectl tenant resume 00000000-0000-0000-0000-000000000003
        ");
        assert_eq!(resumption_lines(Some(&[]), &flags), Vec::<String>::new());
        assert!(resumption_lines(None, &flags)[0].contains("kubectl tenant workspaces --all"));
        // The commands act as the same account.
        let flags = AccountFlags {
            broker: Some("https://b.example".to_owned()),
            profile: Some("operator".to_owned()),
        };
        let selected = " --broker https://b.example --profile operator";
        assert!(resumption_lines(Some(&known), &flags)[0].ends_with(selected));
        let lines = resumption_lines(None, &flags);
        assert!(lines[0].contains(&format!("resume NAME{selected} resumes")), "{lines:?}");
    }
}
