//! Client for the broker's API: one method for each call, authenticated with an access token.
//!
//! | file | responsibility |
//! |---|---|
//! | `access_token` | access tokens: renewal of the session, exchange of a workload's token |
//! | `page` | lists |
//! | `workspaces`, `users`, `audit` | the calls |

mod access_token;
mod audit;
mod page;
mod users;
mod workspaces;

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
};

use http::{Method, Request, header};
use secrecy::{ExposeSecret, SecretString};
use serde::{Serialize, de::DeserializeOwned};
use tenant_shared::{Name, SuspendRequest};
use tokio::time::Instant;

use self::access_token::AccessTokenSource;
pub(crate) use self::{page::Page, workspaces::Mode};
use crate::{
    account_key::AccountKey,
    broker_url::BrokerUrl,
    compatibility::{self, BrokerVersion},
    error::{Error, Kind},
    http::{Http, RequestError, Response},
    paths::Paths,
    store::SessionStore,
    workload_identity::WorkloadIdentity,
    world::{Clock, Messages, World},
};

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

    /// Sets the maximum size of a response body, in bytes.
    pub(crate) fn with_max_body(self, bytes: usize) -> Self {
        Self { http: self.http.with_max_body(bytes), ..self }
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

    /// Returns the versions that the broker sends with its responses, if it sends any. The request
    /// is one that machines may send, too.
    pub(crate) async fn version(&self) -> Result<Option<BrokerVersion>, Error> {
        let response = self.call(Method::GET, "/workspaces?limit=1", None).await?;
        Ok(BrokerVersion::from_headers(response.headers()))
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
        let path = format!("/api/v1{path}");
        self.call_at(method, &path, body, |response| {
            if response.status().is_success() {
                Ok(response)
            } else {
                Err(self.http.refusal_at(&path, &response))
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
                .map_err(|_| self.account.sign_in_error("the stored session is malformed"))?;
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
            messages.print_message(format!("warning: {advice}"));
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
