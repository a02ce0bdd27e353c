//! The response of operations whose steps the broker retries.

use poem_openapi::{ApiResponse, payload::Json, types::ToJSON};

/// Response of a suspension, resumption or revocation.
#[derive(ApiResponse)]
pub enum StepsResponse<T: ToJSON> {
    /// Every step is done, or there was nothing to do.
    #[oai(status = 200)]
    Done(Json<T>),
    /// The decision is recorded; the broker retries the open steps.
    #[oai(status = 202)]
    Open(Json<T>),
}

impl<T: ToJSON> StepsResponse<T> {
    /// The response with this body; `is_done` is whether no step is open.
    pub fn new(body: T, is_done: bool) -> Self {
        if is_done { Self::Done(Json(body)) } else { Self::Open(Json(body)) }
    }
}
