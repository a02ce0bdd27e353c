//! `kubectl-tenant`: signs a person in at a tenant broker and renews their Kubernetes tokens.
//!
//! | module | what it does |
//! |---|---|
//! | `credential` | `get-token` when it is not a hit: how a new token is had |
//! | `login` | sign-in: loopback listener or paste, then workspace and kubeconfig |
//! | `machine` | an OIDC token of a CI provider instead of a person |
//! | `oidc` | the OpenID Connect client |
//! | `broker`, `http` | the broker's API, and what a failure of it means |
//! | `identity`, `store` | accounts, and what is kept of them on disk |
//! | `kubeconfig` | the merge that loses nothing |
//! | `account` | what every command begins with that asks the broker |
//! | `whoami`, `logout`, `sessions`, `users`, `credentials`, `profiles`, `workspace`, `suspension`, `usage`, `status`, `version`, `completion` | the other commands |
//! | `private_file`, `lock`, `paths` | files, and who may touch them |
//! | `world` | everything ambient, so that [`run`] is the whole program, in a test too |
//!
//! The life of `kubectl get pods`: kubectl runs `kubectl-tenant get-token …`; the first thing that
//! [`run`] does is to hand the command line to [`tenant_cached_token::hit`], which opens one file,
//! finds the token good and prints it. Nothing that can talk to a network exists in that process.

mod account;
mod audit;
mod broker;
mod broker_url;
mod cli;
mod completion;
mod credential;
mod credentials;
mod error;
mod http;
mod identity;
mod kubeconfig;
mod lock;
mod login;
mod logout;
mod machine;
mod oidc;
mod output;
mod paths;
mod private_file;
mod profiles;
mod runtime;
mod sessions;
mod status;
mod store;
mod suspension;
mod usage;
mod users;
mod version;
mod whoami;
mod workspace;
mod world;

use std::ffi::OsString;

use clap::Parser;
use tenant_cached_token::Outcome as Hit;

pub use tenant_cached_token::Parent;
pub use world::{Clock, Env, Input, Keyring, Messages, World};

use cli::{Cli, Command, TokenMode};
use credential::{Job, Request};
use error::{Error, Kind};
use machine::Machine;

/// Runs the program: `args` begins with its name. Returns the exit code, which `--help` explains.
pub fn run(args: &[OsString], world: &mut World) -> u8 {
    let World { env, clock, parent, stdout, .. } = world;
    let hit = tenant_cached_token::hit(
        args,
        &|name| env.get(name),
        &|| clock.now(),
        *parent,
        &mut **stdout,
    );
    run_after(hit, args, world)
}

/// [`run`] for whoever has looked for a hit already, in less than a world.
pub fn run_after(hit: Hit, args: &[OsString], world: &mut World) -> u8 {
    let outcome = match hit {
        Hit::Printed(Ok(())) => return 0,
        Hit::Printed(Err(error)) => Err(Error::unwritable(&error)),
        Hit::NotAHit => match Cli::try_parse_from(args) {
            Ok(cli) => dispatch(cli, world),
            Err(error) => return explain(&error, world),
        },
    };
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            world.say(format!("error: {}", error.message));
            if let Some(hint) = error.hint {
                world.say(format!("hint: {hint}"));
            }
            error.kind.exit_code()
        }
    }
}

fn dispatch(cli: Cli, world: &mut World) -> Result<(), Error> {
    let choice = &cli.choice;
    match cli.command {
        Command::Login(options) => login::login(choice, &options, world),
        Command::Logout(options) => logout::logout(choice, &options, world),
        Command::Whoami(shown) => whoami::whoami(choice, shown, world),
        Command::Sessions(options) => sessions::sessions(choice, &options, world),
        Command::Users(options) => users::users(choice, &options, world),
        Command::Profiles(options) => profiles::profiles(&options, world),
        Command::Init(options) => workspace::init(choice, &options, world),
        Command::Workspaces(options) => workspace::list(choice, &options, world),
        Command::Credentials(options) => credentials::credentials(choice, &options, world),
        Command::Usage(options) => usage::usage(choice, &options, world),
        Command::Audit(options) => audit::audit(choice, &options, world),
        Command::Suspend(options) => suspension::suspend(choice, &options, world),
        Command::Resume(options) => suspension::resume(choice, &options, world),
        Command::Kubeconfig(options) => workspace::kubeconfig(choice, &options, world),
        Command::GetToken(options) => {
            let paths = paths::Paths::of(&world.env)?;
            let profiles = store::Profiles::read(&paths.config, &world.stderr)?;
            let request = Request {
                identity: profiles.choose(choice, &world.env)?,
                machine: Machine::of(choice, &world.env)?.map(|it| Job::of(&it)).transpose()?,
                cluster: options.cluster,
                workspace: options.workspace,
                gateway: options.mode == TokenMode::Gateway,
                force: options.force,
            };
            credential::get_token(&request, world)
        }
        Command::Status(shown) => status::status(choice, shown, world),
        Command::Completion { shell } => completion::script(shell, world),
        Command::Version(shown) => version::version(shown, world),
        Command::Complete { words } => completion::answer(&words, world),
    }
}

/// What clap has to say: help is data, a mistake is not.
fn explain(error: &clap::Error, world: &mut World) -> u8 {
    let text = error.render().to_string();
    if !error.use_stderr() {
        return world.print(&text).map_or_else(|error| error.kind.exit_code(), |()| 0);
    }
    world.stderr.write(&text);
    Kind::Usage.exit_code()
}
