//! The commands about workspaces: `init`, `workspaces`, `kubeconfig`.

use std::os::unix::fs::PermissionsExt;

use secrecy::ExposeSecret;
use tenant_shared::{Name, Workspace, WorkspaceList};
use uuid::Uuid;

use crate::{
    account::Account,
    broker::{Broker, Mode, Page},
    cli::{Init, Kubeconfig, Workspaces},
    error::{Error, Kind},
    kubeconfig::{self, Entries},
    output, runtime,
    store::Choice,
    world::World,
};

/// Namespaces that an error names at most.
const MOST_SUGGESTED: usize = 10;

/// The workspace of this name, or the person's own. The broker finds it: a list of all of them may be
/// long.
pub(crate) async fn named(broker: &Broker, name: Option<&Name>) -> Result<Uuid, Error> {
    let Some(name) = name else {
        let own = broker.own_workspaces().await?.items;
        return own.first().map(|it| it.id).ok_or_else(|| {
            Error::refused("you have no workspace yet").hint("make one: kubectl tenant init")
        });
    };
    let found = match (broker.workspaces_named(name).await, name) {
        // What comes next needs no more than an identifier. A refusal of that says why, and is on
        // record; an older broker looks nothing up.
        (Err(error), Name::Id(id)) if error.kind == Kind::Refused => return Ok(*id),
        (found, _) => found?.items,
    };
    match found.as_slice() {
        [one] => Ok(one.id),
        [] => Err(Error::refused(format!("there is no workspace of the name {name}"))
            .hint("kubectl tenant workspaces lists yours, with --all everybody's")),
        several => {
            let namespaces: Vec<&str> =
                several.iter().take(MOST_SUGGESTED).map(|it| it.namespace.as_str()).collect();
            Err(Error::refused(format!("{name} has {} workspaces", several.len()))
                .hint(format!("name one of them: {}", namespaces.join(", "))))
        }
    }
}

/// Runs `init`.
pub(crate) fn init(choice: &Choice, options: &Init, world: &mut World) -> Result<(), Error> {
    let account = Account::open(choice, world)?;
    let workspace = runtime::block_on(account.broker.init(&options.tier))??;
    output::show(world, options.shown.output, &workspace, |it| table(std::slice::from_ref(it)))?;
    world.say("to use it with kubectl: kubectl tenant kubeconfig --use");
    Ok(())
}

/// Runs `workspaces`.
pub(crate) fn list(choice: &Choice, options: &Workspaces, world: &mut World) -> Result<(), Error> {
    let account = Account::open(choice, world)?;
    let broker = account.broker.for_a_list();
    let Page { items, next_cursor, more } =
        runtime::block_on(broker.workspaces(options.all, options.listed.limit))??;
    let found = WorkspaceList { items, next_cursor };
    output::show(world, options.listed.shown.output, &found, |it| {
        if options.all { table_of_all(&it.items) } else { table(&it.items) }
    })?;
    if found.items.is_empty() {
        world.say("there is none yet; make one: kubectl tenant init");
    }
    output::say_if_there_is_more(world, found.items.len(), more);
    Ok(())
}

/// Runs `kubeconfig`.
pub(crate) fn kubeconfig(
    choice: &Choice,
    options: &Kubeconfig,
    world: &mut World,
) -> Result<(), Error> {
    let mut account = Account::open(choice, world)?;
    let document = runtime::block_on(account.broker.kubeconfig(options.mode))??;
    if options.print {
        return world.print(document.expose_secret());
    }
    let mut entries = Entries::read(document.expose_secret(), options.mode, &account.identity)?;
    if options.mode == Mode::Static {
        let own = runtime::block_on(account.broker.own_workspaces())??;
        entries.find_workspace(&own.items);
    }
    if options.mode == Mode::Gateway {
        // kubectl has to trust the broker as this program does.
        if let Some(ca) = account.profiles.ca_file(&account.identity, &world.env) {
            entries.trust(&ca)?;
        }
    }
    let mut profile = account.profiles.of(&account.identity);
    let mut name = profile.entry_name(&account.identity);
    if let Some(context) = &options.naming.context {
        name = Some(context.clone());
        // The name for next time is that of the entries that stay.
        if options.mode != Mode::Static {
            profile.context.clone_from(&name);
        }
    }
    entries.prepare(name.as_deref(), options.naming.command_path.as_deref());
    let install = kubeconfig::install(&entries, options.use_context, options.dry_run, world);
    let installed = runtime::block_on(install)??;
    if options.dry_run {
        return Ok(());
    }
    if profile != account.profiles.of(&account.identity) {
        account.profiles.set(&account.identity, profile);
        account.profiles.write(&account.paths.config)?;
    }
    world.say(format!("Context {} is in {}", installed.context, installed.path.display()));
    let mode = std::fs::metadata(&installed.path).map_or(0, |facts| facts.permissions().mode());
    if options.mode == Mode::Static && mode & 0o077 != 0 {
        world.say(format!(
            "warning: others can read {}, and there is a token in it now: chmod 600 it",
            installed.path.display()
        ));
    }
    Ok(())
}

/// A table of everybody's workspaces.
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

/// The status, with what the broker goes on with and whether something is wrong in the cluster; the
/// details are in the other formats.
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

/// A table of workspaces.
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
