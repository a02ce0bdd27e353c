//! What another issuer says of itself (OpenID Connect Discovery 1.0 section 4): read when it is
//! needed first, and again when it is old.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::{Http, Outage};
use crate::clock::Clock;

/// How long a document is believed.
const BELIEVED_MS: i64 = 3600 * 1000;
/// How long after a try that failed the next one may begin.
const PAUSE_MS: i64 = 5 * 1000;

/// The document of one issuer, as far as `T` reads it. Clones share everything.
pub(in crate::issuer) struct Discovery<T>(Arc<Inner<T>>);

struct Inner<T> {
    http: Http,
    clock: Clock,
    issuer: String,
    known: Mutex<Known<T>>,
    /// Held by whoever fetches.
    fetching: tokio::sync::Mutex<()>,
}

struct Known<T> {
    fetched: Option<(i64, Arc<T>)>,
    /// The last try, if it failed: when and why.
    failed: Option<(i64, Outage)>,
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
    /// A document that is not read yet. `issuer` is compared letter for letter.
    pub(in crate::issuer) fn new(http: Http, clock: Clock, issuer: &str) -> Self {
        Self(Arc::new(Inner {
            http,
            clock,
            issuer: issuer.to_owned(),
            known: Mutex::new(Known { fetched: None, failed: None }),
            fetching: tokio::sync::Mutex::default(),
        }))
    }

    /// The document.
    pub(in crate::issuer) async fn get(&self) -> Result<Arc<T>, Outage> {
        if let Some(document) = self.believed() {
            return Ok(document);
        }
        let _fetching = self.0.fetching.lock().await;
        if let Some(document) = self.believed() {
            return Ok(document);
        }
        if let Some(outage) = self.failed_within(PAUSE_MS) {
            return Err(outage);
        }
        let read = self.read().await.map(Arc::new);
        let (mut known, now) = (self.known(), self.0.clock.now_ms());
        match &read {
            Ok(document) => {
                known.fetched = Some((now, Arc::clone(document)));
                known.failed = None;
            }
            Err(outage) => known.failed = Some((now, outage.clone())),
        }
        read
    }

    /// Why the last try failed, if it was within so many milliseconds.
    pub(in crate::issuer) fn failed_within(&self, milliseconds: i64) -> Option<Outage> {
        let known = self.known();
        let (at, outage) = known.failed.as_ref()?;
        (self.0.clock.now_ms() - at < milliseconds).then(|| outage.clone())
    }

    async fn read(&self) -> Result<T, Outage> {
        let issuer = &self.0.issuer;
        let address = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let fault = |why: String| Outage(format!("{address} {why}"));
        let url = Url::parse(&address).map_err(|error| fault(error.to_string()))?;
        let document = self.0.http.get(&url).await?;
        let document: Value = serde_json::from_slice(&document)
            .map_err(|error| fault(format!("is no discovery document: {error}")))?;
        if document.get("issuer").and_then(Value::as_str) != Some(issuer) {
            return Err(fault("names another issuer than the configuration".to_owned()));
        }
        serde_json::from_value(document)
            .map_err(|error| fault(format!("is no discovery document: {error}")))
    }

    fn known(&self) -> MutexGuard<'_, Known<T>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn believed(&self) -> Option<Arc<T>> {
        let known = self.known();
        let (at, document) = known.fetched.as_ref()?;
        (self.0.clock.now_ms() - at < BELIEVED_MS).then(|| Arc::clone(document))
    }
}
