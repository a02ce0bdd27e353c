//! `get-token` after a cache miss.
//!
//! [`tenant_cached_token`] found nothing to print: the token is missing, about to expire or
//! rejected by the API server, or there is a warning to print about its file. The steps: read the
//! cache again, now with warnings; take the lock of this token; read the cache once more; call the
//! broker; store the token; print it.
//!
//! Background: KEP-541 (exec credential plugins) and client-go's `plugin/pkg/client/auth/exec`.

mod fetch;

use tenant_cached_token::{
    self as cached, CacheDecision, CacheEntry, CachedToken, EXEC_INFO_ENV, Parent,
};
use tenant_shared::ExecInfo;

use crate::{
    credential::{Cache, GetTokenRequest, NegativeCache},
    error::{Error, Kind},
    paths::Paths,
    world::World,
};

/// Whether the old token can be served when no new one was issued.
fn can_fall_back(decision: &CacheDecision, kind: Kind) -> bool {
    match decision {
        CacheDecision::RenewAhead(_) => kind != Kind::Refused,
        // Some clients ask more often than they need, so a rejection is only a suspicion and no
        // reason to withhold the token while there is no better one.
        CacheDecision::Rejected(_) => matches!(kind, Kind::Unreachable | Kind::Other),
        CacheDecision::Serve(_) | CacheDecision::Miss => false,
    }
}

/// Takes the old token out of a decision.
fn into_token(decision: CacheDecision) -> Option<CachedToken> {
    match decision {
        CacheDecision::Serve(token)
        | CacheDecision::RenewAhead(token)
        | CacheDecision::Rejected(token) => Some(token),
        CacheDecision::Miss => None,
    }
}

/// The cached token that must be replaced.
fn stale_entry(decision: &CacheDecision) -> Option<&CacheEntry> {
    match decision {
        CacheDecision::RenewAhead(token) | CacheDecision::Rejected(token) => Some(&token.entry),
        CacheDecision::Serve(_) | CacheDecision::Miss => None,
    }
}

/// Runs `get-token`.
pub(crate) fn get_token(request: &GetTokenRequest, world: &mut World) -> Result<(), Error> {
    let info = exec_info(world)?;
    let paths = Paths::from_env(&world.env)?;
    let cache = Cache::new(&paths, &request.cache_key_digest(), &world.stderr);
    // Without KUBERNETES_EXEC_INFO the parent is a shell, which may ask as often as it likes.
    let parent = info.and_then(|_| (world.parent)());
    let token = if request.force { None } else { cache.read()? };
    let mut token = match cached::decide(token, world.clock.now(), parent) {
        CacheDecision::Serve(token) => token,
        decision => renew(request, &cache, decision, (parent, info), &paths, world)?,
    };
    token.mark_served_to(parent);
    let document = cached::document(info, &token)
        .map_err(|error| Error::other(format!("cannot write the credential: {error}")))?;
    world.print(&document)
}

/// Parses `KUBERNETES_EXEC_INFO`; [`None`] when a person calls.
fn exec_info(world: &World) -> Result<Option<ExecInfo>, Error> {
    match world.env.get(EXEC_INFO_ENV) {
        None => Ok(None),
        Some(text) => ExecInfo::parse(&text.to_string_lossy()).map(Some).map_err(|error| {
            Error::other(error.to_string())
                .hint("in the kubeconfig use apiVersion: client.authentication.k8s.io/v1")
        }),
    }
}

/// Renews the token, or explains in one line why that failed.
fn renew(
    request: &GetTokenRequest,
    cache: &Cache,
    decision: CacheDecision,
    (parent, info): (Option<Parent>, Option<ExecInfo>),
    paths: &Paths,
    world: &mut World,
) -> Result<CachedToken, Error> {
    let negative_cache = NegativeCache::new(paths);
    let failure = negative_cache.read(&request.lock_name()).filter(|_| !request.force);
    if let Some(failure) = failure {
        let now = world.clock.now();
        let has_fallback = can_fall_back(&decision, failure.kind);
        if !has_fallback && failure.is_cached_for(parent, now) {
            // kubectl runs a failing plugin five times in a row: the result is still the same.
            return Err(Error { hint: None, ..failure.error() });
        }
        if has_fallback && failure.is_outage(now) {
            // The broker was unreachable a moment ago, so it is not called again yet.
            return into_token(decision).ok_or_else(|| failure.error());
        }
    }
    let interactive = info.is_some_and(|info| info.interactive);
    match fetch::fetch(request, cache, stale_entry(&decision), interactive, paths, world) {
        Ok(token) => {
            negative_cache.clear(&request.lock_name());
            Ok(token)
        }
        Err(error) => {
            negative_cache.write(request, &error, world.clock.now(), parent);
            if can_fall_back(&decision, error.kind) {
                into_token(decision).ok_or(error)
            } else {
                Err(error)
            }
        }
    }
}
