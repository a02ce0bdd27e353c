//! The tenants' tokens, in memory only: one for each ServiceAccount that is in use.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use http::HeaderValue;
use secrecy::{ExposeSecret as _, zeroize::Zeroizing};
use uuid::Uuid;

use tenant_shared::CredentialKind;

use crate::{clock::Clock, credential::Credentials, problem::Failure, workspace::Active};

/// A token with less left than this is renewed, in milliseconds.
const RENEW_MS: i64 = 10 * 60 * 1000;

/// A token as it goes upstream. It does not print, and its memory is wiped with its last clone.
#[derive(Clone, Debug)]
pub(super) struct Token {
    header: HeaderValue,
    credential_id: Arc<str>,
    expires_at: i64,
}

impl Token {
    /// Its `jti`.
    pub(super) fn credential_id(&self) -> &Arc<str> {
        &self.credential_id
    }

    /// The header `Authorization`.
    pub(super) fn authorization(&self) -> HeaderValue {
        self.header.clone()
    }
}

/// Bytes that are wiped when the last header that shows them is gone.
struct Wiped(Zeroizing<Vec<u8>>);

impl AsRef<[u8]> for Wiped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Where one ServiceAccount's token is, and who renews it.
#[derive(Debug, Default)]
struct Place {
    token: Mutex<Option<Token>>,
    renewal: tokio::sync::Mutex<()>,
}

impl Place {
    fn token(&self) -> Option<Token> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn put(&self, token: Option<Token>) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
    }
}

type Places = HashMap<(Uuid, Arc<str>), Arc<Place>>;

/// The tokens. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    credentials: Credentials,
    clock: Clock,
    places: Arc<Mutex<Places>>,
}

impl Tokens {
    /// No tokens yet; they are issued here.
    pub(super) fn new(credentials: Credentials, clock: Clock) -> Self {
        Self { credentials, clock, places: Arc::default() }
    }

    fn place(&self, active: &Active) -> Arc<Place> {
        let workspace = active.permit().workspace().unwrap_or_default();
        let key = (workspace, active.service_account_uid().clone());
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(places.entry(key).or_default())
    }

    /// The token of an active workspace. Whoever comes first asks for it, or renews it when less
    /// than 10 minutes are left; others use the old one as long as it is good, or wait.
    ///
    /// # Errors
    /// The cluster or the ledger failed, and there is no good token left.
    pub(super) async fn of(&self, active: &Active) -> Result<Token, Failure> {
        let place = self.place(active);
        let now = self.clock.now_ms();
        let good = match place.token() {
            Some(token) if now + RENEW_MS < token.expires_at => return Ok(token),
            old => old.filter(|token| now < token.expires_at),
        };
        let turn = match &good {
            Some(token) => match place.renewal.try_lock() {
                Ok(turn) => turn,
                Err(_) => return Ok(token.clone()),
            },
            None => place.renewal.lock().await,
        };
        if let Some(token) = place.token()
            && self.clock.now_ms() + RENEW_MS < token.expires_at
        {
            return Ok(token);
        }
        let renewed = Box::pin(self.issue(active)).await;
        let token = match (renewed, good) {
            (Ok(token), _) => token,
            (Err(_), Some(token)) => return Ok(token),
            (Err(failure), None) => return Err(failure),
        };
        place.put(Some(token.clone()));
        drop(turn);
        Ok(token)
    }

    async fn issue(&self, active: &Active) -> Result<Token, Failure> {
        let asked_at = self.clock.now_ms();
        let issued = self.credentials.issue(active, CredentialKind::Gateway).await?;
        let mut text = Zeroizing::new(Vec::with_capacity(2048));
        text.extend_from_slice(b"Bearer ");
        text.extend_from_slice(issued.token.expose_secret().as_bytes());
        let mut header = HeaderValue::from_maybe_shared(Bytes::from_owner(Wiped(text)))
            .map_err(|error| Failure::internal(&error))?;
        header.set_sensitive(true);
        // By our own clock, from before it was asked for: the cluster's may differ.
        let expires_at = asked_at + i64::from(issued.lifetime) * 1000;
        Ok(Token { header, credential_id: issued.credential_id.into(), expires_at })
    }

    /// Drops the tokens of a workspace.
    pub(super) fn forget(&self, workspace: Uuid) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|(of, _), _| *of != workspace);
    }

    /// Drops the tokens of these ids.
    pub(super) fn forget_those(&self, picked: impl Fn(&str) -> bool) {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        for place in places.values() {
            if place.token().is_some_and(|token| picked(&token.credential_id)) {
                place.put(None);
            }
        }
    }

    /// Drops what has expired.
    pub(super) fn purge(&self) {
        let now = self.clock.now_ms();
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|_, place| {
            // One that is being asked for is kept.
            Arc::strong_count(place) > 1
                || place.token().is_some_and(|token| now < token.expires_at)
        });
    }
}
