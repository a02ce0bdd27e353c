//! A person who works while replicas are replaced. No request may fail.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use secrecy::SecretString;
use uuid::Uuid;

use crate::person::Person;
use crate::probe::{self, Probe};
use crate::world::World;

/// Requests to the API that have to succeed in [`Traffic::continues`].
const MORE_CALLS: usize = 9;
/// Commands that have to succeed in [`Traffic::continues`].
const MORE_COMMANDS: usize = 3;
/// Time limit for these.
const CONTINUE_TIMEOUT: Duration = Duration::from_mins(2);

/// The requests of one person, until [`Traffic::end`]. Each request to the API is on a connection
/// of its own, because a server may close an idle connection at any time.
#[derive(Debug)]
pub struct Traffic<'a> {
    world: &'a World,
    person: &'a Person,
    token: SecretString,
    workspace: Uuid,
    end: AtomicBool,
    calls: AtomicUsize,
    commands: AtomicUsize,
}

impl<'a> Traffic<'a> {
    /// Signs the person in. Their kubectl goes through the gateway afterwards, so the broker has to
    /// serve TLS.
    ///
    /// # Errors
    /// The broker refuses.
    pub async fn prepare(world: &'a World, person: &'a Person) -> Result<Self> {
        person.login(&[]).await?.success()?;
        let gateway = ["tenant", "kubeconfig", "--mode", "gateway", "--use"];
        person.kubectl().run(gateway).await?.success()?;
        let workspaces = person.api().await?.workspaces(false).await?.items;
        Ok(Self {
            world,
            person,
            token: person.sign_in().await?.access_token,
            workspace: workspaces.first().context("the person has no workspace")?.id,
            end: AtomicBool::new(false),
            calls: AtomicUsize::new(0),
            commands: AtomicUsize::new(0),
        })
    }

    /// Calls the API until the end.
    ///
    /// # Errors
    /// A request failed.
    pub async fn call(&self) -> Result<()> {
        let api =
            || Ok::<_, anyhow::Error>(self.world.anonymous_api()?.with_token(self.token.clone()));
        while !self.end.load(Ordering::Relaxed) {
            api()?.me().await.context("GET /me")?;
            api()?.credential(self.workspace).await.context("POST /credentials")?;
            api()?.workspaces(false).await.context("GET /workspaces")?;
            self.calls.fetch_add(3, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Runs kubectl through the gateway, and the plugin, until the end.
    ///
    /// # Errors
    /// A command failed.
    pub async fn kubectl(&self) -> Result<()> {
        let workspace = self.workspace.to_string();
        let token = ["tenant", "get-token", "--force", "--workspace", &workspace];
        let commands: [&[&str]; 3] = [&["get", "configmaps"], &["tenant", "workspaces"], &token];
        while !self.end.load(Ordering::Relaxed) {
            for command in commands {
                self.person.kubectl().run(command).await?.success()?;
                self.commands.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Waits until some more requests of each kind have succeeded.
    ///
    /// # Errors
    /// They did not within two minutes.
    pub async fn continues(&self) -> Result<()> {
        let done = || (self.calls.load(Ordering::Relaxed), self.commands.load(Ordering::Relaxed));
        let before = done();
        probe::until("more requests", CONTINUE_TIMEOUT, || {
            let now = done();
            let enough = now.0 >= before.0 + MORE_CALLS && now.1 >= before.1 + MORE_COMMANDS;
            let seen = if enough { Probe::Ready(()) } else { Probe::NotYet(format!("{now:?}")) };
            std::future::ready(Ok(seen))
        })
        .await
    }

    /// Ends the requests after those that are under way.
    pub fn end(&self) {
        self.end.store(true, Ordering::Relaxed);
    }

    /// Number of requests and commands that have succeeded.
    pub fn succeeded(&self) -> usize {
        self.calls.load(Ordering::Relaxed) + self.commands.load(Ordering::Relaxed)
    }
}
