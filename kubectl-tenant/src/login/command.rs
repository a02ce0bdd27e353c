//! The command `login`: signs in, creates the workspace and installs the kubeconfig context.

use std::path::{Path, PathBuf};

use secrecy::ExposeSecret;
use serde::Serialize;
use tenant_cached_token::{ID_TOKEN_ENV, ID_TOKEN_FILE_ENV};
use tenant_shared::{Me, Workspace};

use super::{
    SignInOutcome, SignInTrigger, sign_in,
    sign_in_method::{self, DeviceReason, SignInMethod},
};
use crate::{
    account_key::{AccountKey, ProfileName},
    broker::{Broker, Mode},
    broker_url::BrokerUrl,
    cli::{
        accounts::{Login, SignInFlags},
        workspaces::Kubeconfig,
    },
    error::{Error, Kind},
    http::Http,
    kubeconfig::{self, Entries, EntryChoices, Installed},
    output,
    paths::Paths,
    runtime,
    store::{AccountFlags, Profile, Profiles, SessionStore, Storage, StoragePreference},
    terminal,
    workload_identity::WorkloadIdentity,
    workspace,
    world::World,
};

/// Tier of a new workspace if `--tier` is not given.
const DEFAULT_TIER: &str = "basic";
/// Clock offset, in seconds, from which a warning is printed.
const CLOCK_OFFSET_WARNING_SECONDS: i64 = 60;

/// Output of `login`.
#[derive(Serialize)]
struct LoginResult {
    broker: BrokerUrl,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<ProfileName>,
    #[serde(flatten)]
    me: Me,
    workspace: Workspace,
    context: String,
    kubeconfig: String,
}

/// Runs `login`.
pub(crate) fn login(flags: &AccountFlags, options: &Login, world: &mut World) -> Result<(), Error> {
    if WorkloadIdentity::from_env(flags, &world.env)?.is_some() {
        return for_machine(flags, options, world);
    }
    let paths = Paths::from_env(&world.env)?;
    let mut profiles = Profiles::read(&paths.config, &world.stderr)?;
    let account = profiles.choose_for_login(flags, &world.env)?;
    let ca = absolute_ca_file(&profiles, &account, world)?;
    let remembered = profiles.get(&account);
    let entry_name = options.entry.context.clone().or_else(|| remembered.entry_name(&account));
    // A conflict must be reported before the person types a password.
    kubeconfig::check_no_conflict(entry_name.as_deref(), &account, world)?;
    let preference =
        StoragePreference::resolve(options.storage, remembered.storage, world.keyring, &world.env)?;
    let result = runtime::block_on(async {
        let http = Http::new(&account, ca.as_deref())?;
        let method = choose_method(options.method, world);
        let trigger = SignInTrigger::Login;
        let done = sign_in(&http, &account, method, preference, trigger, &paths, world).await?;
        let mut profile = profiles.get(&account);
        update_profile(&mut profile, ca.as_deref(), options);
        explain_storage(&done, preference, &mut profile, world);
        let (name, exec_api_version) = (profile.entry_name(&account), profile.exec_api_version);
        profiles.set(&account, profile);
        profiles.current = Some(account.clone());
        profiles.write(&paths.config)?;
        warn_about_clock_offset(done.clock_offset, world);

        let client =
            Broker::new(&account, ca.as_deref(), &paths, world)?.with_version_warning(world);
        let me = client.me().await?;
        let sessions = SessionStore::new(&paths, &account, world);
        sessions.set_details(&me.email, me.session_expires_at).await?;
        let workspace = own_workspace(&client, &me, options.tier.as_deref(), world).await?;
        kubeconfig::warn_of_missing_command(options.entry.command_path.as_deref(), world);
        let choices = EntryChoices {
            name: name.as_deref(),
            command: options.entry.command_path.as_deref(),
            exec_api_version,
        };
        let installed = install_context(&client, &account, choices, !options.no_use, world).await?;
        Ok::<_, Error>(LoginResult {
            broker: account.broker.clone(),
            profile: account.profile.clone(),
            me,
            workspace,
            context: installed.context,
            kubeconfig: installed.path.display().to_string(),
        })
    })??;
    show_result(&result, options, world)
}

/// Absolute path of the CA file, because the path is stored and later calls run in another folder.
fn absolute_ca_file(
    profiles: &Profiles,
    account: &AccountKey,
    world: &World,
) -> Result<Option<PathBuf>, Error> {
    profiles
        .ca_file(account, &world.env)
        .map(|path| std::path::absolute(&path).map_err(|error| Error::file("find", &path, &error)))
        .transpose()
}

/// The method that the flags choose, or the one that fits this machine.
fn choose_method(flags: SignInFlags, world: &World) -> SignInMethod {
    match flags {
        SignInFlags { no_browser: true, .. } => SignInMethod::Paste,
        SignInFlags { device: true, .. } => SignInMethod::Device(DeviceReason::Requested),
        SignInFlags { .. } => sign_in_method::detect(world),
    }
}

/// Updates the settings of the account that later calls use.
fn update_profile(profile: &mut Profile, ca: Option<&Path>, options: &Login) {
    profile.ca_file = ca.map(Path::to_path_buf);
    if let Some(context) = &options.entry.context {
        profile.context = Some(context.clone());
    }
    profile.storage = options.storage.or(profile.storage);
    profile.exec_api_version = options.entry.exec_api_version.or(profile.exec_api_version);
}

/// Downloads the kubeconfig and installs its entries with the person's choices.
async fn install_context(
    client: &Broker,
    account: &AccountKey,
    choices: EntryChoices<'_>,
    use_context: bool,
    world: &mut World,
) -> Result<Installed, Error> {
    let document = client.kubeconfig(Mode::Exec, None).await?;
    let mut entries = Entries::read(document.expose_secret(), Mode::Exec, account)?;
    entries.prepare(choices);
    kubeconfig::install(&entries, use_context, false, world).await
}

/// Prints the result, and a command to try.
fn show_result(result: &LoginResult, options: &Login, world: &mut World) -> Result<(), Error> {
    output::show(world, options.shown.output, result, |it| {
        format!(
            "Signed in as {} at {} until {}\nWorkspace {} ({}, {})\nContext {} in {}\n",
            terminal::sanitize(&it.me.email),
            it.broker,
            it.me.session_expires_at,
            terminal::sanitize(&it.workspace.namespace),
            terminal::sanitize(&it.workspace.tier),
            it.workspace.status.as_str(),
            it.context,
            it.kubeconfig
        )
    })?;
    if options.no_use {
        world.print_message(format!("try: kubectl --context {} get pods", result.context));
    } else {
        world.print_message("try: kubectl get pods");
    }
    Ok(())
}

/// Runs `login` for a workload, which needs no session: installs the kubeconfig entries, which also
/// proves that the broker accepts the workload's token.
fn for_machine(flags: &AccountFlags, options: &Login, world: &mut World) -> Result<(), Error> {
    let SignInFlags { no_browser, device } = options.method;
    if no_browser || device || options.storage.is_some() {
        return Err(Error::usage("a machine does not sign in, and no session is stored for it")
            .hint(format!("unset {ID_TOKEN_ENV} and {ID_TOKEN_FILE_ENV} to sign in as a person")));
    }
    let kubeconfig = Kubeconfig {
        mode: Mode::Exec,
        print: false,
        dry_run: false,
        use_context: !options.no_use,
        entry: options.entry.clone(),
    };
    workspace::kubeconfig(flags, &kubeconfig, world)
}

/// Reports where the session is stored, if that may be unexpected.
fn explain_storage(
    done: &SignInOutcome,
    preference: StoragePreference,
    profile: &mut Profile,
    world: &World,
) {
    match done.storage {
        Storage::None => world.print_message(
            "Nothing long-lived is kept: kubectl works for two hours at most, other commands for \
             some minutes, and then you are asked to sign in again.",
        ),
        Storage::File if !preference.explicit && !profile.file_storage_notice_shown => {
            profile.file_storage_notice_shown = true;
            let why = done.no_keyring.as_ref().map_or_else(
                || "There is no keyring here".to_owned(),
                |why| format!("The keyring cannot be used ({why})"),
            );
            world.print_message(format!(
                "{why}; your session is kept in a file that only you can read."
            ));
        }
        Storage::File | Storage::Keyring => {}
    }
}

fn warn_about_clock_offset(offset: i64, world: &World) {
    if offset.abs() > CLOCK_OFFSET_WARNING_SECONDS {
        let direction = if offset > 0 { "behind" } else { "ahead of" };
        world.print_message(format!(
            "warning: the clock of this machine is {} s {direction} the broker's",
            offset.abs()
        ));
    }
}

/// Returns the user's workspace. Creates it if there is none, and waits until it is ready.
async fn own_workspace(
    client: &Broker,
    me: &Me,
    tier: Option<&str>,
    world: &World,
) -> Result<Workspace, Error> {
    let own = client.own_workspaces().await?.items.into_iter();
    // A membership in a tenant does not take the place of the personal workspace.
    let own = own.filter(|it| it.tenant.is_none()).find(|it| it.owner == me.id);
    let workspace = if let Some(found) = own {
        if let Some(tier) = tier.filter(|tier| *tier != found.tier) {
            world.print_message(format!(
                "warning: your workspace has the tier {}; --tier {tier} has no effect on it",
                found.tier
            ));
        }
        found
    } else {
        let tier = tier.unwrap_or(DEFAULT_TIER);
        world.print_message(format!("Creating your workspace (tier {tier}) …"));
        client.init(tier).await?
    };
    workspace::until_provisioned(client, workspace).await.map_err(|error| match error.kind {
        Kind::Refused if error.hint.is_none() => {
            error.hint("you are signed in; later run: kubectl tenant kubeconfig --use")
        }
        _ => error,
    })
}
