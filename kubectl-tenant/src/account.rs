//! The opened account of a command: which account it acts for, and the client for its broker.

use tokio::time::Instant;

use crate::{
    account_key::AccountKey,
    broker::Broker,
    credential::NegativeCache,
    error::Error,
    http,
    paths::Paths,
    store::{AccountFlags, Profiles, SessionStore},
    workload_identity::{self, WorkloadIdentity},
    world::World,
};

/// An account with its paths, profiles and broker client.
pub(crate) struct Account {
    pub(crate) paths: Paths,
    pub(crate) profiles: Profiles,
    pub(crate) key: AccountKey,
    pub(crate) broker: Broker,
}

impl Account {
    /// Chooses the account and checks that there is a session or the OIDC token of a workload.
    pub(crate) fn open(flags: &AccountFlags, world: &World) -> Result<Self, Error> {
        let paths = Paths::from_env(&world.env)?;
        let profiles = Profiles::read(&paths.config, &world.stderr)?;
        let key = profiles.choose(flags, &world.env)?;
        let ca = profiles.ca_file(&key, &world.env);
        if let Some(workload) = WorkloadIdentity::from_env(flags, &world.env)? {
            let workspace = workload_identity::workspace_from_env(&world.env)?;
            let broker = Broker::for_workload(&key, ca.as_deref(), &workload, workspace, world)?;
            return Ok(Self { paths, profiles, key, broker: for_command(broker, world) });
        }
        if !SessionStore::new(&paths, &key, world).exists() {
            return Err(NegativeCache::new(&paths).no_session_error(&key));
        }
        let broker = Broker::new(&key, ca.as_deref(), &paths, world)?;
        Ok(Self { paths, profiles, key, broker: for_command(broker, world) })
    }
}

/// The client of a command that a person types: all its requests together have one time limit.
fn for_command(broker: Broker, world: &World) -> Broker {
    broker.with_deadline(Instant::now() + http::TOTAL_TIMEOUT).with_version_warning(world)
}
