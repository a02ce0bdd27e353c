//! A client of the broker's HTTP API, as a frontend uses it.

use std::fmt;

use anyhow::{Context, Result};
use http::{HeaderMap, Method, StatusCode};
use reqwest::{Client, RequestBuilder, Response};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use tenant_shared::{
    ApplyTenantRequest, AuditPage, Code, CreateNamespaceRequest, CreateTenantRequest, Credential,
    CredentialPage, InitRequest, Me, Problem, Revocation, SuspendRequest, Suspension,
    TenantDeletion, TenantInfo, TenantList, TenantMemberList, TenantNamespace, TenantNamespaceList,
    TenantObject, TenantSuspension, TenantWrite, Usage, UserSuspension, Workspace, WorkspaceList,
};
use url::Url;
use uuid::Uuid;

use crate::http_client::{http_client, http1_client};

/// The API of one broker, called by one caller.
#[derive(Clone, Debug)]
pub struct Api {
    base: Url,
    http: Client,
    token: Option<SecretString>,
}

/// A response whose status is not a success.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The HTTP status.
    pub status: StatusCode,
    /// The response headers.
    pub headers: HeaderMap,
    /// The response body.
    pub body: String,
    /// The body, if it is problem details.
    pub problem: Option<Problem>,
}

impl Refused {
    /// The problem's code, [`Code::Unknown`] if there is none.
    pub fn code(&self) -> Code {
        self.problem.as_ref().map_or(Code::Unknown, Problem::code)
    }

    /// The seconds of `Retry-After`, if the answer has it.
    pub fn retry_after(&self) -> Option<u64> {
        self.headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.parse().ok()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the broker answers {}: {}", self.status, self.body)
    }
}

impl std::error::Error for Refused {}

/// The reason why a call returned no value: the broker refused, or its response is invalid.
#[derive(Debug)]
pub enum ApiError {
    /// The broker responded with an error status.
    Refused(Box<Refused>),
    /// There was no response, or it could not be parsed.
    Broken(anyhow::Error),
}

impl ApiError {
    /// Returns the refusal, if the error is one.
    pub fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Refused(refused) => Some(refused),
            Self::Broken(_) => None,
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::Broken(error) => write!(f, "{error:#}"),
        }
    }
}

impl std::error::Error for ApiError {}

impl Api {
    /// Returns a client of the broker at this URL that sends no token.
    ///
    /// # Errors
    /// The URL cannot be a base, or the CA is no certificate.
    pub fn anonymous(broker: &Url, authority: Option<&str>) -> Result<Self> {
        let base = broker.join("api/v1/").context("make the API's URL")?;
        Ok(Self { base, http: http_client(authority)?, token: None })
    }

    /// Returns the same client with this bearer token.
    #[must_use]
    pub fn with_token(mut self, token: SecretString) -> Self {
        self.token = Some(token);
        self
    }

    /// Returns the same caller at another broker, for example a replica.
    ///
    /// # Errors
    /// The URL cannot be a base.
    pub fn at(mut self, broker: &Url) -> Result<Self> {
        self.base = broker.join("api/v1/").context("make the API's URL")?;
        Ok(self)
    }

    /// Returns the same caller with a client for HTTP/1.1 alone, for example for upgrades.
    ///
    /// # Errors
    /// The CA is no certificate.
    pub fn with_http1(mut self, authority: Option<&str>) -> Result<Self> {
        self.http = http1_client(authority)?;
        Ok(self)
    }

    /// Builds a request for a path below `/api/v1/`, with the token.
    ///
    /// # Errors
    /// The path is invalid.
    pub fn request(&self, method: Method, path: &str) -> Result<RequestBuilder> {
        let url = self.base.join(path.trim_start_matches('/')).context("make a URL")?;
        let request = self.http.request(method, url);
        Ok(match &self.token {
            Some(token) => request.bearer_auth(token.expose_secret()),
            None => request,
        })
    }

    /// `POST /workspaces/init`: returns the workspace, and whether it is new (201) or existed
    /// (200).
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn init(&self, tier: &str) -> Result<(Workspace, bool), ApiError> {
        let body = InitRequest { tier: tier.to_owned() };
        let request = self.request(Method::POST, "workspaces/init").map_err(ApiError::Broken)?;
        let answer = send(request.json(&body)).await?;
        let is_new = answer.status() == StatusCode::CREATED;
        Ok((read(answer).await?, is_new))
    }

    /// `GET /workspaces`; `all` lists everybody's workspaces and needs an administrator.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn workspaces(&self, all: bool) -> Result<WorkspaceList, ApiError> {
        self.get(if all { "workspaces?all=true" } else { "workspaces" }).await
    }

    /// `GET /workspaces/{id}`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn workspace(&self, id: Uuid) -> Result<Workspace, ApiError> {
        self.get(&format!("workspaces/{id}")).await
    }

    /// `POST /workspaces/{id}/credentials`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn credential(&self, id: Uuid) -> Result<Credential, ApiError> {
        self.call(Method::POST, &format!("workspaces/{id}/credentials")).await
    }

    /// `GET /workspaces/{id}/usage`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn usage(&self, id: Uuid) -> Result<Usage, ApiError> {
        self.get(&format!("workspaces/{id}/usage")).await
    }

    /// `GET /workspaces/{id}/credentials` with this query, for example `all=true`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn credentials(&self, id: Uuid, query: &str) -> Result<CredentialPage, ApiError> {
        self.get(&format!("workspaces/{id}/credentials?{query}")).await
    }

    /// `DELETE /workspaces/{id}/credentials/{credential_id}`; the returned state tells whether the
    /// revocation is complete (200) or continues (202).
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn revoke(&self, id: Uuid, credential_id: &str) -> Result<Revocation, ApiError> {
        let path = format!("workspaces/{id}/credentials/{credential_id}?reason=test");
        self.call(Method::DELETE, &path).await
    }

    /// `GET /workspaces/credentials/kubeconfig`, mode `static` or `exec`: YAML.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn kubeconfig(&self, mode: &str) -> Result<String, ApiError> {
        let path = format!("workspaces/credentials/kubeconfig?mode={mode}");
        let answer = send(self.request(Method::GET, &path).map_err(ApiError::Broken)?).await?;
        answer.text().await.map_err(|error| ApiError::Broken(error.into()))
    }

    /// `POST /workspaces/{id}/suspend`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn suspend(&self, id: Uuid, body: &SuspendRequest) -> Result<Suspension, ApiError> {
        let path = format!("workspaces/{id}/suspend");
        let request = self.request(Method::POST, &path).map_err(ApiError::Broken)?;
        read(send(request.json(body)).await?).await
    }

    /// `POST /workspaces/{id}/resume`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn resume(&self, id: Uuid, body: &SuspendRequest) -> Result<Suspension, ApiError> {
        let path = format!("workspaces/{id}/resume");
        let request = self.request(Method::POST, &path).map_err(ApiError::Broken)?;
        read(send(request.json(body)).await?).await
    }

    /// `POST /users/{id}/suspend`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn suspend_user(
        &self,
        id: Uuid,
        body: &SuspendRequest,
    ) -> Result<UserSuspension, ApiError> {
        let request =
            self.request(Method::POST, &format!("users/{id}/suspend")).map_err(ApiError::Broken)?;
        read(send(request.json(body)).await?).await
    }

    /// `GET /tenants`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn tenants(&self) -> Result<TenantList, ApiError> {
        self.get("tenants").await
    }

    /// `GET /tenants/{name}`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn tenant(&self, name: &str) -> Result<TenantInfo, ApiError> {
        self.get(&format!("tenants/{name}")).await
    }

    /// `GET /tenants/{name}/members`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn tenant_members(&self, name: &str) -> Result<TenantMemberList, ApiError> {
        self.get(&format!("tenants/{name}/members")).await
    }

    /// `POST /tenants/{name}/members`: returns the membership, and whether it is new (201) or
    /// existed (200).
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn join_tenant(&self, name: &str) -> Result<(Workspace, bool), ApiError> {
        let path = format!("tenants/{name}/members");
        let answer = send(self.request(Method::POST, &path).map_err(ApiError::Broken)?).await?;
        let is_new = answer.status() == StatusCode::CREATED;
        Ok((read(answer).await?, is_new))
    }

    /// `GET /tenants/{name}/namespaces`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn tenant_namespaces(&self, name: &str) -> Result<TenantNamespaceList, ApiError> {
        self.get(&format!("tenants/{name}/namespaces")).await
    }

    /// `POST /tenants/{name}/namespaces`, without labels and annotations.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn create_tenant_namespace(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<TenantNamespace, ApiError> {
        let body =
            CreateNamespaceRequest { name: name.to_owned(), ..CreateNamespaceRequest::default() };
        let path = format!("tenants/{tenant}/namespaces");
        let request = self.request(Method::POST, &path).map_err(ApiError::Broken)?;
        read(send(request.json(&body)).await?).await
    }

    /// `POST /tenants/{name}/suspend`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn suspend_tenant(
        &self,
        name: &str,
        body: &SuspendRequest,
    ) -> Result<TenantSuspension, ApiError> {
        let path = format!("tenants/{name}/suspend");
        let request = self.request(Method::POST, &path).map_err(ApiError::Broken)?;
        read(send(request.json(body)).await?).await
    }

    /// `POST /tenants/{name}/resume`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn resume_tenant(
        &self,
        name: &str,
        body: &SuspendRequest,
    ) -> Result<TenantSuspension, ApiError> {
        let path = format!("tenants/{name}/resume");
        let request = self.request(Method::POST, &path).map_err(ApiError::Broken)?;
        read(send(request.json(body)).await?).await
    }

    /// `GET /tenants/{name}/spec`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn tenant_spec(&self, name: &str) -> Result<TenantObject, ApiError> {
        self.get(&format!("tenants/{name}/spec")).await
    }

    /// `POST /tenants` with this query, for example `dry_run=true`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn create_tenant(
        &self,
        body: &CreateTenantRequest,
        query: &str,
    ) -> Result<TenantWrite, ApiError> {
        let path = format!("tenants?{query}");
        let request = self.request(Method::POST, &path).map_err(ApiError::Broken)?;
        read(send(request.json(body)).await?).await
    }

    /// `PUT /tenants/{name}` with this query, for example `force=true`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn apply_tenant(
        &self,
        name: &str,
        body: &ApplyTenantRequest,
        query: &str,
    ) -> Result<TenantWrite, ApiError> {
        let path = format!("tenants/{name}?{query}");
        let request = self.request(Method::PUT, &path).map_err(ApiError::Broken)?;
        read(send(request.json(body)).await?).await
    }

    /// `DELETE /tenants/{name}` with this query, for example `namespaces=keep`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn delete_tenant(&self, name: &str, query: &str) -> Result<TenantDeletion, ApiError> {
        self.call(Method::DELETE, &format!("tenants/{name}?{query}")).await
    }

    /// `GET /me`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn me(&self) -> Result<Me, ApiError> {
        self.get("me").await
    }

    /// `GET /audit-logs` with this query, for example `action=IssueKubeconfig&limit=10`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn audit_logs(&self, query: &str) -> Result<AuditPage, ApiError> {
        self.get(&format!("audit-logs?{query}")).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        self.call(Method::GET, path).await
    }

    async fn call<T: DeserializeOwned>(&self, method: Method, path: &str) -> Result<T, ApiError> {
        read(send(self.request(method, path).map_err(ApiError::Broken)?).await?).await
    }
}

async fn send(request: RequestBuilder) -> Result<Response, ApiError> {
    let answer = request.send().await.map_err(|error| ApiError::Broken(error.into()))?;
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let headers = answer.headers().clone();
    let body = answer.text().await.map_err(|error| ApiError::Broken(error.into()))?;
    let problem = serde_json::from_str(&body).ok();
    Err(ApiError::Refused(Box::new(Refused { status, headers, body, problem })))
}

async fn read<T: DeserializeOwned>(answer: Response) -> Result<T, ApiError> {
    answer.json().await.map_err(|error| ApiError::Broken(error.into()))
}
