//! The command `status`: the local state and the last failure, without asking the broker.

use serde::Serialize;
use tenant_shared::WireTime;

use crate::{
    account_key::{AccountKey, ProfileName},
    broker_url::BrokerUrl,
    cli::options::OutputArgs,
    credential::{CachedFailure, NegativeCache},
    error::{Error, Kind},
    output,
    paths::Paths,
    store::{AccountFlags, Profiles, SessionStore, Storage},
    terminal,
    whoami::TokenInfo,
    world::World,
};

/// Output of `status`.
#[derive(Serialize)]
struct Status {
    profiles: Vec<ProfileStatus>,
}

/// Status of an account.
#[derive(Serialize)]
struct ProfileStatus {
    broker: BrokerUrl,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<ProfileName>,
    /// Whether this is the current account.
    default: bool,
    session: Option<SessionStatus>,
    tokens: Vec<TokenInfo>,
    last_error: Option<LastError>,
}

/// A session without its secrets.
#[derive(Serialize)]
struct SessionStatus {
    email: String,
    signed_in_at: WireTime,
    session_expires_at: Option<WireTime>,
    storage: Storage,
}

/// The last failure of a token that has not worked since.
#[derive(Serialize)]
struct LastError {
    at: WireTime,
    kind: Kind,
    exit_code: u8,
    message: String,
    hint: Option<String>,
    cluster: String,
    workspace: String,
}

impl From<CachedFailure> for LastError {
    fn from(failure: CachedFailure) -> Self {
        Self {
            at: output::time(failure.at),
            kind: failure.kind,
            exit_code: failure.kind.exit_code(),
            message: failure.message,
            hint: failure.hint,
            cluster: failure.cluster,
            workspace: failure.workspace,
        }
    }
}

/// Runs `status`.
pub(crate) fn status(
    flags: &AccountFlags,
    options: OutputArgs,
    world: &mut World,
) -> Result<(), Error> {
    let paths = Paths::from_env(&world.env)?;
    let profiles = Profiles::read(&paths.config, &world.stderr)?;
    let only = profiles.filter(flags, &world.env)?;
    let mut failures = NegativeCache::new(&paths).all();
    // A kubeconfig can name a broker at which nobody signed in on this machine.
    let mut accounts: Vec<AccountKey> = profiles.all().cloned().collect();
    accounts.extend(failures.iter().map(CachedFailure::account));
    accounts.sort();
    accounts.dedup();
    accounts.retain(|account| only.as_ref().is_none_or(|only| only.matches(account)));
    let mut shown = Status { profiles: Vec::new() };
    for account in accounts {
        let session = SessionStore::new(&paths, &account, world).read()?;
        let last = failures.iter().position(|failure| failure.account() == account);
        shown.profiles.push(ProfileStatus {
            default: profiles.current.as_ref() == Some(&account),
            session: session.map(|session| SessionStatus {
                email: session.email,
                signed_in_at: output::time(session.signed_in_at),
                session_expires_at: session.expires_at,
                storage: session.storage,
            }),
            tokens: TokenInfo::list_for(&paths, &account, world.clock.now()),
            last_error: last.map(|index| failures.remove(index).into()),
            broker: account.broker,
            profile: account.profile,
        });
    }
    output::show(world, options.output, &shown, table)
}

fn table(status: &Status) -> String {
    let mut text = String::new();
    if status.profiles.is_empty() {
        text += "No broker is known. Sign in: kubectl tenant login --broker https://…\n";
    }
    for profile in &status.profiles {
        let name = profile.profile.as_ref().map(|name| format!(" (profile {name})"));
        let current = if profile.default { " (current)" } else { "" };
        text.extend([profile.broker.as_str(), &name.unwrap_or_default(), current, "\n"]);
        text.extend([profile.session.as_ref().map_or_else(
            || "  Not signed in\n".to_owned(),
            |session| {
                let end = session.session_expires_at;
                let end = end.map(|until| format!(", until {until} at the latest"));
                format!(
                    "  Signed in as {} since {}{}\n",
                    terminal::sanitize(&session.email),
                    session.signed_in_at,
                    end.unwrap_or_default()
                )
            },
        )]);
        let tokens = profile.tokens.iter();
        text.extend(tokens.map(|token| format!("  {}\n", token.line(None))));
        if let Some(error) = &profile.last_error {
            text.extend([format!(
                "  Failed at {}: {}\n",
                error.at,
                terminal::sanitize_message(&error.message)
            )]);
            text.extend(
                error
                    .hint
                    .as_ref()
                    .map(|hint| format!("    {}\n", terminal::sanitize_message(hint))),
            );
        }
    }
    text
}
