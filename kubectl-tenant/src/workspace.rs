//! The commands `init`, `workspaces` and `kubeconfig`.

use std::{os::unix::fs::PermissionsExt, time::Duration};

use secrecy::ExposeSecret;
use tenant_shared::{ExecApiVersion, Workspace, WorkspaceList, WorkspaceStatus};
use tokio::time::Instant;

use crate::{
    account::Account,
    broker::{Broker, Mode, Page},
    cli::{
        options::EntryFlags,
        workspaces::{Init, Kubeconfig, Workspaces},
    },
    error::Error,
    kubeconfig::{self, Entries, EntryChoices},
    output, runtime,
    store::{AccountFlags, Profile},
    world::World,
};

/// Timeout of waiting for a new workspace.
pub(crate) const PROVISIONING_TIMEOUT: Duration = Duration::from_mins(1);
/// Interval at which the status of a new workspace is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Runs `init`.
pub(crate) fn init(flags: &AccountFlags, options: &Init, world: &mut World) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    let workspace = runtime::block_on(account.broker.init(&options.tier))??;
    output::show(world, options.shown.output, &workspace, |it| table(std::slice::from_ref(it)))?;
    let command = flags.command("kubeconfig --use");
    world.print_message(format!("to use it with kubectl: {command}"));
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
        let command = flags.command("init");
        world.print_message(format!("there is no workspace yet; create one: {command}"));
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
    // The document of the broker would have a token.
    if options.mode == Mode::Static && options.dry_run {
        return Err(Error::usage("--dry-run changes nothing, but --mode static issues a token")
            .hint(
                "leave out --dry-run, or print the token without a file: --mode static --print",
            ));
    }
    let mut account = Account::open(flags, world)?;
    let document = runtime::block_on(account.broker.kubeconfig(options.mode, None))??;
    if options.print {
        return world.print(document.expose_secret());
    }
    let mut entries = Entries::read(document.expose_secret(), options.mode, &account.key)?;
    if options.mode == Mode::Static {
        let own = runtime::block_on(account.broker.own_workspaces())??;
        entries.set_workspace_by_namespace(&own.items);
    }
    let mut profile = account.profiles.get(&account.key);
    let name = options.entry.context.clone().or_else(|| profile.entry_name(&account.key));
    let exec_api_version = options.entry.exec_api_version.or(profile.exec_api_version);
    // Only choices for entries that stay are stored for the next time.
    if options.mode != Mode::Static {
        profile.context = options.entry.context.clone().or(profile.context);
        profile.exec_api_version = exec_api_version;
    }
    let context = ContextOptions {
        mode: options.mode,
        name,
        exec_api_version,
        use_context: options.use_context,
        dry_run: options.dry_run,
        entry: &options.entry,
    };
    install_context(&mut account, entries, &context, profile, world)
}

/// How the entries of a workspace are written into the kubeconfig.
pub(crate) struct ContextOptions<'a> {
    /// Kind of the credential in the entries.
    pub(crate) mode: Mode,
    /// Name of all three entries; the broker's names without it.
    pub(crate) name: Option<String>,
    /// Version of the exec credential protocol.
    pub(crate) exec_api_version: Option<ExecApiVersion>,
    /// Whether the context becomes the current one.
    pub(crate) use_context: bool,
    /// Whether the new text is printed instead.
    pub(crate) dry_run: bool,
    /// The person's other choices.
    pub(crate) entry: &'a EntryFlags,
}

/// Merges the entries of a workspace into the kubeconfig, and stores the settings of the account.
pub(crate) fn install_context(
    account: &mut Account,
    mut entries: Entries,
    options: &ContextOptions<'_>,
    profile: Profile,
    world: &mut World,
) -> Result<(), Error> {
    if options.mode == Mode::Gateway {
        // kubectl has to trust the same CA as this program.
        if let Some(ca) = account.profiles.ca_file(&account.key, &world.env) {
            entries.trust(&ca)?;
        }
    }
    kubeconfig::warn_of_missing_command(options.entry.command_path.as_deref(), world);
    entries.prepare(EntryChoices {
        name: options.name.as_deref(),
        command: options.entry.command_path.as_deref(),
        exec_api_version: options.exec_api_version,
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
    world.print_message(format!(
        "Context {} is in {}",
        installed.context,
        installed.path.display()
    ));
    let mode =
        std::fs::metadata(&installed.path).map_or(0, |metadata| metadata.permissions().mode());
    if options.mode == Mode::Static && mode & 0o077 != 0 {
        world.print_message(format!(
            "warning: others can read {}, and there is a token in it now: chmod 600 it",
            installed.path.display()
        ));
    }
    Ok(())
}

/// Waits until the objects of a new workspace, or of one that is being resumed, exist.
pub(crate) async fn until_provisioned(
    broker: &Broker,
    mut workspace: Workspace,
) -> Result<Workspace, Error> {
    let deadline = Instant::now() + PROVISIONING_TIMEOUT;
    while matches!(workspace.status, WorkspaceStatus::Provisioning | WorkspaceStatus::Resuming) {
        if Instant::now() >= deadline {
            return Err(Error::refused(format!(
                "the workspace is still {} after {} s",
                workspace.status.as_str(),
                PROVISIONING_TIMEOUT.as_secs()
            )));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        workspace = broker.workspace(workspace.id).await?;
    }
    Ok(workspace)
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
