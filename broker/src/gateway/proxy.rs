//! The way of a request through the gateway, from top to bottom.

use std::sync::Arc;

use http::{Request, Response, request::Parts};
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use tenant_shared::Code;

use super::{
    Gateway,
    in_flight::{BrokerReadView, Discarder, InFlightRequest, StreamInfo},
    interception::{self, Interception},
    kubernetes_api::{
        path::{self, Target},
        status,
    },
    limits::usage::Verb,
    principals::Principal,
    request::{UpstreamRequest, headers},
    respond::{AdmittedRequest, GatewayResponse},
    response,
    upstream_call::UpstreamCall,
};
use crate::{
    base::request_context::RequestInfo,
    cluster::Cluster,
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
                status::refusal(&error, info)
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
        let view = interception.broker_read_view(&principal, cluster);
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
        let request =
            AdmittedRequest { method: &parts.method, target: &target, outgoing: &outgoing, info };
        match call.respond(&request, interception, body.take()).await {
            Ok(GatewayResponse::Upstream(response)) => {
                response::to_client(response, outgoing, &target, call.in_flight)
            }
            Ok(GatewayResponse::Synthesized(response)) => {
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
        Ok(if self.synthesizes_responses {
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
        view: Option<Arc<BrokerReadView>>,
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
