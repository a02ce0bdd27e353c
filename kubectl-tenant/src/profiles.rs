//! The command `profiles`: the accounts that are used here.

use serde::Serialize;
use tenant_shared::WireTime;

use crate::{
    broker_url::BrokerUrl,
    cli::{Profiles as Options, ProfilesAction},
    error::Error,
    output::{self, Format},
    paths::Paths,
    store::{Choice, Profiles, Sessions},
    world::World,
};

/// What `profiles` shows.
#[derive(Serialize)]
struct Shown {
    items: Vec<Item>,
}

/// One account.
#[derive(Serialize)]
struct Item {
    name: String,
    current: bool,
    broker: BrokerUrl,
    signed_in: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_expires_at: Option<WireTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<String>,
}

/// Runs `profiles`.
pub(crate) fn profiles(options: &Options, world: &mut World) -> Result<(), Error> {
    match &options.action {
        None => list(options.shown.output, world),
        Some(ProfilesAction::List(shown)) => list(shown.output, world),
        Some(ProfilesAction::Use { name }) => make_current(name, world),
    }
}

fn list(format: Format, world: &mut World) -> Result<(), Error> {
    let paths = Paths::of(&world.env)?;
    let profiles = Profiles::read(&paths.config, &world.stderr)?;
    let mut items = Vec::new();
    for identity in profiles.all() {
        let session = Sessions::new(&paths, identity, world).read()?;
        items.push(Item {
            name: identity.name().to_owned(),
            current: profiles.current.as_ref() == Some(identity),
            broker: identity.broker.clone(),
            signed_in: session.is_some(),
            email: session.as_ref().map(|it| it.email.clone()).filter(|email| !email.is_empty()),
            session_expires_at: session.and_then(|it| it.expires_at),
            context: profiles.of(identity).entry_name(identity),
        });
    }
    let nobody = items.is_empty();
    output::show(world, format, &Shown { items }, table)?;
    if nobody {
        world.say("there is none yet; sign in: kubectl tenant login --broker https://…");
    }
    Ok(())
}

fn table(shown: &Shown) -> String {
    let rows: Vec<[String; 5]> = shown
        .items
        .iter()
        .map(|it| {
            [
                if it.current { "*".to_owned() } else { String::new() },
                it.name.clone(),
                it.broker.to_string(),
                it.email.clone().unwrap_or_default(),
                match (it.signed_in, it.session_expires_at) {
                    (false, _) => "none".to_owned(),
                    (true, None) => "yes".to_owned(),
                    (true, Some(end)) => format!("until {end}"),
                },
            ]
        })
        .collect();
    output::columns(["CURRENT", "NAME", "BROKER", "ACCOUNT", "SESSION"], &rows)
}

fn make_current(name: &str, world: &mut World) -> Result<(), Error> {
    let paths = Paths::of(&world.env)?;
    let mut profiles = Profiles::read(&paths.config, &world.stderr)?;
    let choice = Choice { broker: None, profile: Some(name.to_owned()) };
    let identity = profiles.choose(&choice, &world.env)?;
    if !profiles.all().any(|known| *known == identity) {
        return Err(Error::usage(format!("there is no profile {name:?}"))
            .hint("see them: kubectl tenant profiles"));
    }
    world.say(format!("{identity} is the current account of kubectl tenant."));
    if let Some(context) = profiles.of(&identity).entry_name(&identity) {
        world.say(format!(
            "kubectl has a current context of its own: kubectl config use-context {context}"
        ));
    }
    profiles.current = Some(identity);
    profiles.write(&paths.config)
}
