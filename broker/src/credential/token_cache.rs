//! Cache of the tokens that the broker sends requests with as a workspace: those that the gateway
//! forwards, and reviews of a member's rights. One per ServiceAccount in use, in memory only.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use http::HeaderValue;
use secrecy::{ExposeSecret as _, zeroize::Zeroizing};
use tenant_shared::CredentialKind;
use uuid::Uuid;

use super::{Credentials, IssueError};
use crate::{
    access::{Permit, UseWorkspace},
    base::{clock::Clock, secret::WipedBytes},
    cluster::ClusterError,
    workspace::{Active, WorkspaceRow},
};

/// A token is renewed when less than this is left of its lifetime, in milliseconds.
const RENEW_MS: i64 = 10 * 60 * 1000;

/// A token as it is sent upstream. Its `Debug` output is redacted, and its memory is zeroed with
/// its last clone.
#[derive(Clone, Debug)]
pub struct CachedToken {
    header: HeaderValue,
    credential_id: Arc<str>,
    service_account_uid: Arc<str>,
    expires_at: i64,
}

impl CachedToken {
    /// The claim `jti`.
    pub fn credential_id(&self) -> &Arc<str> {
        &self.credential_id
    }

    /// Uid of the ServiceAccount that it is a token of.
    pub fn service_account_uid(&self) -> &Arc<str> {
        &self.service_account_uid
    }

    /// The value of the `Authorization` header.
    pub fn authorization(&self) -> HeaderValue {
        self.header.clone()
    }

    /// A token that no cluster issued.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Self {
            header: HeaderValue::from_static("Bearer x"),
            credential_id: "x".into(),
            service_account_uid: "x".into(),
            expires_at: 0,
        }
    }
}

/// Cache slot of one ServiceAccount: its token and the lock of the task that renews it.
#[derive(Debug, Default)]
struct Slot {
    token: Mutex<Option<CachedToken>>,
    renewal: tokio::sync::Mutex<()>,
}

impl Slot {
    fn token(&self) -> Option<CachedToken> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, token: Option<CachedToken>) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
    }
}

type Slots = HashMap<(Uuid, Arc<str>), Arc<Slot>>;

/// The cache. Clones share the tokens.
#[derive(Clone, Debug)]
pub struct TokenCache {
    credentials: Credentials,
    clock: Clock,
    slots: Arc<Mutex<Slots>>,
}

impl TokenCache {
    /// An empty cache; tokens are issued with `credentials`.
    pub fn new(credentials: Credentials, clock: Clock) -> Self {
        Self { credentials, clock, slots: Arc::default() }
    }

    fn slot(&self, workspace: Uuid, service_account_uid: &Arc<str>) -> Arc<Slot> {
        let key = (workspace, Arc::clone(service_account_uid));
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry(key).or_default())
    }

    /// The token of an active workspace. The first caller issues it, or renews it when less than 10
    /// minutes are left; concurrent callers use the old token as long as it is valid, or wait. If
    /// the ServiceAccount was replaced meanwhile, it is a token of the new one.
    ///
    /// # Errors
    /// The cluster or the ledger failed, and there is no valid token.
    pub async fn get(&self, active: &Active) -> Result<CachedToken, IssueError> {
        let slot = self.slot(active.workspace_id(), active.service_account_uid());
        let now = self.clock.now_ms();
        let valid = match slot.token() {
            Some(token) if now + RENEW_MS < token.expires_at => return Ok(token),
            old => old.filter(|token| now < token.expires_at),
        };
        let guard = match &valid {
            Some(token) => match slot.renewal.try_lock() {
                Ok(guard) => guard,
                Err(_) => return Ok(token.clone()),
            },
            None => slot.renewal.lock().await,
        };
        if let Some(token) = slot.token()
            && self.clock.now_ms() + RENEW_MS < token.expires_at
        {
            return Ok(token);
        }
        let renewed = Box::pin(self.issue(active.permit().clone())).await;
        let token = match (renewed, valid) {
            (Ok(token), _) => token,
            (Err(_), Some(token)) => return Ok(token),
            (Err(failure), None) => return Err(failure),
        };
        self.slot(active.workspace_id(), &token.service_account_uid).set(Some(token.clone()));
        // If this is another slot, callers that wait with the same outdated proof use the token
        // too.
        slot.set(Some(token.clone()));
        drop(guard);
        Ok(token)
    }

    async fn issue(
        &self,
        permit: Permit<UseWorkspace, WorkspaceRow>,
    ) -> Result<CachedToken, IssueError> {
        let requested_at = self.clock.now_ms();
        let (active, issued) = self.credentials.issue(permit, CredentialKind::Gateway).await?;
        let mut text = Zeroizing::new(Vec::with_capacity(2048));
        text.extend_from_slice(b"Bearer ");
        text.extend_from_slice(issued.token.expose_secret().as_bytes());
        let mut header = HeaderValue::from_maybe_shared(Bytes::from_owner(WipedBytes(text)))
            .map_err(|_| ClusterError::Token("it cannot be sent in a header".to_owned()))?;
        header.set_sensitive(true);
        // By the broker's clock, from before the request, because the cluster's clock may differ.
        let expires_at = requested_at + i64::from(issued.lifetime) * 1000;
        Ok(CachedToken {
            header,
            credential_id: issued.credential_id.into(),
            service_account_uid: Arc::clone(active.service_account_uid()),
            expires_at,
        })
    }

    /// Removes the tokens of a workspace.
    pub fn remove_workspace(&self, workspace: Uuid) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|(id, _), _| *id != workspace);
    }

    /// Removes the tokens whose credential id matches.
    pub fn evict_if(&self, predicate: impl Fn(&str) -> bool) {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        for slot in slots.values() {
            if slot.token().is_some_and(|token| predicate(&token.credential_id)) {
                slot.set(None);
            }
        }
    }

    /// Removes expired tokens.
    pub fn evict_expired(&self) {
        let now = self.clock.now_ms();
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|_, slot| {
            // A slot that is in use is kept.
            Arc::strong_count(slot) > 1 || slot.token().is_some_and(|token| now < token.expires_at)
        });
    }
}
