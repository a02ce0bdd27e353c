//! The way of a request through the gateway, from top to bottom.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode, request::Parts};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use tenant_shared::Code;

use super::{
    Gateway,
    discard::Discarder,
    error::cancelled_request,
    headers,
    in_flight::InFlightRequest,
    interception::{self, Interception},
    kubernetes_status, namespace_creation,
    namespace_refusal::{NamespaceRefusal, RefusalReason},
    path::{self, Target},
    principals::Principal,
    request::UpstreamRequest,
    response,
    streams::{OwnReadView, StreamInfo},
    synthesized,
    upstream_call::{RequestBody, UpstreamCall},
    usage::Verb,
};
use crate::{
    base::request_context::RequestInfo,
    cluster::{Cluster, MAX_POOLED_BODY_BYTES},
    http::{ApiError, Body},
    workspace::Active,
};

impl Gateway {
    /// Handles one request below `/clusters/`.
    pub async fn handle(
        &self,
        request: Request<Incoming>,
        info: &Arc<RequestInfo>,
    ) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let mut body = Some(body);
        match self.forward(parts, &mut body, info).await {
            Ok(response) => response,
            Err(error) => {
                if let Some(body) = body {
                    let limits = self.identity.limits().clone();
                    Discarder { limits, address: info.address }.discard(body);
                }
                kubernetes_status::refusal(&error, info)
            }
        }
    }

    /// Authenticates a request, checks it and forwards it. The body is taken once the request is
    /// admitted.
    ///
    /// The futures of rare steps are boxed, here and in the functions that it calls: the future of
    /// every request reserves space for those that are not, and is moved more than once before it
    /// is polled.
    async fn forward(
        &self,
        mut parts: Parts,
        body: &mut Option<Incoming>,
        info: &Arc<RequestInfo>,
    ) -> Result<Response<Body>, ApiError> {
        let presented = self.identity.extract(&parts.method, &parts.headers)?;
        let mut principal = self.principals.get(&presented).await?;
        headers::check(&parts.headers)?;
        let target = path::parse(&parts.uri)?;
        let cluster = self.find_cluster(target.cluster)?;
        if let Some(missing) = self.missing_membership(&principal, cluster, &parts.method, &target)
        {
            principal = Box::pin(self.join(&presented, principal, missing)).await?;
        }
        let workspace = self.choose_workspace(&principal, cluster, target.namespace)?;
        let active = self.principals.active(workspace)?;
        let interception = self.interception(&parts, &target, &principal, cluster, active)?;
        let (headers, extensions) = (&mut parts.headers, &mut parts.extensions);
        let outgoing = UpstreamRequest::from_client(headers, extensions, &presented, info)?;
        if outgoing.upgrade.is_some() && body.as_ref().is_some_and(|body| !body.is_end_stream()) {
            // hyper would go on sending the body after the response, and no cancellation ends it.
            let text = "a request that asks for an upgrade may not have a body";
            return Err(ApiError::new(Code::InvalidRequest, text));
        }
        let view = own_read_view(&interception, &principal, cluster);
        let stream = self.stream_info(&principal, active, &target, view);
        let verb = Verb::of_request(&parts.method, &target);
        let in_flight = self.admit_or_delay(stream, verb, active, info).await?;
        let mut call = UpstreamCall {
            gateway: self,
            presented: &presented,
            active: Arc::clone(active),
            cluster,
            principal: &principal,
            kind: target.kind,
            is_upgrade: outgoing.upgrade.is_some(),
            in_flight,
        };
        let result = match (interception, body.take()) {
            (Interception::List(representation), _) => {
                let namespace = active.namespace();
                Box::pin(synthesized::list(&mut call, &outgoing, representation, namespace)).await
            }
            (Interception::CreateNamespace, body) => {
                let headers = &outgoing.headers;
                Box::pin(namespace_creation::respond(&call, headers, &target, body, &info.id)).await
            }
            (Interception::OwnRead(own), _) => {
                match Box::pin(call.read_own(&own.read, &outgoing.headers, info)).await {
                    Ok(response) => {
                        return response::to_client(response, outgoing, &target, call.in_flight);
                    }
                    Err(error) => Err(error),
                }
            }
            (
                review @ (Interception::AccessReview
                | Interception::RulesReview
                | Interception::SelfReview),
                Some(body),
            ) => {
                let path = target.path_and_query;
                let namespace = active.namespace();
                let review = synthesized::access_review(
                    &mut call, &outgoing, &review, path, body, namespace,
                );
                Box::pin(review).await
            }
            (interception, body) => {
                let path = match &interception {
                    Interception::Watch(path) => path,
                    _ => target.path_and_query,
                };
                let body = match self.request_body(body, &call.in_flight).await {
                    Ok(body) => body,
                    Err(error) => return Err(call.in_flight.refuse(error)),
                };
                match call.send(&parts.method, path, &outgoing.headers, body).await {
                    Ok(response)
                        if is_shown_as_not_found(&interception)
                            && response.status() == StatusCode::FORBIDDEN =>
                    {
                        Ok(not_found(&interception, &target, info))
                    }
                    Ok(response)
                        if let Interception::UnjoinedNodes(text) = &interception
                            && response.status() == StatusCode::FORBIDDEN =>
                    {
                        Err(ApiError::new(Code::Forbidden, text.clone()))
                    }
                    Ok(response) => {
                        return response::to_client(response, outgoing, &target, call.in_flight);
                    }
                    Err(error) => Err(error),
                }
            }
        };
        match result {
            Ok(response) => {
                response::to_client(response.map(Full::new), outgoing, &target, call.in_flight)
            }
            Err(error) => Err(call.in_flight.refuse(error)),
        }
    }

    fn find_cluster(&self, name: &str) -> Result<&Cluster, ApiError> {
        self.clusters
            .find(name)
            .ok_or_else(|| ApiError::new(Code::NotFound, "there is no such cluster"))
    }

    /// The body of a forwarded request. A small one is read completely, so that the request can be
    /// sent on a pooled connection and sent again; any other is a metered stream.
    ///
    /// # Errors
    /// A small body does not arrive completely, or the request is cancelled.
    async fn request_body(
        &self,
        body: Option<Incoming>,
        in_flight: &InFlightRequest,
    ) -> Result<RequestBody, ApiError> {
        let Some(body) = body.filter(|body| !body.is_end_stream()) else {
            return Ok(RequestBody::Full(Bytes::new()));
        };
        let exact = body.size_hint().exact();
        let upload = in_flight.upload(body, self.identity.limits());
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

    /// How the request is handled: most are passed through.
    ///
    /// # Errors
    /// The request cannot be handled as it has to be.
    fn interception(
        &self,
        parts: &Parts,
        target: &Target<'_>,
        principal: &Principal,
        cluster: &Cluster,
        active: &Active,
    ) -> Result<Interception, ApiError> {
        if !self.tenants_at(principal, cluster).is_empty()
            && let Some(interception) =
                self.tenant_interception(parts, target, principal, cluster)?
        {
            return Ok(interception);
        }
        Ok(if self.own_answers {
            interception::intercept(&parts.method, target, &parts.headers, active.namespace())
        } else {
            Interception::PassThrough
        })
    }

    /// Admits a request within the limits of its tenant; a refusal is delayed.
    async fn admit_or_delay(
        &self,
        stream: StreamInfo,
        verb: Verb,
        active: &Active,
        info: &Arc<RequestInfo>,
    ) -> Result<InFlightRequest, ApiError> {
        match self.admit(stream, active.permit().resource(), verb, info) {
            Ok(in_flight) => Ok(in_flight),
            Err((exceeded, limiter)) => Err(exceeded.delayed_error(&limiter.limits).await),
        }
    }

    fn stream_info(
        &self,
        principal: &Principal,
        active: &Active,
        target: &Target<'_>,
        view: Option<Arc<OwnReadView>>,
    ) -> StreamInfo {
        StreamInfo {
            kind: target.kind,
            workspace: active.workspace_id(),
            service_account: Arc::clone(active.service_account_uid()),
            user: principal.caller.user_id(),
            session: principal.caller.session_id(),
            credential: None,
            view,
            member_namespace: self.member_namespace(principal, active, target.namespace),
        }
    }
}

/// The view of a list or watch with the broker's own credential, so that it is closed when that
/// changes or a membership ends that grants it.
fn own_read_view(
    interception: &Interception,
    principal: &Principal,
    cluster: &Cluster,
) -> Option<Arc<OwnReadView>> {
    let Interception::OwnRead(own) = interception else { return None };
    Some(Arc::new(OwnReadView {
        caller: principal.caller.clone(),
        memberships: principal.memberships(cluster.name(), own.shown.tenants()),
        shown: own.shown.clone(),
    }))
}

/// Whether a refusal is shown as 404.
fn is_shown_as_not_found(interception: &Interception) -> bool {
    matches!(interception, Interception::ReadNamespace | Interception::ReadInUnknownNamespace)
}

/// The response to a read of a namespace that is none of the caller's, or of an object in one, as if
/// it did not exist. Tools that create what they do not find go on then.
fn not_found(
    interception: &Interception,
    target: &Target<'_>,
    info: &RequestInfo,
) -> Response<Bytes> {
    if *interception == Interception::ReadInUnknownNamespace {
        return kubernetes_status::object_not_found(target);
    }
    let name = target.name.unwrap_or_default();
    NamespaceRefusal::new(RefusalReason::NotFound, name).response(&info.id)
}
