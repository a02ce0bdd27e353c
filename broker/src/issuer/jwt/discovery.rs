//! Discovery documents of other issuers (OpenID Connect Discovery 1.0 section 4): fetched when
//! first needed, and cached.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::{FetchError, HttpClient};
use crate::base::clock::Clock;

/// TTL of a cached document, in milliseconds.
const CACHE_TTL_MS: i64 = 3600 * 1000;
/// Backoff after a failed fetch, in milliseconds.
const RETRY_BACKOFF_MS: i64 = 5 * 1000;

/// The cached document of one issuer, as far as `T` deserializes it. Clones share the cache.
pub(in crate::issuer) struct Discovery<T>(Arc<Inner<T>>);

struct Inner<T> {
    http: HttpClient,
    clock: Clock,
    issuer: String,
    state: Mutex<CacheState<T>>,
    /// Held during a fetch, so that there is one at a time.
    fetching: tokio::sync::Mutex<()>,
}

struct CacheState<T> {
    fetched: Option<(i64, Arc<T>)>,
    /// Time and cause of the last fetch, if it failed.
    failed: Option<(i64, FetchError)>,
}

impl<T> Clone for Discovery<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Discovery<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Discovery({})", self.0.issuer)
    }
}

impl<T: DeserializeOwned> Discovery<T> {
    /// An empty cache. The `issuer` in the document must equal this one exactly.
    pub(in crate::issuer) fn new(http: HttpClient, clock: Clock, issuer: &str) -> Self {
        Self(Arc::new(Inner {
            http,
            clock,
            issuer: issuer.to_owned(),
            state: Mutex::new(CacheState { fetched: None, failed: None }),
            fetching: tokio::sync::Mutex::default(),
        }))
    }

    /// The document, from the cache or fetched.
    pub(in crate::issuer) async fn get(&self) -> Result<Arc<T>, FetchError> {
        if let Some(document) = self.cached() {
            return Ok(document);
        }
        let _fetching = self.0.fetching.lock().await;
        if let Some(document) = self.cached() {
            return Ok(document);
        }
        if let Some(error) = self.failed_within(RETRY_BACKOFF_MS) {
            return Err(error);
        }
        let fetched = self.fetch().await.map(Arc::new);
        let (mut state, now) = (self.state(), self.0.clock.now_ms());
        match &fetched {
            Ok(document) => {
                state.fetched = Some((now, Arc::clone(document)));
                state.failed = None;
            }
            Err(error) => state.failed = Some((now, error.clone())),
        }
        fetched
    }

    /// The cause of the failure if the last fetch failed within this number of milliseconds.
    pub(in crate::issuer) fn failed_within(&self, milliseconds: i64) -> Option<FetchError> {
        let state = self.state();
        let (at, error) = state.failed.as_ref()?;
        (self.0.clock.now_ms() - at < milliseconds).then(|| error.clone())
    }

    async fn fetch(&self) -> Result<T, FetchError> {
        let issuer = &self.0.issuer;
        let address = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let fault = |why: String| FetchError(format!("{address} {why}"));
        let url = Url::parse(&address).map_err(|error| fault(error.to_string()))?;
        let document = self.0.http.get(&url).await?;
        let document: Value = serde_json::from_slice(&document)
            .map_err(|error| fault(format!("is not a discovery document: {error}")))?;
        if document.get("issuer").and_then(Value::as_str) != Some(issuer) {
            return Err(fault("names an issuer that differs from the configuration".to_owned()));
        }
        serde_json::from_value(document)
            .map_err(|error| fault(format!("is not a discovery document: {error}")))
    }

    fn state(&self) -> MutexGuard<'_, CacheState<T>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cached(&self) -> Option<Arc<T>> {
        let state = self.state();
        let (at, document) = state.fetched.as_ref()?;
        (self.0.clock.now_ms() - at < CACHE_TTL_MS).then(|| Arc::clone(document))
    }
}
