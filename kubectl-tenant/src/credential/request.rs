//! The parameters of `get-token`, which are also the key of its files.

use tenant_cached_token::CacheKey;
use uuid::Uuid;

use crate::{
    account_key::{AccountKey, ProfileName},
    error::Error,
    workload_identity::WorkloadIdentity,
};

/// The workload that asks, with the claims of its current token.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) identity: WorkloadIdentity,
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
    pub(super) fn with_cache_key<T>(&self, f: impl FnOnce(CacheKey<'_>) -> T) -> T {
        let mut buffer = Uuid::encode_buffer();
        let workspace = self.workspace.hyphenated().encode_lower(&mut buffer);
        f(CacheKey {
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
