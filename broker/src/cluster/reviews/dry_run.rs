//! Checks of the broker's permissions without side effects: access reviews and dry runs.

use http::{Method, Request};
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        authorization::v1::{
            ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
        },
        core::v1::{Namespace, ServiceAccount},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{ListParams, PostParams},
    core::Status,
};
use serde::Deserialize;
use tenant_shared::{SERVICE_ACCOUNT_NAME, SUSPENDED_LABEL, WORKSPACE_LABEL};

use crate::cluster::{Cluster, ClusterError};

/// The limit of a response body in bytes; no response here is as large.
const MAX_BYTES: usize = 256 * 1024;

/// An access to check (`SelfSubjectAccessReview`).
#[derive(Clone, Copy, Debug, Default)]
pub struct AccessReview<'a> {
    /// The verb, for example `create`.
    pub verb: &'a str,
    /// API group; empty for the core.
    pub group: &'a str,
    /// Resource, perhaps with a subresource: `serviceaccounts/token`.
    pub resource: &'a str,
    /// Namespace; empty means all.
    pub namespace: &'a str,
    /// Name of the object; empty means all.
    pub name: &'a str,
}

impl AccessReview<'_> {
    /// The review of this access by whoever sends it.
    pub(in crate::cluster) fn to_review(self) -> SelfSubjectAccessReview {
        let non_empty = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    verb: non_empty(self.verb),
                    group: non_empty(self.group),
                    resource: non_empty(resource),
                    subresource: non_empty(subresource),
                    namespace: non_empty(self.namespace),
                    name: non_empty(self.name),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        }
    }
}

/// Result of a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DryRunResult {
    /// The request would have succeeded, or failed only because an object of this name exists.
    Allowed,
    /// RBAC or an admission policy refused it, with this message.
    Refused(String),
    /// It failed for another reason, so the result says nothing about permissions.
    Inconclusive(String),
}

/// The namespace of a workspace, and the uid of its ServiceAccount if that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleWorkspace {
    /// Name of the namespace.
    pub namespace: String,
    /// The uid of `sa-tenant-admin`.
    pub account_uid: Option<String>,
}

/// Version and clock of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// The version, for example `v1.36.1`.
    pub version: String,
    /// Major and minor version, if they are numbers.
    pub release: Option<(u32, u32)>,
    /// The time of its clock (`Date` header), in whole seconds.
    pub clock: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Version {
    major: String,
    minor: String,
    #[serde(rename = "gitVersion")]
    full: String,
}

impl Cluster {
    /// Whether the broker's permissions allow an access (`SelfSubjectAccessReview`, which every
    /// authenticated user may create).
    ///
    /// # Errors
    /// The request failed.
    pub async fn is_allowed(&self, access: AccessReview<'_>) -> Result<bool, ClusterError> {
        let review = access.to_review();
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client());
        let review = api.create(&PostParams::default(), &review).await?;
        Ok(review.status.is_some_and(|status| status.allowed))
    }

    /// Sends a request that the API server validates completely, admission policies included, but
    /// does not persist (`dryRun=All`). Token requests are never sent, because the API server
    /// ignores the dry run and issues a real token.
    ///
    /// # Errors
    /// The API server does not respond or is overloaded.
    pub async fn dry_run(
        &self,
        method: Method,
        path: &str,
        body: &serde_json::Value,
    ) -> Result<DryRunResult, ClusterError> {
        if path.ends_with("/token") {
            return Ok(DryRunResult::Inconclusive("a token request has no dry run".to_owned()));
        }
        let content_type = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}?dryRun=All"))
            .header(http::header::CONTENT_TYPE, content_type)
            .body(body.to_string().into_bytes());
        let (parts, body) = self.send(request).await?;
        let status = || serde_json::from_slice::<Status>(&body);
        let message = || {
            status().map_or_else(|_| String::from_utf8_lossy(&body).into_owned(), |it| it.message)
        };
        Ok(match parts.status.as_u16() {
            200..300 => DryRunResult::Allowed,
            // The API server looks for an object of this name after all policies.
            409 if status().is_ok_and(|it| it.is_already_exists()) => DryRunResult::Allowed,
            403 | 422 => DryRunResult::Refused(message()),
            code @ (429 | 500..) => {
                let status = Status::failure(&message(), "").with_code(code);
                return Err(kube::Error::Api(status.boxed()).into());
            }
            code => DryRunResult::Inconclusive(format!("{code}: {}", message())),
        })
    }

    /// Gets the API server's version and reads its clock.
    ///
    /// # Errors
    /// The request failed.
    pub async fn server_info(&self) -> Result<ServerInfo, ClusterError> {
        let (parts, body) = self.send(Request::get("/version").body(Vec::new())).await?;
        let version: Version = serde_json::from_slice(&body).map_err(|_| {
            ClusterError::Conflict("the response of /version cannot be parsed".to_owned())
        })?;
        // Some providers write 31+.
        let number = |text: &str| text.trim_end_matches('+').parse().ok();
        let clock = parts
            .headers
            .get(http::header::DATE)
            .and_then(|date| date.to_str().ok())
            .and_then(|date| jiff::fmt::rfc2822::parse(date).ok())
            .map(|date| date.timestamp());
        Ok(ServerInfo {
            release: number(&version.major).zip(number(&version.minor)),
            version: version.full,
            clock,
        })
    }

    /// A workspace that is not suspended, preferably one with its ServiceAccount; `None` if there is
    /// no workspace.
    ///
    /// # Errors
    /// The request failed.
    pub async fn some_workspace(&self) -> Result<Option<SampleWorkspace>, ClusterError> {
        let selector = format!("{WORKSPACE_LABEL},!{SUSPENDED_LABEL}");
        let api: Api<Namespace> = Api::all(self.client());
        let list = api.list(&ListParams::default().labels(&selector).limit(20)).await?;
        let mut without_account = None;
        for namespace in list.items.into_iter().filter_map(|namespace| namespace.metadata.name) {
            let api: Api<ServiceAccount> = Api::namespaced(self.client(), &namespace);
            let account = api.get_opt(SERVICE_ACCOUNT_NAME).await?;
            let account_uid = account.and_then(|account| account.metadata.uid);
            let has_account = account_uid.is_some();
            let workspace = SampleWorkspace { namespace, account_uid };
            if has_account {
                return Ok(Some(workspace));
            }
            without_account.get_or_insert(workspace);
        }
        Ok(without_account)
    }

    /// The metadata of any namespace with these labels (a label selector) that is not being deleted:
    /// the API server refuses new objects in the others, whatever the policies say.
    ///
    /// # Errors
    /// The request failed.
    pub async fn some_namespace(&self, selector: &str) -> Result<Option<ObjectMeta>, ClusterError> {
        let api: Api<Namespace> = Api::all(self.client());
        let params = ListParams::default().labels(selector).fields("status.phase=Active").limit(1);
        let list = api.list_metadata(&params).await?;
        Ok(list.items.into_iter().next().map(|namespace| namespace.metadata))
    }

    async fn send(
        &self,
        request: Result<Request<Vec<u8>>, http::Error>,
    ) -> Result<(http::response::Parts, Vec<u8>), ClusterError> {
        let request = request.map_err(kube::Error::HttpError)?.map(kube::client::Body::from);
        let (parts, body) = self.client().send(request).await?.into_parts();
        let body = Limited::new(body, MAX_BYTES).collect().await.map_err(kube::Error::Service)?;
        Ok((parts, body.to_bytes().to_vec()))
    }
}
