//! `get-token` after a cache miss.
//!
//! [`tenant_cached_token`] found nothing to print: the token is missing, about to expire or
//! rejected by the API server, or there is a warning to print about its file. The steps: read the
//! cache again, now with warnings; take the lock of this token; read the cache once more; call the
//! broker; store the token; print it.
//!
//! Background: KEP-541 (exec credential plugins) and client-go's `plugin/pkg/client/auth/exec`.

mod cache;
mod fetch;
mod negative_cache;

use tenant_cached_token::{
    self as cached, CacheDecision, CacheEntry, CachedToken, EXEC_INFO_ENV, Parent,
};
use tenant_shared::ExecInfo;
use uuid::Uuid;

use crate::{
    account_key::{AccountKey, ProfileName},
    error::{Error, Kind},
    paths::Paths,
    workload_identity::WorkloadIdentity,
    world::World,
};

pub(crate) use cache::{Cache, belongs_to, mode};
pub(crate) use negative_cache::{CachedFailure, NegativeCache};

/// The workload that asks, with the claims of its current token.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    identity: WorkloadIdentity,
    /// Name under which the tokens of this workload are cached.
    cache_name: String,
}

impl Workload {
    /// Reads the OIDC token of the workload.
    pub(crate) fn new(identity: &WorkloadIdentity) -> Result<Self, Error> {
        Ok(Self { cache_name: identity.token()?.cache_name(), identity: identity.clone() })
    }
}

/// Parameters of a `get-token` call.
#[derive(Clone, Debug)]
pub(crate) struct GetTokenRequest {
    pub(crate) account: AccountKey,
    /// Set if a workload asks instead of a person.
    pub(crate) workload: Option<Workload>,
    pub(crate) cluster: String,
    pub(crate) workspace: Uuid,
    /// Whether to get an access token that is valid for the broker's gateway only.
    pub(crate) gateway: bool,
    /// Whether to get a new token even if a cached one is good.
    pub(crate) force: bool,
}

impl GetTokenRequest {
    /// Digest of the token's cache key: the name of its cache file.
    pub(crate) fn cache_key_digest(&self) -> String {
        self.with_cache_key(|key| key.digest())
    }

    /// Name of the token's lock and of its entry in the negative cache: the same for all workloads,
    /// because a CI provider gives every job other claims and neither file is ever deleted.
    pub(crate) fn lock_name(&self) -> String {
        Self { workload: None, ..self.clone() }.cache_key_digest()
    }

    /// Calls `f` with the cache key of this request.
    fn with_cache_key<T>(&self, f: impl FnOnce(cached::CacheKey<'_>) -> T) -> T {
        let mut buffer = Uuid::encode_buffer();
        let workspace = self.workspace.hyphenated().encode_lower(&mut buffer);
        f(cached::CacheKey {
            broker: self.account.broker.as_str(),
            cluster: &self.cluster,
            workspace,
            profile: match &self.workload {
                Some(workload) => Some(&workload.cache_name),
                None => self.account.profile.as_ref().map(ProfileName::as_str),
            },
            gateway: self.gateway,
        })
    }
}

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
