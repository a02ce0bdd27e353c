//! A person at a broker: what every command that asks the broker begins with.

use tokio::time::Instant;

use crate::{
    broker::Broker,
    error::Error,
    http,
    identity::Identity,
    machine::{self, Machine},
    paths::Paths,
    store::{Choice, Profiles, Sessions},
    world::World,
};

/// An account and the way to its broker.
pub(crate) struct Account {
    pub(crate) paths: Paths,
    pub(crate) profiles: Profiles,
    pub(crate) identity: Identity,
    pub(crate) broker: Broker,
}

impl Account {
    /// Chooses the account and makes sure that there is a session, or a machine's token.
    pub(crate) fn open(choice: &Choice, world: &World) -> Result<Self, Error> {
        let paths = Paths::of(&world.env)?;
        let profiles = Profiles::read(&paths.config, &world.stderr)?;
        let identity = profiles.choose(choice, &world.env)?;
        let ca = profiles.ca_file(&identity, &world.env);
        if let Some(machine) = Machine::of(choice, &world.env)? {
            let workspace = machine::workspace(&world.env)?;
            let broker = Broker::of_machine(&identity, ca.as_deref(), &machine, workspace, world)?;
            let broker = broker.until(Instant::now() + http::WHOLE);
            return Ok(Self { paths, profiles, identity, broker });
        }
        if !Sessions::new(&paths, &identity, world).exists() {
            return Err(Error::sign_in(&identity, "there is no session on this machine"));
        }
        let broker = Broker::new(&identity, ca.as_deref(), &paths, world)?;
        let broker = broker.until(Instant::now() + http::WHOLE);
        Ok(Self { paths, profiles, identity, broker })
    }
}
