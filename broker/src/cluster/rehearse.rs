//! Finding out what the broker may do, without doing it.

use http::{Method, Request};
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    core::v1::{Namespace, ServiceAccount},
};
use kube::{
    Api,
    api::{ListParams, PostParams},
    core::Status,
};
use serde::Deserialize;
use tenant_shared::{SERVICE_ACCOUNT_NAME, SUSPENDED_LABEL, WORKSPACE_LABEL};

use super::{Cluster, ClusterError};

/// More than any answer here has.
const MOST_BYTES: usize = 256 * 1024;

/// Something that RBAC allows or not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Question<'a> {
    /// For example `create`.
    pub verb: &'a str,
    /// API group; empty for the core.
    pub group: &'a str,
    /// Resource, perhaps with a subresource: `serviceaccounts/token`.
    pub resource: &'a str,
    /// Namespace; all if it is empty.
    pub namespace: &'a str,
    /// Name; all if it is empty.
    pub name: &'a str,
}

/// How a rehearsed request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rehearsal {
    /// It would have been done.
    Allowed,
    /// RBAC or a policy refused it, with these words.
    Refused(String),
    /// It failed for another reason, so that nothing is known.
    Otherwise(String),
}

/// What the API server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFacts {
    /// For example `v1.36.1`.
    pub version: String,
    /// Major and minor version, if they are numbers.
    pub release: Option<(u32, u32)>,
    /// Its clock, in whole seconds.
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
    /// Asks RBAC (`SelfSubjectAccessReview`, which everybody may).
    ///
    /// # Errors
    /// The cluster's.
    pub async fn may(&self, question: Question<'_>) -> Result<bool, ClusterError> {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let (resource, subresource) =
            question.resource.split_once('/').unwrap_or((question.resource, ""));
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    verb: given(question.verb),
                    group: given(question.group),
                    resource: given(resource),
                    subresource: given(subresource),
                    namespace: given(question.namespace),
                    name: given(question.name),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    /// Sends a request that the API server checks to the end, admission policies included, and does
    /// not carry out (`dryRun=All`). Never one for a token: of those the API server issues a real
    /// one all the same.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub async fn rehearse(
        &self,
        method: Method,
        path: &str,
        body: &serde_json::Value,
    ) -> Result<Rehearsal, ClusterError> {
        if path.ends_with("/token") {
            return Ok(Rehearsal::Otherwise("a token request has no dry run".to_owned()));
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
        let message = || {
            serde_json::from_slice::<Status>(&body)
                .map_or_else(|_| String::from_utf8_lossy(&body).into_owned(), |it| it.message)
        };
        Ok(match parts.status.as_u16() {
            200..300 => Rehearsal::Allowed,
            403 | 422 => Rehearsal::Refused(message()),
            code @ (429 | 500..) => {
                let status = Status::failure(&message(), "").with_code(code);
                return Err(kube::Error::Api(status.boxed()).into());
            }
            code => Rehearsal::Otherwise(format!("{code}: {}", message())),
        })
    }

    /// Asks the API server for its version and reads its clock.
    ///
    /// # Errors
    /// The cluster's.
    pub async fn server_facts(&self) -> Result<ServerFacts, ClusterError> {
        let (parts, body) = self.send(Request::get("/version").body(Vec::new())).await?;
        let version: Version = serde_json::from_slice(&body)
            .map_err(|_| ClusterError::Conflict("/version is not what it should be".to_owned()))?;
        // Some providers write 31+.
        let number = |text: &str| text.trim_end_matches('+').parse().ok();
        let clock = parts
            .headers
            .get(http::header::DATE)
            .and_then(|date| date.to_str().ok())
            .and_then(|date| jiff::fmt::rfc2822::parse(date).ok())
            .map(|date| date.timestamp());
        Ok(ServerFacts {
            release: number(&version.major).zip(number(&version.minor)),
            version: version.full,
            clock,
        })
    }

    /// Namespace of some workspace that is not suspended, and the uid of its ServiceAccount.
    ///
    /// # Errors
    /// The cluster's.
    pub async fn some_workspace(&self) -> Result<Option<(String, String)>, ClusterError> {
        let selector = format!("{WORKSPACE_LABEL},!{SUSPENDED_LABEL}");
        let api: Api<Namespace> = Api::all(self.client.clone());
        let list = api.list(&ListParams::default().labels(&selector).limit(20)).await?;
        for namespace in list.items.into_iter().filter_map(|namespace| namespace.metadata.name) {
            let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &namespace);
            let account = api.get_opt(SERVICE_ACCOUNT_NAME).await?;
            if let Some(uid) = account.and_then(|account| account.metadata.uid) {
                return Ok(Some((namespace, uid)));
            }
        }
        Ok(None)
    }

    async fn send(
        &self,
        request: Result<Request<Vec<u8>>, http::Error>,
    ) -> Result<(http::response::Parts, Vec<u8>), ClusterError> {
        let request = request.map_err(kube::Error::HttpError)?.map(kube::client::Body::from);
        let (parts, body) = self.client.send(request).await?.into_parts();
        let body = Limited::new(body, MOST_BYTES).collect().await.map_err(kube::Error::Service)?;
        Ok((parts, body.to_bytes().to_vec()))
    }
}
