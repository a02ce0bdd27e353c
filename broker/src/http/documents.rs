//! Responses that are documents: YAML and JSON Lines.

use poem::{IntoResponse, Response, http::header};
use poem_openapi::{
    ApiResponse,
    payload::Payload,
    registry::{MetaMediaType, MetaResponse, MetaResponses, MetaSchema, MetaSchemaRef, Registry},
};
use secrecy::{ExposeSecret as _, SecretString};

/// A YAML document that may contain secrets. Browsers save it as `kubeconfig`.
#[derive(Debug)]
pub struct Yaml(pub SecretString);

const YAML: &str = "application/x-yaml";

impl IntoResponse for Yaml {
    fn into_response(self) -> Response {
        Response::builder()
            .content_type(YAML)
            .header(header::CONTENT_DISPOSITION, "attachment; filename=\"kubeconfig\"")
            .body(self.0.expose_secret().to_owned())
    }
}

impl Payload for Yaml {
    const CONTENT_TYPE: &'static str = YAML;

    fn schema_ref() -> MetaSchemaRef {
        MetaSchemaRef::Inline(Box::new(MetaSchema::new("string")))
    }
}

impl ApiResponse for Yaml {
    fn meta() -> MetaResponses {
        MetaResponses {
            responses: vec![MetaResponse {
                description: "A kubeconfig.",
                status: Some(200),
                status_range: None,
                content: vec![MetaMediaType {
                    content_type: YAML,
                    schema: <Self as Payload>::schema_ref(),
                }],
                headers: vec![],
            }],
        }
    }

    fn register(_: &mut Registry) {}
}

/// Text with one JSON object per line.
#[derive(Debug)]
pub struct JsonLines(pub String);

/// The media type that log collectors know (<https://jsonlines.org>); none is registered.
const JSON_LINES: &str = "application/jsonl";

impl IntoResponse for JsonLines {
    fn into_response(self) -> Response {
        Response::builder().content_type(JSON_LINES).body(self.0)
    }
}

impl Payload for JsonLines {
    const CONTENT_TYPE: &'static str = JSON_LINES;

    fn schema_ref() -> MetaSchemaRef {
        MetaSchemaRef::Inline(Box::new(MetaSchema::new("string")))
    }
}

impl ApiResponse for JsonLines {
    fn meta() -> MetaResponses {
        MetaResponses {
            responses: vec![MetaResponse {
                description: "JSON Lines.",
                status: Some(200),
                status_range: None,
                content: vec![MetaMediaType {
                    content_type: JSON_LINES,
                    schema: <Self as Payload>::schema_ref(),
                }],
                headers: vec![],
            }],
        }
    }

    fn register(_: &mut Registry) {}
}
