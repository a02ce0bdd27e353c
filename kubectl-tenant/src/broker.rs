//! Client for the broker's API: one method for each call, authenticated with an access token.

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
};

use http::{Method, Request, header};
use secrecy::{ExposeSecret, SecretString};
use serde::{Serialize, de::DeserializeOwned};
use tenant_shared::{
    AuditEntry, ChangeEmailRequest, Credential, CredentialId, CredentialInfo, EndedSessions,
    InitRequest, Me, Name, Revocation, SessionInfo, SetGroupsRequest, SuspendRequest, Suspension,
    Usage, UserGroups, UserInfo, UserSuspension, Workspace, WorkspaceList,
};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    account_key::AccountKey,
    broker_url::BrokerUrl,
    compatibility::{self, BrokerVersion},
    error::{Error, Kind},
    http::{Http, RequestError, Response},
    lock::{self, LockOutcome},
    oidc::{self, Issuer, RefreshOutcome},
    output,
    paths::Paths,
    store::{AccessToken, KEYRING_TIMEOUT, Session, SessionStore, Storage},
    workload_identity::WorkloadIdentity,
    world::{Clock, Messages, World},
};

/// Maximum number of pages that are read of a list.
const MAX_PAGES: usize = 1000;

/// Maximum number of items that are requested per page: the maximum of every list of the broker.
const MAX_PAGE_SIZE: usize = 500;

/// A page of a list, or the concatenation of several pages.
#[derive(serde::Deserialize)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    /// Cursor of the next page, if there is one.
    #[serde(default)]
    pub(crate) next_cursor: Option<String>,
    /// Whether the list has more items, also at an older broker without cursors.
    #[serde(skip)]
    pub(crate) more: bool,
}

/// Kind of credential in a kubeconfig document of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// A call of this plugin, which renews the token.
    Exec,
    /// A token of two hours in the file.
    Static,
    /// A call of this plugin; requests go to the broker's gateway, not the API server.
    Gateway,
}

/// Client for a broker and an account at it.
pub(crate) struct Broker {
    pub(crate) http: Http,
    pub(crate) account: AccountKey,
    access: AccessTokenSource,
    clock: Clock,
    /// Whether an expired access token is renewed with the session's refresh token.
    renews_session: bool,
    /// Where to warn, once, that broker and plugin do not work together.
    version_warning: Mutex<Option<Messages>>,
}

/// Source of access tokens.
enum AccessTokenSource {
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
    pub(crate) fn new(
        account: &AccountKey,
        ca: Option<&Path>,
        paths: &Paths,
        world: &World,
    ) -> Result<Self, Error> {
        Ok(Self {
            http: Http::new(account, ca)?,
            account: account.clone(),
            access: AccessTokenSource::Session(SessionStore::new(paths, account, world)),
            clock: world.clock.clone(),
            renews_session: true,
            version_warning: Mutex::default(),
        })
    }

    /// Makes this client warn, once, if a response shows that broker and plugin do not work
    /// together. `get-token` does not warn, because programs show its stderr on every call.
    pub(crate) fn with_version_warning(self, world: &World) -> Self {
        Self { version_warning: Mutex::new(Some(world.stderr.clone())), ..self }
    }

    /// Makes this client use the session only while its access token is valid. A client with a short
    /// deadline would lose the successor of a refresh token if the response comes late, and the next
    /// use of the old one ends the session.
    pub(crate) fn without_renewal(self) -> Self {
        Self { renews_session: false, ..self }
    }

    /// Sets a deadline for all requests of this client.
    pub(crate) fn with_deadline(self, deadline: Instant) -> Self {
        Self { http: self.http.with_deadline(deadline), ..self }
    }

    /// Sets the timeout of one request.
    pub(crate) fn with_request_timeout(self, timeout: std::time::Duration) -> Self {
        Self { http: self.http.with_request_timeout(timeout), ..self }
    }

    /// Gives this client the timeout of reading all pages of a list.
    pub(crate) fn with_list_timeout(self) -> Self {
        Self { http: self.http.with_list_timeout(), ..self }
    }

    /// Client for a workload that acts for a workspace, named by its identifier or namespace.
    pub(crate) fn for_workload(
        account: &AccountKey,
        ca: Option<&Path>,
        workload: &WorkloadIdentity,
        workspace: String,
        world: &World,
    ) -> Result<Self, Error> {
        let access = AccessTokenSource::Workload {
            workload: workload.clone(),
            workspace,
            token: Mutex::new(None),
        };
        Ok(Self {
            http: Http::new(account, ca)?,
            account: account.clone(),
            access,
            clock: world.clock.clone(),
            renews_session: true,
            version_warning: Mutex::default(),
        })
    }

    /// Returns the signed-in user.
    pub(crate) async fn me(&self) -> Result<Me, Error> {
        self.parse(&self.call(Method::GET, "/me", None).await?)
    }

    /// Returns the versions that the broker sends with its responses, if it sends any. The request
    /// is one that machines may send, too.
    pub(crate) async fn version(&self) -> Result<Option<BrokerVersion>, Error> {
        let response = self.call(Method::GET, "/workspaces?limit=1", None).await?;
        Ok(BrokerVersion::from_headers(response.headers()))
    }

    /// Lists the workspaces of this user.
    pub(crate) async fn own_workspaces(&self) -> Result<WorkspaceList, Error> {
        self.parse(&self.call(Method::GET, "/workspaces", None).await?)
    }

    /// Lists at most `limit` workspaces: of this user, or of all users for an administrator.
    pub(crate) async fn workspaces(&self, all: bool, limit: u32) -> Result<Page<Workspace>, Error> {
        let all: &[_] = if all { &[("all", "true")] } else { &[] };
        self.list("/workspaces", all, limit).await
    }

    /// Looks up the workspaces of this name that this user may see.
    pub(crate) async fn workspaces_named(&self, name: &Name) -> Result<WorkspaceList, Error> {
        self.parse(&self.call(Method::GET, &lookup_path("/workspaces", name), None).await?)
    }

    /// Looks up the user of this name, for an administrator.
    pub(crate) async fn user_named(&self, name: &Name) -> Result<UserInfo, Error> {
        self.parse(&self.call(Method::GET, &lookup_path("/users", name), None).await?)
    }

    /// Returns one workspace.
    pub(crate) async fn workspace(&self, id: Uuid) -> Result<Workspace, Error> {
        parse_json(
            &self.account.broker,
            &self.call(Method::GET, &format!("/workspaces/{id}"), None).await?,
        )
    }

    /// Suspends or resumes a workspace; `verb` is `suspend` or `resume`.
    pub(crate) async fn set_workspace(
        &self,
        id: Uuid,
        verb: &str,
        reason: Option<&str>,
    ) -> Result<Suspension, Error> {
        self.post_reason(&format!("/workspaces/{id}/{verb}"), reason).await
    }

    /// Creates this user's workspace, or returns the existing one.
    pub(crate) async fn init(&self, tier: &str) -> Result<Workspace, Error> {
        let body = json_body(&InitRequest { tier: tier.to_owned() })?;
        self.parse(&self.call(Method::POST, "/workspaces/init", Some(body)).await?)
    }

    /// Downloads the kubeconfig document, YAML: of this workspace, or of the user's own one.
    pub(crate) async fn kubeconfig(
        &self,
        mode: Mode,
        workspace: Option<Uuid>,
    ) -> Result<SecretString, Error> {
        let mode = match mode {
            Mode::Exec => "exec",
            Mode::Static => "static",
            Mode::Gateway => "gateway",
        };
        let workspace = workspace.map(|id| format!("&workspace={id}")).unwrap_or_default();
        let path = format!("/workspaces/credentials/kubeconfig?mode={mode}{workspace}");
        let response = self.call(Method::GET, &path, None).await?;
        let text = String::from_utf8(response.into_body()).ok();
        // The document goes to a terminal or into a file unchanged.
        let text = text.filter(|text| output::sanitize_lines(text) == *text);
        text.map(SecretString::from).ok_or_else(|| {
            let broker = &self.account.broker;
            Error::unreachable(format!(
                "the kubeconfig from {broker} is not text, or has control characters; it was not used"
            ))
        })
    }

    /// Issues a Kubernetes token for a workspace; the response has the headers.
    pub(crate) async fn credential(
        &self,
        workspace: Uuid,
    ) -> Result<(Credential, Response), Error> {
        let path = format!("/workspaces/{workspace}/credentials");
        let response = self.call(Method::POST, &path, None).await?;
        let credential: Credential = self.parse(&response)?;
        if !credential.token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let broker = &self.account.broker;
            return Err(Error::unreachable(format!(
                "the token from {broker} has invalid characters; it was not used"
            )));
        }
        Ok((credential, response))
    }

    /// Returns the gateway usage of a workspace in the last days.
    pub(crate) async fn usage(&self, workspace: Uuid, days: u32) -> Result<Usage, Error> {
        let path = format!("/workspaces/{workspace}/usage?days={days}");
        self.parse(&self.call(Method::GET, &path, None).await?)
    }

    /// Lists at most `limit` credentials of a workspace, newest first; with `all` also those that
    /// ended.
    pub(crate) async fn credentials(
        &self,
        workspace: Uuid,
        all: bool,
        limit: u32,
    ) -> Result<Page<CredentialInfo>, Error> {
        let all = if all { "true" } else { "false" };
        self.list(&format!("/workspaces/{workspace}/credentials"), &[("all", all)], limit).await
    }

    /// Lists at most `limit` rows of the audit trail, newest first: of one workspace or of all that
    /// this user may see, of one action or of all.
    pub(crate) async fn audit(
        &self,
        workspace: Option<Uuid>,
        action: Option<&str>,
        limit: u32,
    ) -> Result<Page<AuditEntry>, Error> {
        let workspace = workspace.map(|id| id.to_string());
        let mut query = Vec::new();
        query.extend(workspace.iter().map(|id| ("workspace_id", &**id)));
        query.extend(action.map(|action| ("action", action)));
        self.list("/audit-logs", &query, limit).await
    }

    /// Revokes a credential of a workspace.
    pub(crate) async fn revoke_credential(
        &self,
        workspace: Uuid,
        id: &CredentialId,
        reason: Option<&str>,
    ) -> Result<Revocation, Error> {
        let query = reason.map(|reason| {
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            format!("?{}", query.append_pair("reason", reason).finish())
        });
        // An id has no character that has to be escaped in a path.
        let path = format!("/workspaces/{workspace}/credentials/{id}{}", query.unwrap_or_default());
        self.parse(&self.call(Method::DELETE, &path, None).await?)
    }

    /// Lists at most `limit` sessions of this user or of another one.
    pub(crate) async fn sessions(
        &self,
        user: Option<Uuid>,
        limit: u32,
    ) -> Result<Page<SessionInfo>, Error> {
        let path = user.map(|id| format!("/users/{id}/sessions"));
        self.list(path.as_deref().unwrap_or("/me/sessions"), &[], limit).await
    }

    /// Revokes one session or all sessions of another user, for an administrator.
    pub(crate) async fn end_sessions_of(
        &self,
        user: Uuid,
        session: Option<Uuid>,
    ) -> Result<EndedSessions, Error> {
        let session = session.map(|id| format!("?session_id={id}")).unwrap_or_default();
        let path = format!("/users/{user}/sessions{session}");
        self.parse(&self.call(Method::DELETE, &path, None).await?)
    }

    /// Revokes one session of this user.
    pub(crate) async fn end_session(&self, id: Uuid) -> Result<(), Error> {
        self.call(Method::DELETE, &format!("/me/sessions/{id}"), None).await.map(drop)
    }

    /// Revokes every session of this user, or all but the current one.
    pub(crate) async fn end_sessions(&self, keep_current: bool) -> Result<EndedSessions, Error> {
        let path = format!("/me/sessions?keep_current={keep_current}");
        self.parse(&self.call(Method::DELETE, &path, None).await?)
    }

    /// Lists at most `limit` users by e-mail address, for an administrator.
    pub(crate) async fn users(&self, limit: u32) -> Result<Page<UserInfo>, Error> {
        self.list("/users", &[], limit).await
    }

    /// Lists at most `limit` items, page by page.
    async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        fixed: &[(&str, &str)],
        limit: u32,
    ) -> Result<Page<T>, Error> {
        let limit = limit as usize;
        let mut all = Page { items: Vec::new(), next_cursor: None, more: false };
        for _ in 0..MAX_PAGES {
            let page_size = MAX_PAGE_SIZE.min(limit - all.items.len()).to_string();
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            query.append_pair("limit", &page_size).extend_pairs(fixed);
            if let Some(cursor) = &all.next_cursor {
                query.append_pair("cursor", cursor);
            }
            let path = format!("{path}?{}", query.finish());
            let page: Page<T> = self.parse(&self.call(Method::GET, &path, None).await?)?;
            all.items.extend(page.items);
            all.next_cursor = page.next_cursor;
            if all.next_cursor.is_none() || all.items.len() >= limit {
                // An older broker ignores the limit.
                all.more = all.next_cursor.is_some() || all.items.len() > limit;
                all.items.truncate(limit);
                return Ok(all);
            }
        }
        Err(Error::unreachable(format!(
            "{} returned more than {MAX_PAGES} pages of {path}",
            self.account.broker
        )))
    }

    /// Suspends a user and their workspaces.
    pub(crate) async fn suspend_user(
        &self,
        id: Uuid,
        reason: Option<&str>,
    ) -> Result<UserSuspension, Error> {
        self.post_reason(&format!("/users/{id}/suspend"), reason).await
    }

    /// Resumes a suspended user.
    pub(crate) async fn resume_user(
        &self,
        id: Uuid,
        reason: Option<&str>,
    ) -> Result<UserInfo, Error> {
        self.post_reason(&format!("/users/{id}/resume"), reason).await
    }

    /// Changes a user's e-mail address; without `email` to a placeholder that nobody owns.
    pub(crate) async fn change_email(
        &self,
        id: Uuid,
        email: Option<&str>,
        reason: Option<&str>,
    ) -> Result<UserInfo, Error> {
        let (email, reason) = (email.map(str::to_owned), reason.map(str::to_owned));
        let body = json_body(&ChangeEmailRequest { email, reason })?;
        self.parse(&self.call(Method::POST, &format!("/users/{id}/email"), Some(body)).await?)
    }

    /// The groups of a user for Tenants.
    pub(crate) async fn groups(&self, id: Uuid) -> Result<UserGroups, Error> {
        self.parse(&self.call(Method::GET, &format!("/users/{id}/groups"), None).await?)
    }

    /// Replaces the groups of a user with a local account.
    pub(crate) async fn set_groups(
        &self,
        id: Uuid,
        groups: &[String],
        reason: Option<&str>,
    ) -> Result<UserGroups, Error> {
        let (groups, reason) = (Some(groups.to_vec()), reason.map(str::to_owned));
        let body = json_body(&SetGroupsRequest { groups, reason })?;
        self.parse(&self.call(Method::POST, &format!("/users/{id}/groups"), Some(body)).await?)
    }

    /// Posts the reason of an administrator's decision.
    pub(crate) async fn post_reason<T: DeserializeOwned>(
        &self,
        path: &str,
        reason: Option<&str>,
    ) -> Result<T, Error> {
        let body = json_body(&SuspendRequest { reason: reason.map(str::to_owned) })?;
        self.parse(&self.call(Method::POST, path, Some(body)).await?)
    }

    /// Parses the body of a response of the API.
    pub(crate) fn parse<T: DeserializeOwned>(&self, response: &Response) -> Result<T, Error> {
        let value = parse_json(&self.account.broker, response)?;
        self.warn_of_versions(response);
        Ok(value)
    }

    /// Sends one API call. Renews an access token that the broker rejects once.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Response, Error> {
        self.call_at(method, &format!("/api/v1{path}"), body, |response| {
            if response.status().is_success() {
                Ok(response)
            } else {
                Err(self.http.refusal(&response))
            }
        })
        .await
    }

    /// Sends one request to a path of the broker. `accept` turns a response that is a refusal into
    /// its error; after an error that asks for a sign-in the access token is renewed, once.
    pub(crate) async fn call_at(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        accept: impl Fn(Response) -> Result<Response, Error>,
    ) -> Result<Response, Error> {
        let access = self.access_token(None).await?.token;
        match self.send(&method, path, body.clone(), &access).await.and_then(&accept) {
            Err(error) if error.kind == Kind::SignIn => {
                let access = self.access_token(Some(&access)).await?.token;
                self.send(&method, path, body, &access)
                    .await
                    .and_then(&accept)
                    .map_err(|error| self.without_sign_in(error))
            }
            other => other,
        }
    }

    /// Turns a sign-in error of a workload into a refusal, because a workload cannot sign in.
    fn without_sign_in(&self, error: Error) -> Error {
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
        let gone = || Error::sign_in(&self.account, "there is no session on this machine any more");
        let endpoint = endpoint.ok_or_else(gone)?;
        oidc::exchange_for_gateway_token(&self.http, &endpoint, access, &self.clock).await
    }

    /// Returns an access token that differs from the one that was just rejected.
    async fn access_token(&self, rejected: Option<&SecretString>) -> Result<AccessToken, Error> {
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

    async fn send(
        &self,
        method: &Method,
        path: &str,
        body: Option<Vec<u8>>,
        access: &SecretString,
    ) -> Result<Response, Error> {
        let malformed =
            |error: http::Error| Error::other(format!("cannot build a request: {error}"));
        let mut bearer =
            header::HeaderValue::try_from(format!("Bearer {}", access.expose_secret()))
                .map_err(|_| Error::sign_in(&self.account, "the stored session is malformed"))?;
        bearer.set_sensitive(true);
        let mut request = Request::builder()
            .method(method)
            .uri(self.account.broker.join(path))
            .header(header::AUTHORIZATION, bearer);
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(body.unwrap_or_default()).map_err(malformed)?;
        self.http.send(request).await.map_err(|RequestError(error)| error)
    }

    /// Warns of versions that do not work together, once. Errors have the same text as their hint.
    fn warn_of_versions(&self, response: &Response) {
        let Some(advice) = compatibility::advice(response.headers(), &self.account.broker) else {
            return;
        };
        let mut warning = self.version_warning.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(messages) = warning.take() {
            messages.say(format!("warning: {advice}"));
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
            return Err(Error::sign_in(&self.account, "there is no session on this machine"));
        }
        if let Some(session) = usable() {
            return Ok(session.access);
        }
        if !self.renews_session {
            return Err(Error::sign_in(&self.account, "the access token has expired"));
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
        let gone = || Error::sign_in(&self.account, "there is no session on this machine any more");
        // The successor needs a file before the old refresh token is used up.
        let mut pending = sessions.prepare()?;
        let mut session = sessions.read()?.ok_or_else(gone)?;
        let mut raced = false;
        loop {
            let refresh_token = sessions.refresh_token(&session)?.ok_or_else(|| {
                Error::sign_in(
                    &self.account,
                    match session.storage {
                        Storage::None => {
                            "the last sign-in is over, and --storage none keeps nothing"
                        }
                        _ => "the session's refresh token is no longer in its storage",
                    },
                )
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
                        sessions.remove()?;
                        return Err(Error::sign_in(&self.account, why));
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

/// Path of a lookup by name.
fn lookup_path(list: &str, name: &Name) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    format!("{list}/lookup?{}", query.append_pair("name", &name.to_string()).finish())
}

/// Renders the body of a request.
pub(crate) fn json_body(request: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(request)
        .map_err(|error| Error::other(format!("cannot write the request: {error}")))
}

fn parse_json<T: DeserializeOwned>(url: &BrokerUrl, response: &Response) -> Result<T, Error> {
    serde_json::from_slice(response.body()).map_err(|error| {
        let advice = compatibility::advice(response.headers(), url).unwrap_or_else(|| {
            "the broker and kubectl-tenant may be of different versions: kubectl tenant version"
                .to_owned()
        });
        // Only the position of the fault, because the body may contain a token.
        Error::unreachable(format!(
            "{url} sent a response that cannot be read (line {}, column {})",
            error.line(),
            error.column()
        ))
        .hint(advice)
    })
}
