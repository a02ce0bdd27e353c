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

/// Size from which a text is written in a thread of its own, because that takes milliseconds.
const LARGE_TEXT_BYTES: usize = 64 * 1024;

/// A JSON response, which has the type `T` in the OpenAPI document.
#[derive(Debug)]
pub(super) struct DirectJson<T> {
    text: Bytes,
    reservation: Option<UnsentReservation>,
    documented: PhantomData<fn() -> T>,
}

/// Counts the bytes of a text, up to a limit.
struct Length {
    bytes: usize,
    max: usize,
}

impl Write for Length {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.bytes = self.bytes.saturating_add(data.len());
        if self.bytes > self.max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Length of the text of a value.
///
/// # Errors
/// It is longer than `max`.
fn length(value: &impl Serialize, max: usize) -> serde_json::Result<usize> {
    let mut length = Length { bytes: 0, max };
    serde_json::to_writer(&mut length, value)?;
    Ok(length.bytes)
}

/// The text of a value, which has this length.
fn write(value: &impl Serialize, length: usize) -> serde_json::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(length);
    serde_json::to_writer(&mut text, value)?;
    Ok(text)
}

async fn in_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work);
    done.await.map_err(|error| Failure::internal_error(&error))
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
        let (text, reservation) = if let Ok(length) = length(&value, LARGE_TEXT_BYTES) {
            let reservation = self.reserve_response(length)?;
            (write(&value, length), reservation)
        } else {
            let counted = in_thread(move || {
                let length = length(&value, MAX_RESPONSE_BYTES);
                (length, value, held)
            });
            let (length, value, held) = counted.await?;
            let length = length.map_err(|error| {
                Failure::internal(format!("the response is too large: {error}"))
            })?;
            let reservation = self.reserve_response(length)?;
            let written = in_thread(move || {
                let text = write(&value, length);
                drop(value);
                drop(held);
                text
            });
            (written.await?, reservation)
        };
        let text = text.map_err(|error| Failure::internal_error(&error))?.into();
        Ok(DirectJson { text, reservation, documented: PhantomData })
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
        let text = r#"["a\n","é"]"#;
        assert_eq!(length(&["a\n", "é"], text.len()).unwrap(), text.len());
        assert_eq!(write(&["a\n", "é"], text.len()).unwrap(), text.as_bytes());
        assert!(length(&["a\n", "é"], text.len() - 1).is_err());
        let part = "x".repeat(1024 * 1024);
        let parts = vec![part.as_str(); MAX_RESPONSE_BYTES / part.len()];
        let mut length = Length { bytes: 0, max: MAX_RESPONSE_BYTES };
        assert!(serde_json::to_writer(&mut length, &parts).is_err());
        assert!(length.bytes <= MAX_RESPONSE_BYTES + part.len());
    }
}
