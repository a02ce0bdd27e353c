//! A new Kubernetes token: the lock, another look, one call to the broker.

use tenant_cached_token::{CachedToken, Facts, Verdict, judge};
use tokio::time::Instant;
use uuid::Uuid;

use super::{Cache, Request};
use crate::{
    broker::Broker,
    error::Error,
    http,
    lock::{self, Outcome},
    login,
    paths::Paths,
    runtime,
    store::{Profiles, Sessions},
    world::World,
};

/// Gets a new token, from the broker or from another process that just got one. `unwanted` names
/// the credential that will not do.
pub(super) fn mint(
    request: &Request,
    cache: &Cache,
    unwanted: Option<&Facts>,
    interactive: bool,
    paths: &Paths,
    world: &mut World,
) -> Result<CachedToken, Error> {
    if request.machine.is_some() {
        // Nobody is there to be asked, whatever kubectl says.
        return attempt(request, cache, unwanted, paths, world);
    }
    let sessions = Sessions::new(paths, &request.identity, world);
    // Nothing is built, locked or asked for somebody who has to sign in anyway.
    if !sessions.exists() {
        let error = Error::sign_in(&request.identity, "there is no session on this machine yet");
        return login_if_wanted(request, cache, unwanted, interactive, paths, world, error);
    }
    match attempt(request, cache, unwanted, paths, world) {
        Err(error) if error.kind == crate::error::Kind::SignIn => {
            login_if_wanted(request, cache, unwanted, interactive, paths, world, error)
        }
        other => other,
    }
}

/// A browser opens only if kubectl says that a person is there, and the person asked for it.
fn login_if_wanted(
    request: &Request,
    cache: &Cache,
    unwanted: Option<&Facts>,
    interactive: bool,
    paths: &Paths,
    world: &mut World,
    error: Error,
) -> Result<CachedToken, Error> {
    if !interactive || world.env.get(crate::cli::AUTO_LOGIN_ENV).is_none_or(|value| value != "1") {
        return Err(error);
    }
    login::from_get_token(&request.identity, paths, world)?
        .map_or(Err(error), |()| attempt(request, cache, unwanted, paths, world))
}

fn attempt(
    request: &Request,
    cache: &Cache,
    unwanted: Option<&Facts>,
    paths: &Paths,
    world: &World,
) -> Result<CachedToken, Error> {
    let clock = world.clock.clone();
    let good = || -> Option<CachedToken> {
        let token = cache.read().ok().flatten()?;
        let is_unwanted = |it: &Facts| it.credential_id == token.facts.credential_id;
        if request.force || unwanted.is_some_and(is_unwanted) {
            return None;
        }
        match judge(Some(token), clock.now(), None) {
            Verdict::Serve(token) => Some(token),
            _ => None,
        }
    };
    let lock_path = paths.locks().join(format!("token-{}.lock", request.place()));
    runtime::block_on(async {
        let deadline = Instant::now() + http::WHOLE;
        let _lock = match lock::acquire(&lock_path, lock::LONGEST_WAIT, good).await? {
            Outcome::Held(lock) => lock,
            Outcome::Answered(token) => return Ok(token),
            Outcome::Busy(who) => {
                return Err(Error::other(format!(
                    "another kubectl-tenant is getting this token and does not finish (lock {who})"
                ))
                .hint("end that process, then try again"));
            }
        };
        if let Some(token) = good() {
            return Ok(token);
        }
        let profiles = Profiles::read(&paths.config, &world.stderr)?;
        let ca = profiles.ca_file(&request.identity, &world.env);
        let broker = match &request.machine {
            None => Broker::new(&request.identity, ca.as_deref(), paths, world)?,
            Some(job) => {
                let workspace = request.workspace.hyphenated().to_string();
                Broker::of_machine(
                    &request.identity,
                    ca.as_deref(),
                    &job.machine,
                    workspace,
                    world,
                )?
            }
        };
        let broker = broker.until(deadline);
        let before = clock.now();
        if request.gateway {
            return Ok(cache.store_access(request, broker.gateway_token().await?));
        }
        let (credential, answer) = broker.credential(request.workspace).await?;
        check(credential.workspace_id, request)?;
        let offset = http::clock_offset(&answer, clock.now()).unwrap_or(0);
        if request.machine.is_some() {
            Cache::clear_away(&paths.tokens(), clock.now());
        }
        Ok(cache.store(request, credential, before, offset))
    })?
}

/// A token of another workspace would be a mix-up with consequences.
fn check(workspace: Uuid, request: &Request) -> Result<(), Error> {
    if workspace == request.workspace {
        return Ok(());
    }
    Err(Error::refused(format!(
        "{} gave a token for workspace {workspace} instead of {}; it was not used",
        request.identity, request.workspace
    )))
}
