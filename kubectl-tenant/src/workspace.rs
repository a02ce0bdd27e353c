//! The commands about workspaces: `init`, `workspaces`, `kubeconfig`.

use std::os::unix::fs::PermissionsExt;

use secrecy::ExposeSecret;
use tenant_shared::{UserInfo, Workspace};
use uuid::Uuid;

use crate::{
    account::Account,
    broker::{Broker, Mode},
    cli::{Init, Kubeconfig, Workspaces},
    error::Error,
    kubeconfig::{self, Entries},
    output::{self, Format},
    runtime,
    store::Choice,
    world::World,
};

/// The workspace that is named by its identifier or its namespace, or the person's own.
pub(crate) async fn named(broker: &Broker, named: Option<&str>) -> Result<Uuid, Error> {
    let Some(named) = named else {
        let own = broker.workspaces(false).await?.items;
        return own.first().map(|it| it.id).ok_or_else(|| {
            Error::refused("you have no workspace yet").hint("make one: kubectl tenant init")
        });
    };
    if let Ok(id) = named.parse() {
        return Ok(id);
    }
    // Their own first: to see everybody's takes an administrator.
    for all in [false, true] {
        let known = broker.workspaces(all).await?.items;
        if let Some(found) = known.iter().find(|it| it.namespace == named) {
            return Ok(found.id);
        }
    }
    Err(Error::refused(format!("there is no workspace in a namespace {}", output::plain(named)))
        .hint("kubectl tenant workspaces lists yours, with --all everybody's"))
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
    let found = runtime::block_on(account.broker.workspaces(options.all))??;
    let owners = if options.all && options.shown.output == Format::Table {
        // Only for show: without it the identifiers have to do.
        runtime::block_on(account.broker.users())?.unwrap_or_default()
    } else {
        Vec::new()
    };
    output::show(world, options.shown.output, &found, |it| {
        if options.all { table_of_all(&it.items, &owners) } else { table(&it.items) }
    })?;
    if found.items.is_empty() {
        world.say("there is none yet; make one: kubectl tenant init");
    }
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
        let own = runtime::block_on(account.broker.workspaces(false))??;
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
fn table_of_all(workspaces: &[Workspace], users: &[UserInfo]) -> String {
    let rows: Vec<[String; 6]> = workspaces
        .iter()
        .map(|it| {
            let owner = users.iter().find(|user| user.id == it.owner);
            [
                it.namespace.clone(),
                owner.map_or_else(|| it.owner.to_string(), |user| user.email.clone()),
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
