//! Messages of failures whose format is not that of the broker's API.

use serde_json::Value;
use tenant_shared::ModelServicesFailure;

/// Message of a `Status` (API reference, meta/v1).
pub(crate) fn of_status(status: &Value) -> Option<&str> {
    status["message"].as_str().filter(|message| !message.is_empty())
}

/// Message of a failure of model services, in the body of a response.
pub(crate) fn of_model_services(body: &[u8]) -> Option<String> {
    let failure: ModelServicesFailure = serde_json::from_slice(body).ok()?;
    Some(failure.error.message).filter(|message| !message.is_empty())
}
