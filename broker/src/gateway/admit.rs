//! Admission of a request: the limits of its tenant, and the registry of requests in flight.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::{
    Gateway,
    in_flight::{InFlightRequest, StreamInfo},
    kubernetes_api::path::Kind,
    limits::{LimitExceeded, TenantLimiter, UsageMeter, usage::Verb},
};
use crate::{access::Resource as _, base::request_context::RequestInfo, workspace::WorkspaceRow};

impl Gateway {
    /// Counts a request against the limits of its tenant and registers it, so that it can be closed
    /// from outside.
    ///
    /// # Errors
    /// The exceeded limit of the tier.
    pub(super) fn admit(
        &self,
        info: StreamInfo,
        workspace: &WorkspaceRow,
        verb: Verb,
        request: &Arc<RequestInfo>,
    ) -> Result<InFlightRequest, (LimitExceeded, Arc<TenantLimiter>)> {
        let (usage_meter, permit) = self.acquire(info.kind, workspace, verb)?;
        Ok(InFlightRequest::new(
            self.streams.register(info.clone()),
            permit,
            usage_meter,
            info,
            Arc::clone(request),
            self.metrics.clone(),
        ))
    }

    /// Counts a request against the limits of its tenant.
    ///
    /// # Errors
    /// The exceeded limit of the tier.
    pub(super) fn acquire(
        &self,
        kind: Kind,
        workspace: &WorkspaceRow,
        verb: Verb,
    ) -> Result<(UsageMeter, OwnedSemaphorePermit), (LimitExceeded, Arc<TenantLimiter>)> {
        let limits = || self.workspaces.gateway_limits(workspace);
        let limiter = self.limiters.get_or_create(workspace.id(), limits);
        let permit = match limiter.acquire(kind) {
            Ok(permit) => permit,
            Err(exceeded) => {
                limiter.usage.count_throttled(verb);
                self.metrics.throttled(exceeded.as_str());
                return Err((exceeded, limiter));
            }
        };
        limiter.usage.count_request(verb);
        Ok((UsageMeter { limiter, verb }, permit))
    }
}
