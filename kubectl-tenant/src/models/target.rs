//! The namespace and the broker of a command for models.

use std::time::Duration;

use tokio::time::Instant;

use super::calls::REQUEST_TIMEOUT;
use crate::{
    account::Account, broker::Broker, cli::models::NamespaceFlag, error::Error, lookup, runtime,
    store::AccountFlags, world::World,
};

/// The broker and the namespace of a command for models.
pub(super) struct CommandTarget {
    pub(super) broker: Broker,
    pub(super) namespace: String,
}

impl CommandTarget {
    /// Opens the account, and finds the namespace of the person's workspace if none is named.
    pub(super) fn open(
        flags: &AccountFlags,
        options: &NamespaceFlag,
        world: &World,
    ) -> Result<Self, Error> {
        Self::open_for(flags, options, Duration::ZERO, world)
    }

    /// Like [`Self::open`], for a command that waits after its first request.
    pub(super) fn open_for(
        flags: &AccountFlags,
        options: &NamespaceFlag,
        wait: Duration,
        world: &World,
    ) -> Result<Self, Error> {
        let account = Account::open(flags, world)?;
        let broker = account.broker.with_request_timeout(REQUEST_TIMEOUT);
        let broker = broker.with_deadline(Instant::now() + REQUEST_TIMEOUT + wait);
        let namespace = match &options.namespace {
            Some(name) => name.clone(),
            None => runtime::block_on(lookup::own_namespace(&broker))??,
        };
        Ok(Self { broker, namespace })
    }
}
