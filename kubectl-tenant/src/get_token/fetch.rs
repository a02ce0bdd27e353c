//! Fetches a new token: takes the lock, reads the cache again and calls the broker once.

use tenant_cached_token::{CacheDecision, CacheEntry, CachedToken, decide};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    broker::Broker,
    credential::{Cache, GetTokenRequest, NegativeCache},
    environment::AUTO_LOGIN_ENV,
    error::Error,
    http,
    lock::{self, LockOutcome},
    login,
    paths::Paths,
    runtime,
    store::{Profiles, SessionStore},
    world::{Clock, World},
};

/// Gets a new token, from the broker or from another process that just got one. `stale` is the
/// cached token that must be replaced.
pub(super) fn fetch(
    request: &GetTokenRequest,
    cache: &Cache,
    stale: Option<&CacheEntry>,
    interactive: bool,
    paths: &Paths,
    world: &mut World,
) -> Result<CachedToken, Error> {
    if request.workload.is_some() {
        // A workload has nobody to ask, whatever kubectl says about a terminal.
        return fetch_locked(request, cache, stale, paths, world);
    }
    let sessions = SessionStore::new(paths, &request.account, world);
    // Without a session there is nothing to lock or to request.
    if !sessions.exists() {
        let error = NegativeCache::new(paths).no_session_error(&request.account);
        return sign_in_if_allowed(request, cache, stale, interactive, paths, world, error);
    }
    match fetch_locked(request, cache, stale, paths, world) {
        Err(error) if error.kind == crate::error::Kind::SignIn => {
            sign_in_if_allowed(request, cache, stale, interactive, paths, world, error)
        }
        other => other,
    }
}

/// Signs in if kubectl says that a person is at the terminal and `TENANT_AUTO_LOGIN` allows it.
fn sign_in_if_allowed(
    request: &GetTokenRequest,
    cache: &Cache,
    stale: Option<&CacheEntry>,
    interactive: bool,
    paths: &Paths,
    world: &mut World,
    error: Error,
) -> Result<CachedToken, Error> {
    if !interactive || world.env.get(AUTO_LOGIN_ENV).is_none_or(|value| value != "1") {
        return Err(error);
    }
    login::from_get_token(&request.account, paths, world)?
        .map_or(Err(error), |()| fetch_locked(request, cache, stale, paths, world))
}

/// Takes the lock of this token and gets a new one, unless another process got one meanwhile.
fn fetch_locked(
    request: &GetTokenRequest,
    cache: &Cache,
    stale: Option<&CacheEntry>,
    paths: &Paths,
    world: &World,
) -> Result<CachedToken, Error> {
    let usable = || read_usable(request, cache, stale, &world.clock);
    let lock_path = paths.locks().join(format!("token-{}.lock", request.lock_name()));
    runtime::block_on(async {
        let deadline = Instant::now() + http::TOTAL_TIMEOUT;
        let _lock = match lock::acquire(&lock_path, lock::LOCK_TIMEOUT, usable).await? {
            LockOutcome::Acquired(lock) => lock,
            LockOutcome::Satisfied(token) => return Ok(token),
            LockOutcome::TimedOut(who) => {
                return Err(Error::other(format!(
                    "another kubectl-tenant is getting this token and does not finish (lock {who})"
                ))
                .hint("end that process, then try again"));
            }
        };
        if let Some(token) = usable() {
            return Ok(token);
        }
        let broker = open_broker(request, paths, world)?.with_deadline(deadline);
        request_token(request, cache, &broker, paths, &world.clock).await
    })?
}

/// Reads a token from the cache that replaces the stale one.
fn read_usable(
    request: &GetTokenRequest,
    cache: &Cache,
    stale: Option<&CacheEntry>,
    clock: &Clock,
) -> Option<CachedToken> {
    let token = cache.read().ok().flatten()?;
    let is_stale = |it: &CacheEntry| it.credential_id == token.entry.credential_id;
    if request.force || stale.is_some_and(is_stale) {
        return None;
    }
    match decide(Some(token), clock.now(), None) {
        CacheDecision::Serve(token) => Some(token),
        _ => None,
    }
}

/// The client for the broker, for the session of the person or the workload that asks.
fn open_broker(request: &GetTokenRequest, paths: &Paths, world: &World) -> Result<Broker, Error> {
    let profiles = Profiles::read(&paths.config, &world.stderr)?;
    let ca = profiles.ca_file(&request.account, &world.env);
    match &request.workload {
        None => Broker::new(&request.account, ca.as_deref(), paths, world),
        Some(workload) => {
            let workspace = request.workspace.hyphenated().to_string();
            let identity = &workload.identity;
            Broker::for_workload(&request.account, ca.as_deref(), identity, workspace, world)
        }
    }
}

/// Requests a new token from the broker and stores it.
async fn request_token(
    request: &GetTokenRequest,
    cache: &Cache,
    broker: &Broker,
    paths: &Paths,
    clock: &Clock,
) -> Result<CachedToken, Error> {
    let before = clock.now();
    if request.gateway {
        return Ok(cache.store_access_token(request, broker.gateway_token().await?));
    }
    let (credential, response) = broker.credential(request.workspace).await?;
    check_workspace(credential.workspace_id, request)?;
    let offset = http::clock_offset(&response, clock.now()).unwrap_or(0);
    if request.workload.is_some() {
        Cache::evict_expired_workloads(&paths.tokens(), clock.now());
    }
    Ok(cache.store(request, credential, before, offset))
}

/// Checks that the token is for the requested workspace, because a mix-up would have consequences.
fn check_workspace(workspace: Uuid, request: &GetTokenRequest) -> Result<(), Error> {
    if workspace == request.workspace {
        return Ok(());
    }
    Err(Error::refused(format!(
        "{} gave a token for workspace {workspace} instead of {}; it was not used",
        request.account, request.workspace
    )))
}
