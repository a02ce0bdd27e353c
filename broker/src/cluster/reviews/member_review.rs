//! Access reviews with the token of a ServiceAccount, on the connections of requests that are
//! forwarded with it: the answer is that of the authorizer that such a request meets.

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;

use crate::cluster::{AccessReview, Cluster, Transport, UpstreamError};

const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// The limit of a response body in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// An access review with a token has no answer.
#[derive(Debug, thiserror::Error)]
pub enum MemberReviewError {
    /// The request could not be built.
    #[error("the review cannot be sent")]
    Request(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// There is no response.
    #[error("the API server does not answer")]
    Upstream(#[from] UpstreamError),
    /// The API server did not review the access, for example because it does not accept the token.
    #[error("the API server answers {0} to a review")]
    Status(StatusCode),
    /// The response is incomplete, or no review.
    #[error("the API server's response is no review")]
    Response(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Cluster {
    /// Whether the API server allows an access to the holder of a token. `authorization` is the value
    /// of the header with the token.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn is_allowed_with(
        &self,
        authorization: HeaderValue,
        access: AccessReview<'_>,
    ) -> Result<bool, MemberReviewError> {
        let upstream = self.upstream();
        let review = serde_json::to_vec(&access.to_review())
            .map_err(|error| MemberReviewError::Request(error.into()))?;
        let body = Full::new(Bytes::from(review)).map_err(|never| match never {}).boxed();
        let request = Request::post(upstream.uri(PATH)?)
            .header(header::AUTHORIZATION, authorization)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(body)
            .map_err(|error| MemberReviewError::Request(error.into()))?;
        let response = upstream.send(request, Transport::Http1).await?;
        if response.status() != StatusCode::CREATED {
            return Err(MemberReviewError::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), MAX_BYTES).collect().await;
        let body = body.map_err(MemberReviewError::Response)?.to_bytes();
        let review: SelfSubjectAccessReview = serde_json::from_slice(&body)
            .map_err(|error| MemberReviewError::Response(error.into()))?;
        Ok(review.status.is_some_and(|status| status.allowed))
    }
}
