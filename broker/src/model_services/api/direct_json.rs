//! JSON responses that may be large. [`poem_openapi::payload::Json`] builds a value of the whole
//! response, which takes many times its memory; here the memory of the text is reserved before the
//! first byte of it is written.

use std::{
    io::{self, Write},
    marker::PhantomData,
};

use bytes::Bytes;
use poem::{IntoResponse, Response};
use poem_openapi::{
    ApiResponse,
    payload::{Json, Payload as _},
    registry::{MetaResponses, Registry},
    types::ToJSON,
};
use serde::Serialize;

use super::large_response;
use crate::model_services::{
    Failure, ModelServices,
    limits::{MAX_RESPONSE_BYTES, UnsentReservation},
};

/// A JSON response, which has the type `T` in the OpenAPI document.
#[derive(Debug)]
pub(super) struct DirectJson<T> {
    text: Bytes,
    reservation: Option<UnsentReservation>,
    documented: PhantomData<fn() -> T>,
}

/// Counts the bytes of a text, up to the largest response.
#[derive(Default)]
struct Length(usize);

impl Write for Length {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(data.len());
        if self.0 > MAX_RESPONSE_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ModelServices {
    /// A response with this value. The memory of the value has to be held until this returns.
    ///
    /// # Errors
    /// The response is too large; too many large responses are not sent yet.
    pub(super) fn json<T>(&self, value: &impl Serialize) -> Result<DirectJson<T>, Failure> {
        let mut length = Length::default();
        serde_json::to_writer(&mut length, value)
            .map_err(|error| Failure::internal(format!("the response is too large: {error}")))?;
        let reservation = self.reserve_response(length.0)?;
        let mut text = Vec::with_capacity(length.0);
        serde_json::to_writer(&mut text, value).map_err(|error| Failure::internal_error(&error))?;
        Ok(DirectJson { text: text.into(), reservation, documented: PhantomData })
    }
}

impl<T> IntoResponse for DirectJson<T> {
    fn into_response(self) -> Response {
        let response = large_response::response(self.text, self.reservation);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_counted_up_to_the_largest_response() {
        let mut length = Length::default();
        serde_json::to_writer(&mut length, &["a\n", "é"]).unwrap();
        assert_eq!(length.0, r#"["a\n","é"]"#.len());
        let part = "x".repeat(1024 * 1024);
        let parts = vec![part.as_str(); MAX_RESPONSE_BYTES / part.len()];
        let mut length = Length::default();
        assert!(serde_json::to_writer(&mut length, &parts).is_err());
        assert!(length.0 <= MAX_RESPONSE_BYTES + part.len());
    }
}
