//! The command `status`: what is stored here, and what failed last. Asks nobody.

use serde::Serialize;
use tenant_shared::WireTime;

use crate::{
    broker_url::BrokerUrl,
    cli::Shown,
    credential::{Failure, Failures},
    error::{Error, Kind},
    identity::{Identity, ProfileName},
    output,
    paths::Paths,
    store::{Choice, Profiles, Sessions, Storage},
    whoami::Token,
    world::World,
};

/// What `status` shows.
#[derive(Serialize)]
struct Status {
    profiles: Vec<ProfileStatus>,
}

/// One account.
#[derive(Serialize)]
struct ProfileStatus {
    broker: BrokerUrl,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<ProfileName>,
    /// Whether it is the current one.
    default: bool,
    session: Option<SessionStatus>,
    tokens: Vec<Token>,
    last_error: Option<LastError>,
}

/// A session, without its secrets.
#[derive(Serialize)]
struct SessionStatus {
    email: String,
    signed_in_at: WireTime,
    session_expires_at: Option<WireTime>,
    storage: Storage,
}

/// What failed last and has not worked since.
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

impl From<Failure> for LastError {
    fn from(failure: Failure) -> Self {
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
pub(crate) fn status(choice: &Choice, options: Shown, world: &mut World) -> Result<(), Error> {
    let paths = Paths::of(&world.env)?;
    let profiles = Profiles::read(&paths.config, &world.stderr)?;
    let only = profiles.chosen(choice, &world.env)?;
    let mut failures = Failures::new(&paths).all();
    // A kubeconfig can name a broker that nobody signed in at here.
    let mut identities: Vec<Identity> = profiles.all().cloned().collect();
    identities.extend(failures.iter().map(Failure::identity));
    identities.sort();
    identities.dedup();
    identities.retain(|identity| only.as_ref().is_none_or(|only| only.covers(identity)));
    let mut shown = Status { profiles: Vec::new() };
    for identity in identities {
        let session = Sessions::new(&paths, &identity, world).read()?;
        let last = failures.iter().position(|failure| failure.identity() == identity);
        shown.profiles.push(ProfileStatus {
            default: profiles.current.as_ref() == Some(&identity),
            session: session.map(|session| SessionStatus {
                email: session.email,
                signed_in_at: output::time(session.signed_in_at),
                session_expires_at: session.expires_at,
                storage: session.storage,
            }),
            tokens: Token::of(&paths, &identity, world.clock.now()),
            last_error: last.map(|index| failures.remove(index).into()),
            broker: identity.broker,
            profile: identity.profile,
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
                    output::plain(&session.email),
                    session.signed_in_at,
                    end.unwrap_or_default()
                )
            },
        )]);
        text.extend(profile.tokens.iter().map(|token| format!("  {}", token.line())));
        if let Some(error) = &profile.last_error {
            text.extend([format!("  Failed at {}: {}\n", error.at, output::line(&error.message))]);
            text.extend(error.hint.as_ref().map(|hint| format!("    {}\n", output::line(hint))));
        }
    }
    text
}
