//! The command `login`: everything from a clean machine to `kubectl get pods`.

use std::time::Duration;

use secrecy::ExposeSecret;
use serde::Serialize;
use tenant_cached_token::{ID_TOKEN_ENV, ID_TOKEN_FILE_ENV};
use tenant_shared::{Me, Workspace, WorkspaceStatus};
use tokio::time::Instant;

use super::{
    SignedIn as Done, sign_in,
    way::{self, Way, Why},
};
use crate::{
    broker::{Broker, Mode},
    broker_url::BrokerUrl,
    cli::{self, Login, WayFlags},
    error::Error,
    http::Http,
    identity::ProfileName,
    kubeconfig::{self, Entries},
    machine::Machine,
    output,
    paths::Paths,
    runtime,
    store::{Choice, Profile, Profiles, Sessions, Storage, Wish},
    workspace,
    world::World,
};

/// Tier of a workspace that has to be made, if the person names none.
const DEFAULT_TIER: &str = "basic";
/// How long a new workspace may take to be ready.
const LONGEST_PROVISIONING: Duration = Duration::from_mins(1);
/// How often to look whether it is.
const PROBE: Duration = Duration::from_millis(500);
/// A clock that is further off than this is worth a word, in seconds.
const NOTABLE_OFFSET: i64 = 60;

/// What a sign-in leads to.
#[derive(Serialize)]
struct SignedIn {
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
pub(crate) fn login(choice: &Choice, options: &Login, world: &mut World) -> Result<(), Error> {
    if Machine::of(choice, &world.env)?.is_some() {
        return for_machine(choice, options, world);
    }
    let paths = Paths::of(&world.env)?;
    let mut profiles = Profiles::read(&paths.config, &world.stderr)?;
    let identity = profiles.choose_for_login(choice, &world.env)?;
    let ca = match profiles.ca_file(&identity, &world.env) {
        // It is remembered, and then the folder is another one.
        Some(path) => {
            Some(std::path::absolute(&path).map_err(|error| Error::file("find", &path, &error))?)
        }
        None => None,
    };
    let remembered = profiles.of(&identity);
    let entry_name = options.naming.context.clone().or_else(|| remembered.entry_name(&identity));
    // Better known now than after the person has typed a password.
    kubeconfig::check_free(entry_name.as_deref(), &identity, world)?;
    let wish = Wish::of(options.storage, remembered.storage, world.keyring, &world.env)?;
    let signed_in = runtime::block_on(async {
        let http = Http::new(&identity, ca.as_deref())?;
        let way = match options.way {
            WayFlags { no_browser: true, .. } => Way::Paste,
            WayFlags { device: true, .. } => Way::Device(Why::Asked),
            WayFlags { .. } => way::fitting(world),
        };
        let done = sign_in(&http, &identity, way, wish, &paths, world).await?;
        let mut profile = profiles.of(&identity);
        profile.ca_file.clone_from(&ca);
        if let Some(context) = &options.naming.context {
            profile.context = Some(context.clone());
        }
        let context = profile.entry_name(&identity);
        profile.storage = options.storage.or(profile.storage);
        explain_storage(&done, wish, &mut profile, world);
        profiles.set(&identity, profile);
        profiles.current = Some(identity.clone());
        profiles.write(&paths.config)?;
        warn_of_offset(done.clock_offset, world);

        let client = Broker::new(&identity, ca.as_deref(), &paths, world)?;
        let me = client.me().await?;
        let sessions = Sessions::new(&paths, &identity, world);
        sessions.describe(&me.email, me.session_expires_at).await?;
        let workspace = own_workspace(&client, &me, options.tier.as_deref(), world).await?;
        let document = client.kubeconfig(Mode::Exec).await?;
        let mut entries = Entries::read(document.expose_secret(), Mode::Exec, &identity)?;
        entries.prepare(context.as_deref(), options.naming.command_path.as_deref());
        let installed = kubeconfig::install(&entries, !options.no_use, false, world).await?;
        Ok::<_, Error>(SignedIn {
            broker: identity.broker.clone(),
            profile: identity.profile.clone(),
            me,
            workspace,
            context: installed.context,
            kubeconfig: installed.path.display().to_string(),
        })
    })??;
    output::show(world, options.shown.output, &signed_in, |it| {
        format!(
            "Signed in as {} at {} until {}\nWorkspace {} ({}, {})\nContext {} in {}\n",
            output::plain(&it.me.email),
            it.broker,
            it.me.session_expires_at,
            output::plain(&it.workspace.namespace),
            output::plain(&it.workspace.tier),
            it.workspace.status.as_str(),
            it.context,
            it.kubeconfig
        )
    })?;
    if options.no_use {
        world.say(format!("try: kubectl --context {} get pods", signed_in.context));
    } else {
        world.say("try: kubectl get pods");
    }
    Ok(())
}

/// A machine needs no session: what is left of a sign-in is the entry in the kubeconfig, and the
/// proof that the broker takes the machine's token.
fn for_machine(choice: &Choice, options: &Login, world: &mut World) -> Result<(), Error> {
    let WayFlags { no_browser, device } = options.way;
    if no_browser || device || options.storage.is_some() {
        return Err(Error::usage("a machine does not sign in, and nothing of it is stored")
            .hint(format!("unset {ID_TOKEN_ENV} and {ID_TOKEN_FILE_ENV} to sign in as a person")));
    }
    let kubeconfig = cli::Kubeconfig {
        mode: Mode::Exec,
        print: false,
        dry_run: false,
        use_context: !options.no_use,
        naming: options.naming.clone(),
    };
    workspace::kubeconfig(choice, &kubeconfig, world)
}

/// Says where the session is, as far as that may surprise.
fn explain_storage(done: &Done, wish: Wish, profile: &mut Profile, world: &World) {
    match done.storage {
        Storage::None => world.say(
            "Nothing long-lived is kept: kubectl works for two hours at most, other commands for \
             some minutes, and then you are asked to sign in again.",
        ),
        Storage::File if !wish.chosen && !profile.told_of_file => {
            profile.told_of_file = true;
            let why = done.no_keyring.as_ref().map_or_else(
                || "There is no keyring here".to_owned(),
                |why| format!("The keyring cannot be used ({why})"),
            );
            world.say(format!("{why}; your session is kept in a file that only you can read."));
        }
        Storage::File | Storage::Keyring => {}
    }
}

fn warn_of_offset(offset: i64, world: &World) {
    if offset.abs() > NOTABLE_OFFSET {
        let direction = if offset > 0 { "behind" } else { "ahead of" };
        world.say(format!(
            "warning: the clock of this machine is {} s {direction} the broker's",
            offset.abs()
        ));
    }
}

/// The person's workspace: found, or made and waited for.
async fn own_workspace(
    client: &Broker,
    me: &Me,
    tier: Option<&str>,
    world: &World,
) -> Result<Workspace, Error> {
    let own = client.own_workspaces().await?.items.into_iter().find(|it| it.owner == me.id);
    let mut workspace = if let Some(found) = own {
        if let Some(tier) = tier.filter(|tier| *tier != found.tier) {
            world.say(format!(
                "warning: your workspace has the tier {}; --tier {tier} has no effect on it",
                found.tier
            ));
        }
        found
    } else {
        let tier = tier.unwrap_or(DEFAULT_TIER);
        world.say(format!("Making your workspace (tier {tier}) …"));
        client.init(tier).await?
    };
    let deadline = Instant::now() + LONGEST_PROVISIONING;
    while matches!(workspace.status, WorkspaceStatus::Provisioning | WorkspaceStatus::Resuming) {
        if Instant::now() >= deadline {
            return Err(Error::refused(format!(
                "the workspace is still {} after {} s",
                workspace.status.as_str(),
                LONGEST_PROVISIONING.as_secs()
            ))
            .hint("you are signed in; later run: kubectl tenant kubeconfig --use"));
        }
        tokio::time::sleep(PROBE).await;
        workspace = client.workspace(workspace.id).await?;
    }
    Ok(workspace)
}
