//! Synthesized responses to intercepted requests (see [`super`]).

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use hyper::body::Incoming;
use tenant_shared::Code;

use super::{
    Interception, LISTS_NAMESPACES, MAX_RESPONSE_BYTES, MAX_REVIEW_BYTES, Representation,
    add_rules, add_user, allow_review, list_paths, namespace_list, prepare_headers, tenant_review,
};
use crate::{
    base::request_context::RequestInfo,
    gateway::{
        kubernetes_api::{NamespaceRefusal, RefusalReason, path::Target, review, status},
        request::UpstreamRequest,
        upstream_call::{RequestBody, UpstreamCall},
    },
    http::ApiError,
};

/// The list of the user's own namespace. If the API server refuses to return the namespace, its
/// response is passed on.
///
/// # Errors
/// The API server does not respond, or its response cannot be parsed.
pub(in crate::gateway) async fn list(
    call: &mut UpstreamCall<'_>,
    outgoing: &UpstreamRequest,
    representation: Representation,
    own_namespace: &str,
) -> Result<Response<Bytes>, ApiError> {
    let mut responses = Vec::with_capacity(2);
    for (path, representation) in
        list_paths(own_namespace).into_iter().zip([Representation::Plain, representation])
    {
        let mut headers = outgoing.headers.clone();
        prepare_headers(&mut headers, representation);
        let empty = RequestBody::Full(Bytes::new());
        let response = call.send(&Method::GET, &path, &headers, empty).await?;
        let response = call.read_body(response, MAX_RESPONSE_BYTES).await?;
        if response.status() != StatusCode::OK {
            return Ok(response);
        }
        responses.push(response);
    }
    let [versioned, namespace] = &responses[..] else { return Err(unreadable_response()) };
    let list = namespace_list(representation, versioned.body(), namespace.body())
        .ok_or_else(unreadable_response)?;
    let mut response = Response::new(list);
    *response.headers_mut() = namespace.headers().clone();
    response.headers_mut().remove(header::ETAG);
    Ok(response)
}

/// The response to a `SelfSubjectAccessReview`, `SelfSubjectRulesReview` or `SelfSubjectReview`.
///
/// # Errors
/// The review is too long; the API server does not respond, or its response cannot be parsed.
pub(in crate::gateway) async fn access_review(
    call: &mut UpstreamCall<'_>,
    outgoing: &UpstreamRequest,
    interception: &Interception,
    path: &str,
    body: Incoming,
    own_namespace: &str,
) -> Result<Response<Bytes>, ApiError> {
    let review_body = call.read_request(body, MAX_REVIEW_BYTES, "review").await?;
    // Members of tenants have another token in each of them.
    if let Some(namespace) = tenant_review::reviewed_namespace(call, interception, &review_body) {
        call.use_workspace_of(&namespace)?;
    }
    let mut headers = outgoing.headers.clone();
    prepare_headers(&mut headers, Representation::Plain);
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(review_body.len()));
    let request_body = RequestBody::Full(review_body.clone());
    let response = call.send(&Method::POST, path, &headers, request_body).await?;
    let response = call.read_body(response, MAX_RESPONSE_BYTES).await?;
    if !response.status().is_success() {
        return Ok(response);
    }
    let body = match interception {
        Interception::SelfReview => {
            let caller = call.active.permit().caller();
            add_user(response.body(), &caller.user_id().to_string(), caller.email())
        }
        Interception::AccessReview if review::is_namespace_list(&review_body, own_namespace) => {
            allow_review(response.body(), LISTS_NAMESPACES)
        }
        Interception::AccessReview => {
            match tenant_review::reason_to_allow(call, &review_body).await? {
                Some(reason) => allow_review(response.body(), reason),
                None => return Ok(response),
            }
        }
        Interception::RulesReview => {
            let rules = tenant_review::further_rules(call).await?;
            if rules.is_empty() {
                return Ok(response);
            }
            add_rules(response.body(), rules)
        }
        _ => return Ok(response),
    };
    let body = body.ok_or_else(unreadable_response)?;
    Ok(response.map(|_| body))
}

/// The response to a read of a namespace that is none of the caller's, or of an object in one, as if
/// it did not exist. Tools that create what they do not find go on then.
pub(in crate::gateway) fn not_found(
    interception: &Interception,
    target: &Target<'_>,
    info: &RequestInfo,
) -> Response<Bytes> {
    if *interception == Interception::ReadInUnknownNamespace {
        return status::object_not_found(target);
    }
    let name = target.name.unwrap_or_default();
    NamespaceRefusal::new(RefusalReason::NotFound, name).response(&info.id)
}

fn unreadable_response() -> ApiError {
    ApiError::new(Code::ClusterUnavailable, "the response of the API server cannot be parsed")
}
