//! Reviews: who the caller is, and whether they may use a namespace. [`InNamespace`] is made here
//! alone, so an operation on a namespace cannot forget the review.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ModelServices,
    call::{Call, REVIEW_TIMEOUT},
    call_kind::CallKind,
    caller::ApiCaller,
    caller_client::CallerClient,
    failure::Failure,
};
use crate::{
    base::request_context::{Field, record_field},
    cluster::UserInfo,
    gateway::Verb,
};

/// The largest answer of a review.
const MAX_REVIEW_BYTES: usize = 1024 * 1024;

/// A request in a namespace whose caller may use it: the API server said so in this request.
#[derive(Debug)]
pub struct InNamespace {
    client: CallerClient,
    namespace: String,
}

impl InNamespace {
    /// The request of the caller.
    pub(super) fn client(&self) -> &CallerClient {
        &self.client
    }

    /// Name of the namespace.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }
}

/// The part of a `SelfSubjectAccessReview` that counts.
#[derive(Deserialize)]
struct AccessReview {
    #[serde(default)]
    status: AccessReviewStatus,
}

#[derive(Default, Deserialize)]
struct AccessReviewStatus {
    #[serde(default)]
    allowed: bool,
}

/// The part of a `SelfSubjectReview` that counts.
#[derive(Deserialize)]
struct SelfReview {
    status: SelfReviewStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SelfReviewStatus {
    user_info: ReviewedUser,
}

#[derive(Deserialize)]
struct ReviewedUser {
    username: String,
    #[serde(default)]
    groups: Option<Vec<String>>,
}

/// A request that is not let into its namespace.
#[derive(Debug)]
pub(super) struct RefusedReview {
    pub(super) failure: Failure,
    /// The client of the request, if the API server said that its caller may not use the namespace. It
    /// still reads who the caller is. The limits have admitted this request already, and a new one
    /// might exceed them.
    pub(super) client: Option<Box<CallerClient>>,
}

/// The review did not take place.
impl From<Failure> for RefusedReview {
    fn from(failure: Failure) -> Self {
        Self { failure, client: None }
    }
}

impl ModelServices {
    /// Begins a request of the caller in a namespace, and asks the API server whether the caller may
    /// list the resource of `model_services.access_check` there.
    ///
    /// # Errors
    /// The caller may not, whether or not the namespace exists; the API server does not accept their
    /// token, or does not answer.
    pub(super) async fn review(
        &self,
        caller: &ApiCaller,
        namespace: &str,
        verb: Verb,
    ) -> Result<InNamespace, RefusedReview> {
        record_field(Field::Namespace, namespace);
        let client = caller.begin(self, Some(namespace), verb).await?;
        let check = &self.0.settings.access_check;
        let attributes = json!({
            "namespace": namespace,
            "verb": "list",
            "group": check.group,
            "resource": check.resource,
        });
        if !client.is_allowed(&attributes).await? {
            let failure = Failure::forbidden_in(namespace);
            return Err(RefusedReview { failure, client: Some(Box::new(client)) });
        }
        Ok(InNamespace { client, namespace: namespace.to_owned() })
    }
}

impl CallerClient {
    /// Whether the caller may do something (`SelfSubjectAccessReview` with these
    /// `resourceAttributes`).
    ///
    /// # Errors
    /// The API server does not accept the token, or does not answer.
    pub(super) async fn is_allowed(&self, attributes: &Value) -> Result<bool, Failure> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let response = self.send(review_call(CallKind::AccessReview, path, &review)).await?;
        if response.status == http::StatusCode::FORBIDDEN {
            return Ok(false);
        }
        if !response.status.is_success() {
            return Err(response.unexpected());
        }
        Ok(response.json::<AccessReview>().await?.status.allowed)
    }

    /// The user that the API server sees in this request (`SelfSubjectReview`).
    ///
    /// # Errors
    /// The API server does not accept the token, or does not answer.
    pub(super) async fn who_am_i(&self) -> Result<UserInfo, Failure> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let response = self.send(review_call(CallKind::SelfReview, path, &review)).await?;
        if response.status == http::StatusCode::FORBIDDEN {
            return Err(Failure::forbidden("You don't have permission to review yourself"));
        }
        if !response.status.is_success() {
            return Err(response.unexpected());
        }
        let user = response.json::<SelfReview>().await?.status.user_info;
        Ok(UserInfo { user: user.username, groups: user.groups.unwrap_or_default() })
    }
}

fn review_call(kind: CallKind, path: &str, review: &Value) -> Call {
    Call::review(kind, path, review).timeout(REVIEW_TIMEOUT).max_bytes(MAX_REVIEW_BYTES)
}
