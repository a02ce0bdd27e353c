//! The broker's API as calls, each with the session's access token.

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
};

use http::{Method, Request, header};
use secrecy::{ExposeSecret, SecretString};
use serde::{Serialize, de::DeserializeOwned};
use tenant_shared::{
    AuditEntry, ChangeEmailRequest, Credential, CredentialId, CredentialInfo, EndedSessions,
    InitRequest, Me, Name, Revocation, SessionInfo, SuspendRequest, Suspension, Usage, UserInfo,
    UserSuspension, Workspace, WorkspaceList,
};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    broker_url::BrokerUrl,
    error::{Error, Kind},
    http::{Answer, Failure, Http},
    identity::Identity,
    lock::{self, Outcome},
    machine::Machine,
    oidc::{self, Issuer, Renewal},
    output,
    paths::Paths,
    store::{AccessToken, PATIENCE, Session, Sessions, Storage},
    world::{Clock, World},
};

/// Most pages of a list that are read.
const MOST_PAGES: usize = 1000;

/// Page of a page that is asked for, at most: what every list of the broker takes.
const MOST_OF_A_PAGE: usize = 500;

/// A page of a list, or what several pages have together.
#[derive(serde::Deserialize)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    /// Where the list goes on, if it does.
    #[serde(default)]
    pub(crate) next_cursor: Option<String>,
    /// Whether the list goes on, also at a broker of an earlier version that has no cursor.
    #[serde(skip)]
    pub(crate) more: bool,
}

/// What a kubeconfig document of the broker carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// The call of this plugin: renews itself.
    Exec,
    /// A token of two hours, in the file.
    Static,
    /// The call of this plugin, for the broker's gateway instead of the API server.
    Gateway,
}

/// A broker and the session with it.
pub(crate) struct Broker {
    pub(crate) http: Http,
    identity: Identity,
    access: Access,
    clock: Clock,
}

/// Where access tokens come from.
enum Access {
    /// The session of a person.
    Session(Sessions),
    /// A machine's own token, exchanged for each process anew.
    Machine {
        machine: Machine,
        workspace: String,
        /// What the last exchange brought.
        token: Mutex<Option<AccessToken>>,
    },
}

impl Broker {
    pub(crate) fn new(
        identity: &Identity,
        ca: Option<&Path>,
        paths: &Paths,
        world: &World,
    ) -> Result<Self, Error> {
        Ok(Self {
            http: Http::new(identity, ca)?,
            identity: identity.clone(),
            access: Access::Session(Sessions::new(paths, identity, world)),
            clock: world.clock.clone(),
        })
    }

    /// The same with an end to everything that is asked of it.
    pub(crate) fn until(self, deadline: Instant) -> Self {
        Self { http: self.http.until(deadline), ..self }
    }

    /// The same with the time that all pages of a list may take.
    pub(crate) fn for_a_list(self) -> Self {
        Self { http: self.http.for_a_list(), ..self }
    }

    /// For a machine that acts for a workspace, named by its identifier or namespace.
    pub(crate) fn of_machine(
        identity: &Identity,
        ca: Option<&Path>,
        machine: &Machine,
        workspace: String,
        world: &World,
    ) -> Result<Self, Error> {
        let access =
            Access::Machine { machine: machine.clone(), workspace, token: Mutex::new(None) };
        let http = Http::new(identity, ca)?;
        Ok(Self { http, identity: identity.clone(), access, clock: world.clock.clone() })
    }

    /// Who is signed in.
    pub(crate) async fn me(&self) -> Result<Me, Error> {
        self.read(&self.call(Method::GET, "/me", None).await?)
    }

    /// The workspaces of this person.
    pub(crate) async fn own_workspaces(&self) -> Result<WorkspaceList, Error> {
        self.read(&self.call(Method::GET, "/workspaces", None).await?)
    }

    /// The workspaces of this person, or of everybody for an administrator, at most so many.
    pub(crate) async fn workspaces(&self, all: bool, most: u32) -> Result<Page<Workspace>, Error> {
        let all: &[_] = if all { &[("all", "true")] } else { &[] };
        self.items("/workspaces", all, most).await
    }

    /// The workspaces of this name that this person may see.
    pub(crate) async fn workspaces_named(&self, name: &Name) -> Result<WorkspaceList, Error> {
        self.read(&self.call(Method::GET, &lookup("/workspaces", name), None).await?)
    }

    /// The user of this name, for an administrator.
    pub(crate) async fn user_named(&self, name: &Name) -> Result<UserInfo, Error> {
        self.read(&self.call(Method::GET, &lookup("/users", name), None).await?)
    }

    /// One workspace.
    pub(crate) async fn workspace(&self, id: Uuid) -> Result<Workspace, Error> {
        read(
            &self.identity.broker,
            &self.call(Method::GET, &format!("/workspaces/{id}"), None).await?,
        )
    }

    /// Suspends a workspace, or resumes it.
    pub(crate) async fn set_workspace(
        &self,
        id: Uuid,
        verb: &str,
        reason: Option<&str>,
    ) -> Result<Suspension, Error> {
        self.set(&format!("/workspaces/{id}/{verb}"), reason).await
    }

    /// Makes this person's workspace, or finds it made.
    pub(crate) async fn init(&self, tier: &str) -> Result<Workspace, Error> {
        let body = body(&InitRequest { tier: tier.to_owned() })?;
        self.read(&self.call(Method::POST, "/workspaces/init", Some(body)).await?)
    }

    /// The kubeconfig document, YAML.
    pub(crate) async fn kubeconfig(&self, mode: Mode) -> Result<SecretString, Error> {
        let mode = match mode {
            Mode::Exec => "exec",
            Mode::Static => "static",
            Mode::Gateway => "gateway",
        };
        let path = format!("/workspaces/credentials/kubeconfig?mode={mode}");
        let answer = self.call(Method::GET, &path, None).await?;
        let text = String::from_utf8(answer.into_body()).ok();
        // It goes to a terminal or into a file as it is.
        let text = text.filter(|text| output::lines(text) == *text);
        text.map(SecretString::from).ok_or_else(|| {
            let broker = &self.identity.broker;
            Error::unreachable(format!(
                "the kubeconfig of {broker} is no text, or has control characters; it was not used"
            ))
        })
    }

    /// A Kubernetes token for a workspace, and the answer's header.
    pub(crate) async fn credential(&self, workspace: Uuid) -> Result<(Credential, Answer), Error> {
        let path = format!("/workspaces/{workspace}/credentials");
        let answer = self.call(Method::POST, &path, None).await?;
        let credential: Credential = self.read(&answer)?;
        if !credential.token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let broker = &self.identity.broker;
            return Err(Error::unreachable(format!(
                "the token of {broker} has characters that no token has; it was not used"
            )));
        }
        Ok((credential, answer))
    }

    /// What a workspace used of the gateway in the last days.
    pub(crate) async fn usage(&self, workspace: Uuid, days: u32) -> Result<Usage, Error> {
        let path = format!("/workspaces/{workspace}/usage?days={days}");
        self.read(&self.call(Method::GET, &path, None).await?)
    }

    /// What was issued for a workspace, newest first, at most so many; what is over only with `all`.
    pub(crate) async fn credentials(
        &self,
        workspace: Uuid,
        all: bool,
        most: u32,
    ) -> Result<Page<CredentialInfo>, Error> {
        let all = if all { "true" } else { "false" };
        self.items(&format!("/workspaces/{workspace}/credentials"), &[("all", all)], most).await
    }

    /// Rows of the audit trail, newest first, at most so many: of one workspace or all that this
    /// person may see, of one action or all.
    pub(crate) async fn audit(
        &self,
        workspace: Option<Uuid>,
        action: Option<&str>,
        most: u32,
    ) -> Result<Page<AuditEntry>, Error> {
        let workspace = workspace.map(|id| id.to_string());
        let mut query = Vec::new();
        query.extend(workspace.iter().map(|id| ("workspace_id", &**id)));
        query.extend(action.map(|action| ("action", action)));
        self.items("/audit-logs", &query, most).await
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
        // An id has no character that a path would have to escape.
        let path = format!("/workspaces/{workspace}/credentials/{id}{}", query.unwrap_or_default());
        self.read(&self.call(Method::DELETE, &path, None).await?)
    }

    /// Where this person is signed in, or another one, at most so many sessions.
    pub(crate) async fn sessions(
        &self,
        user: Option<Uuid>,
        most: u32,
    ) -> Result<Page<SessionInfo>, Error> {
        let path = user.map(|id| format!("/users/{id}/sessions"));
        self.items(path.as_deref().unwrap_or("/me/sessions"), &[], most).await
    }

    /// Ends one session of another person, or all, for an administrator.
    pub(crate) async fn end_sessions_of(
        &self,
        user: Uuid,
        session: Option<Uuid>,
    ) -> Result<EndedSessions, Error> {
        let session = session.map(|id| format!("?session_id={id}")).unwrap_or_default();
        let path = format!("/users/{user}/sessions{session}");
        self.read(&self.call(Method::DELETE, &path, None).await?)
    }

    /// Ends one session of this person.
    pub(crate) async fn end_session(&self, id: Uuid) -> Result<(), Error> {
        self.call(Method::DELETE, &format!("/me/sessions/{id}"), None).await.map(drop)
    }

    /// Ends every session of this person, or all but the one that asks.
    pub(crate) async fn end_sessions(&self, keep_current: bool) -> Result<EndedSessions, Error> {
        let path = format!("/me/sessions?keep_current={keep_current}");
        self.read(&self.call(Method::DELETE, &path, None).await?)
    }

    /// Users by address, for an administrator, at most so many.
    pub(crate) async fn users(&self, most: u32) -> Result<Page<UserInfo>, Error> {
        self.items("/users", &[], most).await
    }

    /// The items of a list, page by page, at most so many.
    async fn items<T: DeserializeOwned>(
        &self,
        path: &str,
        fixed: &[(&str, &str)],
        most: u32,
    ) -> Result<Page<T>, Error> {
        let most = most as usize;
        let mut all = Page { items: Vec::new(), next_cursor: None, more: false };
        for _ in 0..MOST_PAGES {
            let limit = MOST_OF_A_PAGE.min(most - all.items.len()).to_string();
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            query.append_pair("limit", &limit).extend_pairs(fixed);
            if let Some(cursor) = &all.next_cursor {
                query.append_pair("cursor", cursor);
            }
            let path = format!("{path}?{}", query.finish());
            let page: Page<T> = self.read(&self.call(Method::GET, &path, None).await?)?;
            all.items.extend(page.items);
            all.next_cursor = page.next_cursor;
            if all.next_cursor.is_none() || all.items.len() >= most {
                // A broker of an earlier version knows no limit.
                all.more = all.next_cursor.is_some() || all.items.len() > most;
                all.items.truncate(most);
                return Ok(all);
            }
        }
        Err(Error::unreachable(format!(
            "{} gives more than {MOST_PAGES} pages of {path}",
            self.identity.broker
        )))
    }

    /// Keeps a user out, and suspends their workspaces.
    pub(crate) async fn suspend_user(
        &self,
        id: Uuid,
        reason: Option<&str>,
    ) -> Result<UserSuspension, Error> {
        self.set(&format!("/users/{id}/suspend"), reason).await
    }

    /// Lets a user in again.
    pub(crate) async fn resume_user(
        &self,
        id: Uuid,
        reason: Option<&str>,
    ) -> Result<UserInfo, Error> {
        self.set(&format!("/users/{id}/resume"), reason).await
    }

    /// Gives a user another address; without one, an address that is nobody's.
    pub(crate) async fn change_email(
        &self,
        id: Uuid,
        email: Option<&str>,
        reason: Option<&str>,
    ) -> Result<UserInfo, Error> {
        let (email, reason) = (email.map(str::to_owned), reason.map(str::to_owned));
        let body = body(&ChangeEmailRequest { email, reason })?;
        self.read(&self.call(Method::POST, &format!("/users/{id}/email"), Some(body)).await?)
    }

    async fn set<T: DeserializeOwned>(&self, path: &str, reason: Option<&str>) -> Result<T, Error> {
        let body = body(&SuspendRequest { reason: reason.map(str::to_owned) })?;
        self.read(&self.call(Method::POST, path, Some(body)).await?)
    }

    fn read<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T, Error> {
        read(&self.identity.broker, answer)
    }

    /// One call. An access token that the broker does not take is renewed once.
    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Answer, Error> {
        let access = self.access(None).await?.token;
        match self.send(&method, path, body.clone(), &access).await {
            Err(error) if error.kind == Kind::SignIn => {
                let access = self.access(Some(&access)).await?.token;
                self.send(&method, path, body, &access).await.map_err(|error| self.final_no(error))
            }
            other => other,
        }
    }

    /// A machine cannot sign in: what would send a person there is a plain no.
    fn final_no(&self, error: Error) -> Error {
        match (&self.access, error.kind) {
            (Access::Machine { .. }, Kind::SignIn) => Error::refused(format!(
                "{} does not take what it gave for the OIDC token of this machine",
                self.identity.broker
            ))
            .hint(error.hint.unwrap_or_default()),
            _ => error,
        }
    }

    /// A new token that is good for the gateway only. kubectl gets no other token of the session,
    /// because whoever reaches a `kubectl proxy` uses it as well.
    pub(crate) async fn gateway_token(&self) -> Result<AccessToken, Error> {
        let access = self.access(None).await?.token;
        if let Some(token) = self.exchange(&access).await? {
            return Ok(token);
        }
        let access = self.access(Some(&access)).await?.token;
        self.exchange(&access).await?.ok_or_else(|| {
            Error::refused(format!("{} gives no token for its gateway", self.identity.broker))
                .hint("sign in again with `kubectl tenant login`")
        })
    }

    async fn exchange(&self, access: &SecretString) -> Result<Option<AccessToken>, Error> {
        let endpoint = match &self.access {
            Access::Session(sessions) => sessions.read()?.map(|session| session.token_endpoint),
            Access::Machine { .. } => {
                let issuer = Issuer::discover(&self.http, &self.identity.broker).await?;
                Some(issuer.endpoints()?.0)
            }
        };
        let gone =
            || Error::sign_in(&self.identity, "there is no session on this machine any more");
        let endpoint = endpoint.ok_or_else(gone)?;
        oidc::gateway_token(&self.http, &endpoint, access, &self.clock).await
    }

    /// An access token that is not the one that was just refused.
    async fn access(&self, refused: Option<&SecretString>) -> Result<AccessToken, Error> {
        match &self.access {
            Access::Session(sessions) => self.of_session(sessions, refused).await,
            Access::Machine { machine, workspace, token } => {
                let known = token.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if let (Some(known), None) = (known, refused) {
                    return Ok(known);
                }
                let issuer = Issuer::discover(&self.http, &self.identity.broker).await?;
                let new = issuer.exchange(&machine.token()?, workspace, &self.clock).await?;
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
    ) -> Result<Answer, Error> {
        let malformed =
            |error: http::Error| Error::other(format!("cannot form a request: {error}"));
        let mut bearer =
            header::HeaderValue::try_from(format!("Bearer {}", access.expose_secret()))
                .map_err(|_| Error::sign_in(&self.identity, "the stored session is malformed"))?;
        bearer.set_sensitive(true);
        let mut request = Request::builder()
            .method(method)
            .uri(self.identity.broker.join(&format!("/api/v1{path}")))
            .header(header::AUTHORIZATION, bearer);
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(body.unwrap_or_default()).map_err(malformed)?;
        let answer = self.http.send(request).await.map_err(|Failure(error)| error)?;
        if answer.status().is_success() { Ok(answer) } else { Err(self.http.refusal(&answer)) }
    }

    /// An access token that is good by its time, and is not the one that was just refused.
    ///
    /// The refresh token works once: using it is a matter of one process at a time, which looks
    /// again after it got the lock, because the one before it may have done the work.
    async fn of_session(
        &self,
        sessions: &Sessions,
        refused: Option<&SecretString>,
    ) -> Result<AccessToken, Error> {
        let is_good = |session: &Session| {
            session.access.is_good(self.clock.now())
                && refused.is_none_or(|refused| {
                    refused.expose_secret() != session.access.token.expose_secret()
                })
        };
        let good = || sessions.read().ok().flatten().filter(|session| is_good(session));
        if sessions.read()?.is_none() {
            return Err(Error::sign_in(&self.identity, "there is no session on this machine"));
        }
        if let Some(session) = good() {
            return Ok(session.access);
        }
        let path = sessions.lock_path();
        let _lock = match lock::acquire(path, self.http.time_left(), good).await? {
            Outcome::Held(lock) => lock,
            Outcome::Answered(session) => return Ok(session.access),
            Outcome::Busy(who) => {
                return Err(Error::other(format!(
                    "another kubectl-tenant is renewing the session and does not finish (lock {who})"
                ))
                .hint("end that process, then try again"));
            }
        };
        if let Some(session) = good() {
            return Ok(session.access);
        }
        self.renew(sessions).await
    }

    /// Renews the session. The caller holds the lock.
    async fn renew(&self, sessions: &Sessions) -> Result<AccessToken, Error> {
        let gone =
            || Error::sign_in(&self.identity, "there is no session on this machine any more");
        // Before the old refresh token is used up there must be a place for its successor.
        let mut pending = sessions.prepare()?;
        let mut session = sessions.read()?.ok_or_else(gone)?;
        let mut raced = false;
        loop {
            let refresh_token = sessions.refresh_token(&session)?.ok_or_else(|| {
                Error::sign_in(
                    &self.identity,
                    match session.storage {
                        Storage::None => {
                            "the last sign-in is over, and --storage none keeps nothing"
                        }
                        _ => "the session's secret is gone from where it was kept",
                    },
                )
            })?;
            let renewal = oidc::refresh(
                &self.http,
                &self.identity.broker,
                &session.token_endpoint,
                &refresh_token,
                &self.clock,
            );
            match renewal.await? {
                Renewal::Tokens(access, successor) => {
                    session.access = access;
                    match successor {
                        Some(successor) => {
                            let how = (PATIENCE, true);
                            sessions.save(pending, &mut session, &successor, how)?;
                        }
                        None => pending.write(&session)?,
                    }
                    return Ok(session.access);
                }
                Renewal::Ended(why) => {
                    // Where locks do not work another process may have been faster.
                    let again = sessions.read()?.ok_or_else(gone)?;
                    let same = sessions.refresh_token(&again)?.is_some_and(|again| {
                        again.expose_secret() == refresh_token.expose_secret()
                    });
                    if same || raced {
                        sessions.remove()?;
                        return Err(Error::sign_in(&self.identity, why));
                    }
                    if again.access.is_good(self.clock.now()) {
                        return Ok(again.access);
                    }
                    (session, raced) = (again, true);
                    pending = sessions.prepare()?;
                }
            }
        }
    }
}

/// The path of a lookup by name.
fn lookup(list: &str, name: &Name) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    format!("{list}/lookup?{}", query.append_pair("name", &name.to_string()).finish())
}

fn body(request: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(request)
        .map_err(|error| Error::other(format!("cannot write the request: {error}")))
}

fn read<T: DeserializeOwned>(url: &BrokerUrl, answer: &Answer) -> Result<T, Error> {
    serde_json::from_slice(answer.body()).map_err(|error| {
        // The position of the fault, never the body: it may hold a token.
        Error::unreachable(format!(
            "{url} gave an answer that cannot be read (line {}, column {})",
            error.line(),
            error.column()
        ))
        .hint("the broker and kubectl-tenant may be of different versions")
    })
}
