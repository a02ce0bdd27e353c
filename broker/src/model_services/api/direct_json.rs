//! JSON responses that may be large. [`poem_openapi::payload::Json`] builds a value of the whole
//! response, which takes many times its memory. Here the text is written directly, within memory that is
//! reserved for it.

use std::marker::PhantomData;

use poem::{IntoResponse, Response};
use poem_openapi::{
    ApiResponse,
    payload::{Json, Payload as _},
    registry::{MetaResponses, Registry},
    types::ToJSON,
};
use serde::Serialize;

use super::{
    large_response,
    response_text::{ResponseText, TextError, write},
};
use crate::model_services::{
    Failure, ModelServices,
    limits::{MAX_RESPONSE_BYTES, UnsentError},
};

/// The largest text that is written without a thread of its own, in bytes. A longer one takes
/// milliseconds.
const MAX_DIRECT_BYTES: usize = 256 * 1024;

/// A JSON response, which has the type `T` in the OpenAPI document.
#[derive(Debug)]
pub(super) struct DirectJson<T> {
    text: ResponseText,
    documented: PhantomData<fn() -> T>,
}

impl ModelServices {
    /// A response with this value. `held` has the memory of the value, also for a thread that writes
    /// it, because a client that leaves does not end that.
    ///
    /// # Errors
    /// The response is too large; too many large responses are not sent yet.
    pub(super) async fn json<T>(
        &self,
        value: impl Serialize + Send + 'static,
        held: impl Send + 'static,
    ) -> Result<DirectJson<T>, Failure> {
        let mut text = write(&value, self.begin_response(), MAX_DIRECT_BYTES);
        if matches!(text, Err(TextError::NotReserved(UnsentError::TooLarge))) {
            let reservation = self.begin_response();
            let written = tokio::task::spawn_blocking(move || {
                let text = write(&value, reservation, MAX_RESPONSE_BYTES);
                drop(value);
                drop(held);
                text
            });
            text = written.await.map_err(|error| Failure::internal_error(&error))?;
        }
        Ok(DirectJson { text: text?, documented: PhantomData })
    }
}

impl<T> IntoResponse for DirectJson<T> {
    fn into_response(self) -> Response {
        let response = large_response::response(self.text);
        response.with_content_type(Json::<bool>::CONTENT_TYPE).into_response()
    }
}

impl<T: ToJSON> ApiResponse for DirectJson<T> {
    fn meta() -> MetaResponses {
        Json::<T>::meta()
    }

    fn register(registry: &mut Registry) {
        <Json<T> as ApiResponse>::register(registry);
    }
}
