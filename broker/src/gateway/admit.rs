//! Admission of a request: the limits of its tenant, and the registry of requests in flight.

use std::sync::Arc;

use super::{
    Gateway,
    in_flight::InFlightRequest,
    limiter::{LimitExceeded, TenantLimiter, UsageMeter},
    streams::StreamInfo,
    usage::Verb,
};
use crate::{base::request_context::RequestInfo, workspace::WorkspaceRow};

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
        let limits = || self.workspaces.gateway_limits(workspace);
        let limiter = self.limiters.get_or_create(info.workspace, limits);
        let permit = match limiter.acquire(info.kind) {
            Ok(permit) => permit,
            Err(exceeded) => {
                limiter.usage.count_throttled(verb);
                self.metrics.throttled(exceeded.as_str());
                return Err((exceeded, limiter));
            }
        };
        limiter.usage.count_request(verb);
        Ok(InFlightRequest::new(
            self.streams.register(info.clone()),
            permit,
            UsageMeter { limiter, verb },
            info,
            Arc::clone(request),
            self.metrics.clone(),
        ))
    }
}
