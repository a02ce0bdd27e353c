//! Access tokens of the calls: of a person's session, which is renewed, or of a workload.

use std::sync::{Mutex, PoisonError};

use secrecy::{ExposeSecret, SecretString};

use super::Broker;
use crate::{
    error::{Error, Kind},
    keyring::KEYRING_TIMEOUT,
    lock::{self, LockOutcome},
    oidc::{self, Issuer, RefreshOutcome},
    store::{AccessToken, Session, SessionStore, Storage},
    workload_identity::WorkloadIdentity,
};

/// Source of access tokens.
pub(super) enum AccessTokenSource {
    /// The session of a person.
    Session(SessionStore),
    /// The OIDC token of a workload, exchanged once per process.
    Workload {
        workload: WorkloadIdentity,
        workspace: String,
        /// Access token of the last exchange.
        token: Mutex<Option<AccessToken>>,
    },
}

impl Broker {
    /// Turns a sign-in error of a workload into a refusal, because a workload cannot sign in.
    pub(super) fn without_sign_in(&self, error: Error) -> Error {
        match (&self.access, error.kind) {
            (AccessTokenSource::Workload { .. }, Kind::SignIn) => Error::refused(format!(
                "{} rejects the access token that it issued for the OIDC token of this machine",
                self.account.broker
            ))
            .hint(error.hint.unwrap_or_default()),
            _ => error,
        }
    }

    /// Gets a new access token that is valid for the gateway only. kubectl gets no other token of
    /// the session, because everybody who can reach a `kubectl proxy` uses that token as well.
    pub(crate) async fn gateway_token(&self) -> Result<AccessToken, Error> {
        let access = self.access_token(None).await?.token;
        if let Some(token) = self.exchange_for_gateway(&access).await? {
            return Ok(token);
        }
        let access = self.access_token(Some(&access)).await?.token;
        self.exchange_for_gateway(&access).await?.ok_or_else(|| {
            Error::refused(format!("{} issued no token for its gateway", self.account.broker))
                .hint("sign in again with `kubectl tenant login`")
        })
    }

    async fn exchange_for_gateway(
        &self,
        access: &SecretString,
    ) -> Result<Option<AccessToken>, Error> {
        let endpoint = match &self.access {
            AccessTokenSource::Session(sessions) => {
                sessions.read()?.map(|session| session.token_endpoint)
            }
            AccessTokenSource::Workload { .. } => {
                let issuer = Issuer::discover(&self.http, &self.account.broker).await?;
                Some(issuer.endpoints()?.0)
            }
        };
        let gone = || self.account.sign_in_error("there is no session on this machine any more");
        let endpoint = endpoint.ok_or_else(gone)?;
        oidc::exchange_for_gateway_token(&self.http, &endpoint, access, &self.clock).await
    }

    /// Returns an access token that differs from the one that was just rejected.
    pub(super) async fn access_token(
        &self,
        rejected: Option<&SecretString>,
    ) -> Result<AccessToken, Error> {
        match &self.access {
            AccessTokenSource::Session(sessions) => {
                self.session_access_token(sessions, rejected).await
            }
            AccessTokenSource::Workload { workload, workspace, token } => {
                let known = token.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if let (Some(known), None) = (known, rejected) {
                    return Ok(known);
                }
                let issuer = Issuer::discover(&self.http, &self.account.broker).await?;
                let new =
                    issuer.exchange_id_token(&workload.token()?, workspace, &self.clock).await?;
                *token.lock().unwrap_or_else(PoisonError::into_inner) = Some(new.clone());
                Ok(new)
            }
        }
    }

    /// Returns an access token that has not expired and differs from the one that was just
    /// rejected.
    ///
    /// The refresh token works once, so only one process at a time may use it. Each process checks
    /// again after it got the lock, because the previous holder may have renewed the session.
    async fn session_access_token(
        &self,
        sessions: &SessionStore,
        rejected: Option<&SecretString>,
    ) -> Result<AccessToken, Error> {
        let is_usable = |session: &Session| {
            session.access.is_usable(self.clock.now())
                && rejected.is_none_or(|rejected| {
                    rejected.expose_secret() != session.access.token.expose_secret()
                })
        };
        let usable = || sessions.read().ok().flatten().filter(|session| is_usable(session));
        if sessions.read()?.is_none() {
            return Err(self.account.sign_in_error("there is no session on this machine"));
        }
        if let Some(session) = usable() {
            return Ok(session.access);
        }
        if !self.renews_session {
            return Err(self.account.sign_in_error("the access token has expired"));
        }
        let path = sessions.lock_path();
        let _lock = match lock::acquire(path, self.http.time_left(), usable).await? {
            LockOutcome::Acquired(lock) => lock,
            LockOutcome::Satisfied(session) => return Ok(session.access),
            LockOutcome::TimedOut(who) => {
                return Err(Error::other(format!(
                    "another kubectl-tenant is renewing the session and does not finish (lock {who})"
                ))
                .hint("end that process, then try again"));
            }
        };
        if let Some(session) = usable() {
            return Ok(session.access);
        }
        self.refresh_session(sessions).await
    }

    /// Renews the session with its refresh token. The caller holds the lock.
    async fn refresh_session(&self, sessions: &SessionStore) -> Result<AccessToken, Error> {
        let gone = || self.account.sign_in_error("there is no session on this machine any more");
        // The successor needs a file before the old refresh token is used up.
        let mut pending = sessions.prepare()?;
        let mut session = sessions.read()?.ok_or_else(gone)?;
        let mut raced = false;
        loop {
            let refresh_token = sessions.refresh_token(&session)?.ok_or_else(|| {
                self.account.sign_in_error(match session.storage {
                    Storage::None => "the last sign-in is over, and --storage none keeps nothing",
                    _ => "the session's refresh token is no longer in its storage",
                })
            })?;
            let refresh = oidc::refresh(
                &self.http,
                &self.account.broker,
                &session.token_endpoint,
                &refresh_token,
                &self.clock,
            );
            match refresh.await? {
                RefreshOutcome::Tokens(access, successor) => {
                    session.access = access;
                    match successor {
                        Some(successor) => {
                            let how = (KEYRING_TIMEOUT, true);
                            sessions.save(pending, &mut session, &successor, how)?;
                        }
                        None => pending.write(&session)?,
                    }
                    return Ok(session.access);
                }
                RefreshOutcome::InvalidGrant(why) => {
                    // Where locks do not work, another process may have used the refresh token
                    // first.
                    let again = sessions.read()?.ok_or_else(gone)?;
                    let same = sessions.refresh_token(&again)?.is_some_and(|again| {
                        again.expose_secret() == refresh_token.expose_secret()
                    });
                    if same || raced {
                        sessions.end(&again)?;
                        return Err(self.account.sign_in_error(why));
                    }
                    if again.access.is_usable(self.clock.now()) {
                        return Ok(again.access);
                    }
                    (session, raced) = (again, true);
                    pending = sessions.prepare()?;
                }
            }
        }
    }
}
