//! The commands `init`, `workspaces` and `kubeconfig`.

use std::os::unix::fs::PermissionsExt;

use secrecy::ExposeSecret;
use tenant_shared::{Name, Workspace, WorkspaceList};
use uuid::Uuid;

use crate::{
    account::Account,
    broker::{Broker, Mode, Page},
    cli::{Init, Kubeconfig, Workspaces},
    error::{Error, Kind},
    kubeconfig::{self, Entries, EntryChoices},
    output, runtime,
    store::AccountFlags,
    world::World,
};

/// Maximum number of namespaces that an error suggests.
const MAX_SUGGESTIONS: usize = 10;

/// Resolves a name to a workspace's identifier; without a name, the user's own workspace. The
/// broker looks it up, because the list of all workspaces may be long.
pub(crate) async fn resolve(broker: &Broker, name: Option<&Name>) -> Result<Uuid, Error> {
    let Some(name) = name else {
        let own = broker.own_workspaces().await?.items;
        return own.first().map(|it| it.id).ok_or_else(|| {
            Error::refused("you have no workspace yet").hint("create one: kubectl tenant init")
        });
    };
    let found = match (broker.workspaces_named(name).await, name) {
        // An identifier needs no lookup: the next request is refused with the reason and recorded
        // in the audit trail. An older broker has no lookup.
        (Err(error), Name::Id(id)) if error.kind == Kind::Refused => return Ok(*id),
        (found, _) => found?.items,
    };
    match found.as_slice() {
        [one] => Ok(one.id),
        [] => Err(Error::refused(format!("there is no workspace named {name}"))
            .hint("kubectl tenant workspaces lists yours, with --all everybody's")),
        several => {
            let namespaces: Vec<&str> =
                several.iter().take(MAX_SUGGESTIONS).map(|it| it.namespace.as_str()).collect();
            Err(Error::refused(format!("{name} has {} workspaces", several.len()))
                .hint(format!("name one of them: {}", namespaces.join(", "))))
        }
    }
}

/// Runs `init`.
pub(crate) fn init(flags: &AccountFlags, options: &Init, world: &mut World) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    let workspace = runtime::block_on(account.broker.init(&options.tier))??;
    output::show(world, options.shown.output, &workspace, |it| table(std::slice::from_ref(it)))?;
    world.say("to use it with kubectl: kubectl tenant kubeconfig --use");
    Ok(())
}

/// Runs `workspaces`.
pub(crate) fn list(
    flags: &AccountFlags,
    options: &Workspaces,
    world: &mut World,
) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    let broker = account.broker.with_list_timeout();
    let Page { items, next_cursor, more } =
        runtime::block_on(broker.workspaces(options.all, options.listed.limit))??;
    let found = WorkspaceList { items, next_cursor };
    output::show(world, options.listed.shown.output, &found, |it| {
        if options.all { table_of_all(&it.items) } else { table(&it.items) }
    })?;
    if found.items.is_empty() {
        world.say("there is no workspace yet; create one: kubectl tenant init");
    }
    output::report_truncation(world, found.items.len(), more);
    Ok(())
}

/// Runs `kubeconfig`.
pub(crate) fn kubeconfig(
    flags: &AccountFlags,
    options: &Kubeconfig,
    world: &mut World,
) -> Result<(), Error> {
    let mut account = Account::open(flags, world)?;
    let document = runtime::block_on(account.broker.kubeconfig(options.mode))??;
    if options.print {
        return world.print(document.expose_secret());
    }
    let mut entries = Entries::read(document.expose_secret(), options.mode, &account.key)?;
    if options.mode == Mode::Static {
        let own = runtime::block_on(account.broker.own_workspaces())??;
        entries.set_workspace_by_namespace(&own.items);
    }
    if options.mode == Mode::Gateway {
        // kubectl has to trust the same CA as this program.
        if let Some(ca) = account.profiles.ca_file(&account.key, &world.env) {
            entries.trust(&ca)?;
        }
    }
    let mut profile = account.profiles.get(&account.key);
    let mut name = profile.entry_name(&account.key);
    let exec_api_version = options.entry.exec_api_version.or(profile.exec_api_version);
    if let Some(context) = &options.entry.context {
        name = Some(context.clone());
    }
    // Only choices for entries that stay are stored for the next time.
    if options.mode != Mode::Static {
        profile.context = options.entry.context.clone().or(profile.context);
        profile.exec_api_version = exec_api_version;
    }
    entries.prepare(EntryChoices {
        name: name.as_deref(),
        command: options.entry.command_path.as_deref(),
        exec_api_version,
    });
    let install = kubeconfig::install(&entries, options.use_context, options.dry_run, world);
    let installed = runtime::block_on(install)??;
    if options.dry_run {
        return Ok(());
    }
    if profile != account.profiles.get(&account.key) {
        account.profiles.set(&account.key, profile);
        account.profiles.write(&account.paths.config)?;
    }
    world.say(format!("Context {} is in {}", installed.context, installed.path.display()));
    let mode =
        std::fs::metadata(&installed.path).map_or(0, |metadata| metadata.permissions().mode());
    if options.mode == Mode::Static && mode & 0o077 != 0 {
        world.say(format!(
            "warning: others can read {}, and there is a token in it now: chmod 600 it",
            installed.path.display()
        ));
    }
    Ok(())
}

/// Renders the table of all users' workspaces.
fn table_of_all(workspaces: &[Workspace]) -> String {
    let rows: Vec<[String; 6]> = workspaces
        .iter()
        .map(|it| {
            [
                it.namespace.clone(),
                it.owner_email.clone().unwrap_or_else(|| it.owner.to_string()),
                status(it),
                it.tier.clone(),
                it.cluster.clone(),
                it.id.to_string(),
            ]
        })
        .collect();
    output::columns(["NAMESPACE", "OWNER", "STATUS", "TIER", "CLUSTER", "ID"], &rows)
}

/// Status with the number of open steps and whether there is drift; the other formats have the
/// details.
fn status(workspace: &Workspace) -> String {
    let mut text = workspace.status.as_str().to_owned();
    if let Some(unfinished) = &workspace.unfinished {
        text += match unfinished.open_steps.len() {
            1 => " (1 step open)".to_owned(),
            count => format!(" ({count} steps open)"),
        }
        .as_str();
    }
    if !workspace.drift.is_empty() {
        text += " (drift)";
    }
    text
}

/// Renders the table of a user's own workspaces.
pub(crate) fn table(workspaces: &[Workspace]) -> String {
    let rows: Vec<[String; 6]> = workspaces
        .iter()
        .map(|it| {
            [
                it.namespace.clone(),
                status(it),
                it.tier.clone(),
                it.quota.cpu.clone(),
                it.quota.memory.clone(),
                it.id.to_string(),
            ]
        })
        .collect();
    output::columns(["NAMESPACE", "STATUS", "TIER", "CPU", "MEMORY", "ID"], &rows)
}
