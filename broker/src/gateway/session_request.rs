//! Requests of sessions that another module answers itself, with calls to the API server. They have
//! the principals, tokens, limits and registry of forwarded requests: a suspension, the end of the
//! session or a revocation ends their calls at once, and there is no further one.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, response};
use http_body_util::BodyExt as _;
use tokio::sync::OwnedSemaphorePermit;

use super::{
    Gateway,
    error::{cancelled_request, incomplete_response},
    in_flight::{InFlightRequest, Registration, StreamInfo},
    kubernetes_api::path::Kind,
    limits::{
        UsageMeter,
        usage::{Direction, Verb},
    },
    membership::MissingMembership,
    principals::{Principal, Workspace},
    upstream_call::{RequestBody, UpstreamCall},
};
use crate::{
    access::Resource as _,
    base::request_context::{Field, RequestInfo, record_field},
    cluster::{BrokerReadResource, Cluster, UpstreamResponseBody},
    http::ApiError,
    identity::{Caller, PresentedCredential},
    workspace::Active,
};

/// The caller of a request, with their workspaces.
#[derive(Clone, Debug)]
pub(crate) struct SessionCaller {
    gateway: Gateway,
    presented: PresentedCredential,
    principal: Arc<Principal>,
}

/// A request of a session, within the limits of the tier of its workspace. Calls are sent with the
/// token of that workspace.
#[derive(Debug)]
pub(crate) struct SessionRequest {
    session: SessionCaller,
    active: Arc<Active>,
    info: StreamInfo,
    /// Registers the request itself, because it may be closed between two calls.
    registration: Registration,
    usage_meter: UsageMeter,
    permit: Arc<OwnedSemaphorePermit>,
    request: Arc<RequestInfo>,
}

/// A message to the API server, without a credential.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamMessage {
    pub(crate) method: Method,
    pub(crate) path_and_query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Gateway {
    /// Authenticates the caller who presents this credential. A token for the gateway alone is
    /// refused.
    ///
    /// # Errors
    /// The credential is not valid; the database failed.
    pub(crate) async fn session(
        &self,
        presented: PresentedCredential,
    ) -> Result<SessionCaller, ApiError> {
        let principal = self.principals.get(&presented).await?;
        if principal.caller.is_gateway_only() {
            return Err(crate::identity::AuthenticationError::GatewayScope.into());
        }
        Ok(SessionCaller { gateway: self.clone(), presented, principal })
    }
}

impl SessionCaller {
    /// The authenticated caller.
    pub(crate) fn caller(&self) -> &Caller {
        &self.principal.caller
    }

    fn cluster(&self) -> &Cluster {
        self.gateway.clusters.for_new_workspaces()
    }

    /// The namespaces of the active workspaces, and of the tenants of which the caller is an active
    /// member. Each is read with the token of its own workspace.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn namespaces(&self) -> Result<Vec<String>, ApiError> {
        let (gateway, principal, cluster) = (&self.gateway, &self.principal, self.cluster());
        let mut names = principal.active_namespaces(cluster.name());
        if let Some(tenants) = &gateway.tenants {
            for tenant in gateway.tenants_at(principal, cluster) {
                if principal.is_active_member(cluster.name(), tenant) {
                    let permit = tenants.authorize_read(&principal.caller, tenant).await?;
                    let of_tenant = tenants.namespaces(&permit).await?;
                    names.extend(of_tenant.items.into_iter().map(|namespace| namespace.name));
                }
            }
        }
        Ok(names)
    }

    /// Identifier of the workspace with whose token a request in this namespace is sent; `None` without
    /// a workspace.
    pub(crate) fn workspace_of(&self, namespace: &str) -> Option<uuid::Uuid> {
        let chosen =
            self.gateway.choose_workspace(&self.principal, self.cluster(), Some(namespace));
        chosen.ok().map(Workspace::id)
    }

    /// The caller with the memberships in all tenants that can be joined, as for a list of namespaces
    /// through the gateway.
    ///
    /// # Errors
    /// The credential is not valid any more; the database failed.
    pub(crate) async fn with_all_memberships(&self) -> Result<Self, ApiError> {
        let (principal, cluster) = (&self.principal, self.cluster());
        let missing =
            self.gateway.missing_for_list(principal, cluster, BrokerReadResource::Namespaces);
        self.joined(missing).await
    }

    /// The caller with the membership in the tenant of this namespace. A caller without a workspace
    /// joins all of their tenants.
    async fn with_membership_for(&self, namespace: Option<&str>) -> Result<Self, ApiError> {
        let (principal, cluster) = (&self.principal, self.cluster());
        self.joined(self.gateway.missing_for_namespace(principal, cluster, namespace)).await
    }

    async fn joined(&self, missing: Option<MissingMembership>) -> Result<Self, ApiError> {
        let mut session = self.clone();
        if let Some(missing) = missing {
            let principal = Arc::clone(&self.principal);
            let joined = self.gateway.join(&self.presented, principal, missing);
            session.principal = Box::pin(joined).await?;
        }
        Ok(session)
    }

    /// Begins a request with the workspace that has this namespace, or else the first one. The
    /// membership in the tenant of the namespace is made, as at a request through the gateway.
    ///
    /// # Errors
    /// The caller has no workspace, or it is suspended or not ready; the membership cannot be made; a
    /// limit of its tier is exceeded.
    pub(crate) async fn begin(
        &self,
        namespace: Option<&str>,
        verb: Verb,
        request: &Arc<RequestInfo>,
    ) -> Result<SessionRequest, ApiError> {
        let gateway = &self.gateway;
        let session = self.with_membership_for(namespace).await?;
        let SessionCaller { principal, .. } = &session;
        let workspace = gateway.choose_workspace(principal, session.cluster(), namespace)?;
        let active = Arc::clone(gateway.principals.active(workspace)?);
        record_field(Field::WorkspaceId, active.workspace_id());
        let row = active.permit().resource();
        let (usage_meter, permit) = match gateway.acquire(Kind::Call, row, verb) {
            Ok(admitted) => admitted,
            Err((exceeded, limiter)) => {
                return Err(exceeded.delayed_error(&limiter.limits).await);
            }
        };
        let info = StreamInfo {
            kind: Kind::Call,
            workspace: row.id(),
            service_account: Arc::clone(active.service_account_uid()),
            user: principal.caller.user_id(),
            session: principal.caller.session_id(),
            credential: None,
            view: None,
            member_namespace: gateway.member_namespace(principal, &active, namespace),
        };
        Ok(SessionRequest {
            session,
            active,
            registration: gateway.streams.register(info.clone()),
            info,
            usage_meter,
            permit: Arc::new(permit),
            request: Arc::clone(request),
        })
    }
}

impl SessionRequest {
    /// The authenticated caller.
    pub(crate) fn caller(&self) -> &Caller {
        self.session.caller()
    }

    /// Identifier of the workspace whose token is sent.
    pub(crate) fn workspace_id(&self) -> uuid::Uuid {
        self.info.workspace
    }

    /// Fails if the request was closed, so that no further call is sent.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn require_open(&self) -> Result<(), ApiError> {
        self.registration.cancel_handle().reason().map_or(Ok(()), |it| Err(cancelled_request(it)))
    }

    /// How long to wait until the byte rate of the tier allows another call.
    pub(crate) fn byte_rate_delay(&self) -> Option<Duration> {
        self.usage_meter.limiter.byte_rate_delay()
    }

    /// The part of this request that is in another namespace of its workspace. For the limits of the
    /// tier both are one request. The loss of a role in that namespace ends this part alone. A part
    /// of a request that was closed is closed, too.
    pub(crate) fn part_in(&self, namespace: &str) -> Self {
        let SessionCaller { gateway, principal, .. } = &self.session;
        let member_namespace = gateway.member_namespace(principal, &self.active, Some(namespace));
        let info = StreamInfo { member_namespace, ..self.info.clone() };
        Self {
            session: self.session.clone(),
            active: Arc::clone(&self.active),
            registration: self.registration.register_part(info.clone()),
            info,
            usage_meter: self.usage_meter.clone(),
            permit: Arc::clone(&self.permit),
            request: Arc::clone(&self.request),
        }
    }

    /// Sends a call, and passes the body of the response to `receive`, part by part. The bytes count
    /// against the byte rate of the tier, which delays later calls ([`Self::byte_rate_delay`]). If the API server no longer accepts the token, the call is
    /// sent once more with a new one. Calls may be concurrent.
    ///
    /// # Errors
    /// There is no token; the API server does not respond, or not completely; the request is
    /// cancelled; `receive` failed.
    pub(crate) async fn send(
        &self,
        message: &UpstreamMessage,
        receive: impl FnMut(&[u8]) -> Result<(), ApiError>,
    ) -> Result<response::Parts, ApiError> {
        let SessionCaller { gateway, presented, principal } = &self.session;
        let mut call = UpstreamCall {
            gateway,
            presented,
            active: Arc::clone(&self.active),
            cluster: self.session.cluster(),
            principal,
            kind: Kind::Call,
            is_upgrade: false,
            in_flight: self.in_flight(),
        };
        // The call is registered: whatever closes the request from now on closes the call as well.
        self.require_open()?;
        let body = RequestBody::Full(message.body.clone());
        let (method, path) = (&message.method, message.path_and_query.as_str());
        let response = call.send(method, path, &message.headers, body).await?;
        let (head, body) = response.into_parts();
        self.receive(body, &call.in_flight, receive).await?;
        Ok(head)
    }

    fn in_flight(&self) -> InFlightRequest {
        let gateway = &self.session.gateway;
        InFlightRequest::part_of_request(
            gateway.streams.register(self.info.clone()),
            Arc::clone(&self.permit),
            self.usage_meter.clone(),
            self.info.clone(),
            Arc::clone(&self.request),
            gateway.metrics.clone(),
        )
    }

    async fn receive(
        &self,
        mut body: UpstreamResponseBody,
        in_flight: &InFlightRequest,
        mut receive: impl FnMut(&[u8]) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let mut meter = in_flight.body_meter(Direction::Down);
        loop {
            let frame = tokio::select! {
                biased;
                reason = in_flight.closed() => return Err(cancelled_request(reason)),
                frame = body.frame() => frame,
            };
            let Some(frame) = frame else { return Ok(()) };
            let frame = frame.map_err(|_| incomplete_response())?;
            if let Some(data) = frame.data_ref() {
                meter.record_bytes(data.len());
                receive(data)?;
            }
        }
    }
}
