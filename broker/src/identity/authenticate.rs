//! Authentication of requests by access token or by a browser's cookie.

use std::time::Instant;

use http::{HeaderMap, Method};

use super::{
    AuthenticationError, Caller, Identity, PresentedCredential, browser,
    presented_credential::access_token, sessions,
};
use crate::base::{request_context::record_caller, secret::PlainSecret};

impl Identity {
    /// Authenticates the user of an access token, with one reading statement.
    ///
    /// # Errors
    /// [`AuthenticationError::Unauthenticated`] for a token that is unknown or expired, or whose
    /// session or user has come to an end; [`AuthenticationError::TooMany`] beyond the rate limits
    /// on unauthenticated requests; [`AuthenticationError::Storage`] if the database does not
    /// answer.
    ///
    /// [`AuthenticationError::Machine`] for a machine, whose session is for one workspace;
    /// [`AuthenticationError::GatewayScope`] for a token that is for the gateway only.
    pub async fn authenticate_access_token(
        &self,
        token: &str,
    ) -> Result<Caller, AuthenticationError> {
        let credential = PresentedCredential::AccessToken(PlainSecret::presented(token));
        self.authenticate(&credential).await?.require_api_scope()?.require_user()
    }

    /// Authenticates the user who sends a request with this method and these headers, by access
    /// token or, without one, by cookie.
    ///
    /// # Errors
    /// Like [`Identity::authenticate_access_token`]; [`AuthenticationError::ForeignOrigin`] for a
    /// request that a foreign page caused.
    pub async fn authenticate_user(
        &self,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Caller, AuthenticationError> {
        self.authenticate_for_workspace(method, headers).await?.require_user()
    }

    /// Authenticates the user or machine who sends a request with this method and these headers,
    /// for operations on a workspace, which ask [`crate::access`].
    ///
    /// # Errors
    /// Like [`Identity::authenticate_user`], without [`AuthenticationError::Machine`].
    pub async fn authenticate_for_workspace(
        &self,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Caller, AuthenticationError> {
        self.authenticate(&self.extract(method, headers)?).await?.require_api_scope()
    }

    /// Authenticates the user of a browser's cookie without an origin check, for pages that change
    /// nothing.
    ///
    /// # Errors
    /// Like [`Identity::authenticate_user`], without [`AuthenticationError::ForeignOrigin`].
    pub async fn authenticate_page(
        &self,
        headers: &HeaderMap,
    ) -> Result<Caller, AuthenticationError> {
        match self.browser.cookie.read(headers) {
            Some(secret) => self.browser_caller(&secret).await,
            None => Err(AuthenticationError::Unauthenticated),
        }
    }

    /// Extracts the credential of a request, without verifying it.
    ///
    /// # Errors
    /// The request has no credential; a foreign page caused it.
    pub(crate) fn extract(
        &self,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<PresentedCredential, AuthenticationError> {
        // If there is a token, a cookie is not considered, even if the token is invalid.
        if let Some(token) = access_token(headers) {
            return Ok(PresentedCredential::AccessToken(token));
        }
        let secret =
            self.browser.cookie.read(headers).ok_or(AuthenticationError::Unauthenticated)?;
        self.browser.origins.check(method, headers)?;
        Ok(PresentedCredential::Cookie(secret))
    }

    /// Whether a request presents a secret that was valid recently. That authenticates nobody: it
    /// only decides whether the rate limits on unauthenticated requests apply.
    pub(crate) fn presents_cached_secret(&self, headers: &HeaderMap) -> bool {
        let presented = access_token(headers).or_else(|| self.browser.cookie.read(headers));
        presented.is_some_and(|secret| self.secret_cache.contains(secret.hash(), Instant::now()))
    }

    /// Whether a credential was valid recently. As [`Self::presents_cached_secret`], this authenticates
    /// nobody.
    pub(crate) fn is_cached(&self, presented: &PresentedCredential) -> bool {
        self.secret_cache.contains(presented.hash(), Instant::now())
    }

    /// Authenticates the user or machine of a credential, with a token of any scope, for the
    /// gateway.
    ///
    /// # Errors
    /// Like [`Identity::authenticate_access_token`], without the last two.
    #[tracing::instrument(level = "debug", skip_all)]
    pub(crate) async fn authenticate(
        &self,
        credential: &PresentedCredential,
    ) -> Result<Caller, AuthenticationError> {
        match credential {
            PresentedCredential::AccessToken(token) => {
                self.look_up(token, sessions::ACCESS_PREFIX).await
            }
            PresentedCredential::Cookie(secret) => self.browser_caller(secret).await,
        }
    }

    /// Finds the caller of a session cookie. The use of the session is recorded, and its idle
    /// timeout extended, once a minute at most.
    async fn browser_caller(&self, secret: &PlainSecret) -> Result<Caller, AuthenticationError> {
        let caller = self.look_up(secret, sessions::COOKIE_PREFIX).await?;
        let now = self.clock.now_ms();
        if caller.last_used_at + browser::USE_INTERVAL_MS <= now {
            let idle_expires_at = now + i64::from(self.browser.idle_seconds) * 1000;
            let mut tx = self.db.begin().await?;
            sessions::extend_idle_timeout(&mut tx, caller.session_id, now, idle_expires_at)
                .await?
                .ok_or(AuthenticationError::Unauthenticated)?;
            tx.commit().await?;
        }
        Ok(caller)
    }

    async fn look_up(
        &self,
        secret: &PlainSecret,
        prefix: &str,
    ) -> Result<Caller, AuthenticationError> {
        // A secret without the broker's prefix does not cost a statement.
        if !secret.expose().starts_with(prefix) {
            return Err(AuthenticationError::Unauthenticated);
        }
        let (hash, now) = (secret.hash(), self.clock.now_ms());
        let caller = if self.secret_cache.contains(hash, Instant::now()) {
            sessions::find_caller(&self.db, hash, now).await?
        } else {
            let admitted = self.limits.admit().map_err(AuthenticationError::TooMany)?;
            let caller = sessions::find_caller(&self.unauthenticated, hash, now).await?;
            if caller.is_some() {
                admitted.authenticated();
            }
            caller
        };
        let Some(caller) = caller else {
            self.secret_cache.remove(hash);
            return Err(AuthenticationError::Unauthenticated);
        };
        self.secret_cache.insert(hash, Instant::now());
        record_caller(caller.user_id, caller.session_id);
        Ok(caller)
    }
}
