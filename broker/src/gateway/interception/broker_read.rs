//! Calls to the API server with the broker's own credential: lists and watches of what the caller's
//! tenants give the right to see, and nothing else (see [`BrokerRead`]).

use http::{HeaderMap, Response, StatusCode, header};
use tenant_shared::Code;

use crate::{
    base::request_context::RequestInfo,
    cluster::{BrokerRead, ReadClient, UpstreamResponseBody},
    gateway::{error::cancelled_request, limits::BROKER_READS, upstream_call::UpstreamCall},
    http::ApiError,
};

impl UpstreamCall<'_> {
    /// Sends a read and returns the response as soon as its head is read. Of the client's headers
    /// only the known parts of `Accept` are sent.
    ///
    /// # Errors
    /// The API server does not respond, or refuses the broker; too many such reads are in flight; the
    /// request is cancelled.
    pub(in crate::gateway) async fn read_as_broker(
        &mut self,
        read: &BrokerRead,
        headers: &HeaderMap,
        info: &RequestInfo,
    ) -> Result<Response<UpstreamResponseBody>, ApiError> {
        if self.gateway.are_tenants_out_of_date() {
            let text = "the broker cannot watch Tenants or namespaces, so it does not know what you \
                        may list; try again later";
            return Err(ApiError::new(Code::ClusterUnavailable, text));
        }
        let user = self.principal.caller.user_id();
        let permit = tokio::select! {
            biased;
            reason = self.in_flight.closed() => return Err(cancelled_request(reason)),
            permit = self.gateway.broker_reads.acquire(user, self.kind.is_stream()) => permit,
        };
        let permit = permit.inspect_err(|_| self.gateway.metrics.throttled(BROKER_READS))?;
        self.in_flight.set_broker_read(permit);
        let accept = headers.get(header::ACCEPT);
        let client = ReadClient { accept, request_id: &info.id, address: info.address };
        let response = tokio::select! {
            // The first poll may write the request, so a closed request is not polled.
            biased;
            reason = self.in_flight.closed() => return Err(cancelled_request(reason)),
            response = self.cluster.read_as_broker(read, client) => response,
        };
        let response = response.inspect_err(|error| self.count_error(error))?;
        match response.status() {
            // A client would take these for a refusal of its own credential.
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(ApiError::new(
                Code::ClusterRefused,
                format!(
                    "the API server does not let the broker list {}; an operator has to run \
                     `tenant-broker install --apply`",
                    read.resource().resource()
                ),
            )),
            _ => Ok(response),
        }
    }
}
