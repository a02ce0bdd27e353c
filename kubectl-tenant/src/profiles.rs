//! The command `profiles`: lists the accounts on this machine and selects the current one.

use serde::Serialize;
use tenant_shared::WireTime;

use crate::{
    broker_url::BrokerUrl,
    cli::accounts::{Profiles as Options, ProfilesAction},
    error::Error,
    output::{self, Format},
    paths::Paths,
    store::{AccountFlags, Profiles, SessionStore},
    world::World,
};

/// Output of `profiles`.
#[derive(Serialize)]
struct ProfileList {
    items: Vec<Item>,
}

/// An account in the list.
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
    let paths = Paths::from_env(&world.env)?;
    let profiles = Profiles::read(&paths.config, &world.stderr)?;
    let mut items = Vec::new();
    for account in profiles.all() {
        let session = SessionStore::new(&paths, account, world).read()?;
        items.push(Item {
            name: account.name().to_owned(),
            current: profiles.current.as_ref() == Some(account),
            broker: account.broker.clone(),
            signed_in: session.is_some(),
            email: session.as_ref().map(|it| it.email.clone()).filter(|email| !email.is_empty()),
            session_expires_at: session.and_then(|it| it.expires_at),
            context: profiles.get(account).entry_name(account),
        });
    }
    let is_empty = items.is_empty();
    output::show(world, format, &ProfileList { items }, table)?;
    if is_empty {
        world.print_message(
            "there are no accounts yet; sign in: kubectl tenant login --broker https://…",
        );
    }
    Ok(())
}

fn table(shown: &ProfileList) -> String {
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
    let paths = Paths::from_env(&world.env)?;
    let mut profiles = Profiles::read(&paths.config, &world.stderr)?;
    let flags = AccountFlags { broker: None, profile: Some(name.to_owned()) };
    let account = profiles.choose(&flags, &world.env)?;
    if !profiles.all().any(|known| *known == account) {
        return Err(Error::usage(format!("there is no profile {name:?}"))
            .hint("list them: kubectl tenant profiles"));
    }
    world.print_message(format!("{account} is the current account of kubectl tenant."));
    if let Some(context) = profiles.get(&account).entry_name(&account) {
        world.print_message(format!(
            "kubectl has a current context of its own: kubectl config use-context {context}"
        ));
    }
    profiles.current = Some(account);
    profiles.write(&paths.config)
}
