//! Requests to the cluster's API server through the broker's gateway.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::Value;
use tenant_shared::GATEWAY_PATH;

use crate::{
    broker::Broker,
    error::Error,
    failure_message,
    http::{Response, TOTAL_TIMEOUT},
};

/// How often a request is sent again after a 429 or 5xx with `Retry-After`. client-go allows 10.
const MAX_RETRIES: usize = 5;
/// Limit of all pauses between these requests together.
const MAX_PAUSE: Duration = TOTAL_TIMEOUT;

/// An answer of the API server, or of the gateway in its place.
pub(crate) struct KubernetesResponse {
    pub(crate) status: StatusCode,
    /// The object, or the `Status` of a failure (API reference, meta/v1).
    pub(crate) object: Value,
}

impl KubernetesResponse {
    /// The object, or an error if the request was not successful.
    pub(crate) fn accepted(self) -> Result<Value, Error> {
        if self.status.is_success() { Ok(self.object) } else { Err(self.refusal()) }
    }

    fn refusal(&self) -> Error {
        let message = failure_message::of_status(&self.object).unwrap_or("no reason is given");
        Error::refused(format!("the cluster refused ({}): {message}", self.status.as_u16()))
    }
}

impl Broker {
    /// Sends a request to the API server of a cluster; `path` begins with `/api`. A refusal is no
    /// error, except for one that asks for a sign-in. A 429 or 5xx with `Retry-After` is retried,
    /// whatever the method, as kubectl does: the gateway closes requests whose token was just
    /// replaced and expects its clients to send them again.
    pub(crate) async fn kubernetes(
        &self,
        method: Method,
        cluster: &str,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<KubernetesResponse, Error> {
        let path = format!("{GATEWAY_PATH}{cluster}{path}");
        let accept = |response: Response| {
            if response.status() != StatusCode::UNAUTHORIZED {
                return Ok(response);
            }
            let status: Option<Value> = serde_json::from_slice(response.body()).ok();
            let why = status.as_ref().and_then(failure_message::of_status);
            let why = why.unwrap_or("the gateway asks for a sign-in");
            Err(self.account.sign_in_error(why))
        };
        let (mut retries, mut paused) = (0, Duration::ZERO);
        let response = loop {
            let error = match self.call_at(method.clone(), &path, body.clone(), accept).await {
                Ok(response) => break response,
                Err(error) => error,
            };
            let Some(pause) = error.retry_after else { return Err(error) };
            (retries, paused) = (retries + 1, paused + pause);
            if retries > MAX_RETRIES || paused > MAX_PAUSE {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
        };
        let status = response.status();
        // A proxy or a captive portal in between answers with a page.
        let object: Option<Value> = serde_json::from_slice(response.body()).ok();
        let object = object.filter(Value::is_object).ok_or_else(|| {
            Error::unreachable(format!(
                "the gateway of {} answered {status}, but not as a cluster does",
                self.account.broker
            ))
            .hint("check the address; the broker may be too old for this command")
        })?;
        Ok(KubernetesResponse { status, object })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::Kind;

    #[test]
    fn a_refusal_has_the_message_of_its_status() {
        let status = json!({"kind": "Status", "message": "pods is forbidden"});
        let response = KubernetesResponse { status: StatusCode::FORBIDDEN, object: status };
        let error = response.accepted().unwrap_err();
        assert_eq!(error.kind, Kind::Refused);
        assert_eq!(error.message, "the cluster refused (403): pods is forbidden");
        let object = json!({"kind": "Namespace"});
        let response = KubernetesResponse { status: StatusCode::OK, object: object.clone() };
        assert_eq!(response.accepted().unwrap(), object);
    }
}
