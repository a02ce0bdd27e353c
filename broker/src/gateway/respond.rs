//! The response to an admitted request: that of the API server, or one that the gateway makes.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tenant_shared::Code;

use super::{
    error::cancelled_request,
    interception::{Interception, namespace_creation, synthesized},
    kubernetes_api::path::Target,
    request::UpstreamRequest,
    upstream_call::{RequestBody, UpstreamCall},
};
use crate::{
    base::request_context::RequestInfo,
    cluster::{MAX_POOLED_BODY_BYTES, UpstreamResponseBody},
    http::ApiError,
};

/// A request within the limits of its tenant.
#[derive(Clone, Copy)]
pub(super) struct AdmittedRequest<'a> {
    pub(super) method: &'a Method,
    pub(super) target: &'a Target<'a>,
    pub(super) outgoing: &'a UpstreamRequest,
    pub(super) info: &'a RequestInfo,
}

/// The response to a request.
pub(super) enum GatewayResponse {
    /// The response of the API server, which is streamed.
    Upstream(Response<UpstreamResponseBody>),
    /// A response that the gateway makes.
    Synthesized(Response<Bytes>),
}

impl UpstreamCall<'_> {
    /// Responds to the request. The futures of rare responses are boxed, because the future of
    /// every request reserves space for those that are not.
    ///
    /// # Errors
    /// The gateway or the API server refuses the request, the API server does not respond, or the
    /// request is cancelled.
    pub(super) async fn respond(
        &mut self,
        request: &AdmittedRequest<'_>,
        interception: Interception,
        body: Option<Incoming>,
    ) -> Result<GatewayResponse, ApiError> {
        let AdmittedRequest { target, outgoing, info, .. } = *request;
        match (interception, body) {
            (Interception::List(representation), _) => {
                let active = Arc::clone(&self.active);
                let list = synthesized::list(self, outgoing, representation, active.namespace());
                Box::pin(list).await.map(GatewayResponse::Synthesized)
            }
            (Interception::CreateNamespace, body) => {
                let headers = &outgoing.headers;
                let created = namespace_creation::respond(self, headers, target, body, &info.id);
                Box::pin(created).await.map(GatewayResponse::Synthesized)
            }
            (Interception::BrokerRead(own), _) => {
                let read = self.read_as_broker(&own.read, &outgoing.headers, info);
                Box::pin(read).await.map(GatewayResponse::Upstream)
            }
            (
                review @ (Interception::AccessReview
                | Interception::RulesReview
                | Interception::SelfReview),
                Some(body),
            ) => {
                let (active, path) = (Arc::clone(&self.active), target.path_and_query);
                let namespace = active.namespace();
                let review =
                    synthesized::access_review(self, outgoing, &review, path, body, namespace);
                Box::pin(review).await.map(GatewayResponse::Synthesized)
            }
            (interception, body) => self.forward(request, &interception, body).await,
        }
    }

    /// Forwards the request. A refusal may be shown in other words.
    async fn forward(
        &mut self,
        request: &AdmittedRequest<'_>,
        interception: &Interception,
        body: Option<Incoming>,
    ) -> Result<GatewayResponse, ApiError> {
        let AdmittedRequest { method, target, outgoing, info } = *request;
        let path = match interception {
            Interception::Watch(path) => path,
            _ => target.path_and_query,
        };
        let body = self.request_body(body).await?;
        let response = self.send(method, path, &outgoing.headers, body).await?;
        if response.status() == StatusCode::FORBIDDEN {
            if interception.is_shown_as_not_found() {
                let not_found = synthesized::not_found(interception, target, info);
                return Ok(GatewayResponse::Synthesized(not_found));
            }
            if let Interception::UnjoinedNodes(text) = interception {
                return Err(ApiError::new(Code::Forbidden, text.clone()));
            }
        }
        Ok(GatewayResponse::Upstream(response))
    }

    /// The body of a forwarded request. A small one is read completely, so that the request can be
    /// sent on a pooled connection and sent again; any other is a metered stream.
    ///
    /// # Errors
    /// A small body does not arrive completely, or the request is cancelled.
    async fn request_body(&self, body: Option<Incoming>) -> Result<RequestBody, ApiError> {
        let Some(body) = body.filter(|body| !body.is_end_stream()) else {
            return Ok(RequestBody::Full(Bytes::new()));
        };
        let exact = body.size_hint().exact();
        let in_flight = &self.in_flight;
        let upload = in_flight.upload(body, self.gateway.identity.limits());
        if exact.is_none_or(|length| length > MAX_POOLED_BODY_BYTES) {
            return Ok(RequestBody::Stream(upload.boxed()));
        }
        let read = Box::pin(async {
            tokio::select! {
                biased;
                reason = in_flight.closed() => Err(cancelled_request(reason)),
                read = upload.collect() => match read {
                    Ok(read) => Ok(read.to_bytes()),
                    Err(error) => Err(ApiError::new(Code::InvalidRequest, error.to_string())),
                },
            }
        });
        Ok(RequestBody::Full(read.await?))
    }
}
