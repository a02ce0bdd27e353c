//! Optional JSON bodies of requests.

use poem::{Body, Request, RequestBody, http::StatusCode};
use poem_openapi::{
    payload::{Json, ParsePayload, Payload},
    registry::{MetaMediaType, MetaSchemaRef, Registry},
    types::{ParseFromJSON, Type},
};

use super::{ApiError, MAX_BODY_BYTES};

/// An optional JSON body; the default if it is left out.
#[derive(Debug)]
pub struct OptionalJson<T>(pub T);

impl<T: Type> Payload for OptionalJson<T> {
    const CONTENT_TYPE: &'static str = <Json<T> as Payload>::CONTENT_TYPE;

    fn check_content_type(content_type: &str) -> bool {
        Json::<T>::check_content_type(content_type)
    }

    fn schema_ref() -> MetaSchemaRef {
        T::schema_ref()
    }

    fn register(registry: &mut Registry) {
        T::register(registry);
    }
}

impl<T: ParseFromJSON> ParsePayload for OptionalJson<T> {
    const IS_REQUIRED: bool = false;

    async fn from_request(request: &Request, body: &mut RequestBody) -> poem::Result<Self> {
        Json::<T>::from_request(request, body).await.map(|json| Self(json.0))
    }
}

impl<'a, T: ParseFromJSON + Default> poem_openapi::ApiExtractor<'a> for OptionalJson<T> {
    const TYPES: &'static [poem_openapi::ApiExtractorType] =
        &[poem_openapi::ApiExtractorType::RequestObject];

    type ParamType = ();
    type ParamRawType = ();

    fn register(registry: &mut Registry) {
        <Self as Payload>::register(registry);
    }

    fn request_meta() -> Option<poem_openapi::registry::MetaRequest> {
        Some(poem_openapi::registry::MetaRequest {
            description: None,
            content: vec![MetaMediaType {
                content_type: <Self as Payload>::CONTENT_TYPE,
                schema: <Self as Payload>::schema_ref(),
            }],
            required: false,
        })
    }

    async fn from_request(
        request: &'a Request,
        body: &mut RequestBody,
        _: poem_openapi::ExtractParamOptions<()>,
    ) -> poem::Result<Self> {
        let bytes = body.take()?.into_bytes_limit(MAX_BODY_BYTES).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        let media_type = request.content_type().unwrap_or_default();
        if !Self::check_content_type(media_type) {
            return Err(ApiError::from_status(StatusCode::UNSUPPORTED_MEDIA_TYPE, "").into());
        }
        *body = RequestBody::new(Body::from(bytes));
        <Self as ParsePayload>::from_request(request, body).await
    }
}
