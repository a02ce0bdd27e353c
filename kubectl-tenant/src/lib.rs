//! `kubectl-tenant`: signs a person in at a tenant broker and renews their Kubernetes tokens.
//!
//! | module | what it does |
//! |---|---|
//! | `cli`, `reference` | commands and flags; environment variables, files and exit codes |
//! | `get_token`, `credential` | `get-token` after a cache miss: gets a new token; tokens and failures on disk |
//! | `login` | sign-in: loopback listener, paste or device code, then workspace and kubeconfig |
//! | `workload_identity` | the OIDC token of a CI provider instead of a person's sign-in |
//! | `oidc` | the OpenID Connect client |
//! | `broker`, `http`, `not_found`, `failure_message` | the client for the broker's API, and the errors of its responses |
//! | `broker_url` | broker URLs in one canonical form |
//! | `compatibility` | versions of broker and plugin that work together |
//! | `account_key`, `store`, `keyring` | accounts, their sessions and profiles on disk, and the system's keyring |
//! | `kubeconfig`, `entry_name` | the merge that preserves everything else in the kubeconfig; names of its entries |
//! | `account` | the account and broker client that every online command opens first |
//! | `tenants` | the commands for tenants and their namespaces, `use`, `why` and `import` |
//! | `models` | the commands for the models of a namespace and its Llama Stack |
//! | `gateway` | requests to the cluster through the broker's gateway |
//! | `whoami`, `logout`, `sessions`, `users`, `credentials`, `profiles`, `workspace`, `suspension`, `usage`, `audit`, `status`, `version`, `completion`, `man` | the other commands |
//! | `lookup`, `suggestion` | workspaces by their names; the nearest of several names |
//! | `error`, `output`, `terminal` | errors with hints and exit codes; tables, JSON and YAML; text without control characters |
//! | `runtime` | the tokio runtime of a command |
//! | `private_file`, `lock`, `paths` | private files, locks between processes, folders |
//! | `environment`, `browser`, `shell_words` | environment variables; the browser of a sign-in; command lines in variables |
//! | `world` | every side effect behind one struct, so that [`run`] is the whole program, also in a test |
//!
//! The life of `kubectl get pods`: kubectl runs `kubectl-tenant get-token …`. [`run`] first passes
//! the command line to [`tenant_cached_token::try_hit`], which opens one file, finds a valid token
//! and prints it. Nothing in that process can open a network connection.

#[cfg(not(unix))]
compile_error!(
    "kubectl-tenant runs on Linux and macOS. It does not run on Windows, because sessions and tokens \
     are protected by the modes, owners and locks of Unix files. Use it in WSL 2."
);

mod account;
mod account_key;
mod audit;
mod broker;
mod broker_url;
mod browser;
mod cli;
mod compatibility;
mod completion;
mod credential;
mod credentials;
mod entry_name;
mod environment;
mod error;
mod failure_message;
mod gateway;
mod get_token;
mod http;
mod keyring;
mod kubeconfig;
mod lock;
mod login;
mod logout;
mod lookup;
mod man;
mod models;
mod not_found;
mod oidc;
mod output;
mod paths;
mod private_file;
mod profiles;
mod reference;
mod runtime;
mod sessions;
mod shell_words;
mod status;
mod store;
mod suggestion;
mod suspension;
mod tenants;
mod terminal;
mod usage;
mod users;
mod version;
mod whoami;
mod workload_identity;
mod workspace;
mod world;

use std::ffi::OsString;

use clap::Parser;
use tenant_cached_token::HitOutcome;

pub use environment::Env;
pub use keyring::Keyring;
pub use tenant_cached_token::Parent;
pub use world::{Clock, Input, Messages, World};

use cli::{Cli, Command, credentials::TokenMode};
use credential::{GetTokenRequest, Workload};
use error::{Error, Kind};
use workload_identity::WorkloadIdentity;

/// Runs the program: `args` begins with the program's name. Returns the exit code; `--help` lists
/// them.
pub fn run(args: &[OsString], world: &mut World) -> u8 {
    let World { env, clock, parent, stdout, .. } = world;
    let hit = tenant_cached_token::try_hit(
        args,
        &|name| env.get(name),
        &|| clock.now(),
        *parent,
        &mut **stdout,
    );
    run_after(hit, args, world)
}

/// Runs the program after [`tenant_cached_token::try_hit`] was tried; `hit` is its outcome.
pub fn run_after(hit: HitOutcome, args: &[OsString], world: &mut World) -> u8 {
    let outcome = match hit {
        HitOutcome::Printed(Ok(())) => return 0,
        HitOutcome::Printed(Err(error)) => Err(Error::unwritable(&error)),
        HitOutcome::Miss => match args {
            [_, first, words @ ..] if first == completion::COMPLETE_ARGUMENT => {
                completion::complete(words, world)
            }
            _ => match Cli::try_parse_from(args) {
                Ok(cli) => dispatch(cli, world),
                Err(error) => return explain(&error, world),
            },
        },
    };
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            world.print_message(format!("error: {}", error.message));
            if let Some(hint) = error.hint {
                world.print_message(format!("hint: {hint}"));
            }
            error.kind.exit_code()
        }
    }
}

fn dispatch(cli: Cli, world: &mut World) -> Result<(), Error> {
    let flags = &cli.flags;
    match cli.command {
        Command::Login(options) => login::login(flags, &options, world),
        Command::Logout(options) => logout::logout(flags, &options, world),
        Command::Whoami(shown) => whoami::whoami(flags, shown, world),
        Command::Sessions(options) => sessions::sessions(flags, &options, world),
        Command::Users(options) => users::users(flags, &options, world),
        Command::Profiles(options) => profiles::profiles(&options, world),
        Command::Init(options) => workspace::init(flags, &options, world),
        Command::Workspaces(options) => workspace::list(flags, &options, world),
        Command::Tenants(options) => tenants::tenants(flags, &options, world),
        Command::Namespaces(options) => tenants::namespaces(flags, &options, world),
        Command::Models(options) => models::models(flags, &options, world),
        Command::Use(options) => tenants::use_tenant(flags, &options, world),
        Command::Why(options) => tenants::why(flags, &options, world),
        Command::Import(options) => tenants::import(&options, world),
        Command::Credentials(options) => credentials::credentials(flags, &options, world),
        Command::Usage(options) => usage::usage(flags, &options, world),
        Command::Audit(options) => audit::audit(flags, &options, world),
        Command::Suspend(options) => suspension::suspend(flags, &options, world),
        Command::Resume(options) => suspension::resume(flags, &options, world),
        Command::Kubeconfig(options) => workspace::kubeconfig(flags, &options, world),
        Command::GetToken(options) => {
            let paths = paths::Paths::from_env(&world.env)?;
            let profiles = store::Profiles::read(&paths.config, &world.stderr)?;
            let request = GetTokenRequest {
                account: profiles.choose(flags, &world.env)?,
                workload: WorkloadIdentity::from_env(flags, &world.env)?
                    .map(|it| Workload::new(&it))
                    .transpose()?,
                cluster: options.cluster,
                workspace: options.workspace,
                gateway: options.mode == TokenMode::Gateway,
                force: options.force,
            };
            get_token::get_token(&request, world)
        }
        Command::Status(shown) => status::status(flags, shown, world),
        Command::Completion { action } => completion::completion(&action, world),
        Command::Version(options) => version::version(flags, options, world),
        Command::Man { folder } => man::man(&folder, world),
    }
}

/// Prints a message of clap: help goes to stdout, a usage error to stderr.
fn explain(error: &clap::Error, world: &mut World) -> u8 {
    let text = error.render().to_string();
    if !error.use_stderr() {
        return world.print(&text).map_or_else(|error| error.kind.exit_code(), |()| 0);
    }
    world.stderr.write(&text);
    Kind::Usage.exit_code()
}
