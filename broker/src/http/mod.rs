//! HTTP: the outer stack that every request passes, error responses, CORS, the access log, pages, and
//! extractors and payloads of the API.

mod access_log;
mod authenticated;
pub mod body;
mod cors;
mod documents;
mod error;
mod error_format;
mod error_map;
mod merged_paths;
mod optional_json;
mod outer;
pub(crate) mod page;
mod poem_service;
pub(crate) mod query;
mod read_body;
mod steps_response;
mod trusted_proxies;
mod workspace_response;

pub use self::{
    access_log::{AccessLogLine, Details, Forwarded},
    authenticated::{
        Authenticated, AuthenticatedForWorkspace, SECURITY_SCHEMES, register_security_schemes,
    },
    body::Body,
    documents::{JsonLines, Yaml},
    error::ApiError,
    error_format::{ErrorFormat, failure_response, is_model_services},
    merged_paths::MergedPaths,
    optional_json::OptionalJson,
    outer::{OuterStack, REQUEST_ID_HEADER},
    poem_service::{PoemService, call as call_poem},
    read_body::{KnownCallers, MAX_BODY_BYTES, ReadBody},
    steps_response::StepsResponse,
    trusted_proxies::TrustedProxies,
    workspace_response::WorkspaceResponse,
};

/// Path below which the HTTP API is.
pub const API_PATH: &str = "/api/v1";
