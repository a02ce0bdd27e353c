//! The outer HTTP stack of pages and API, in this order: request id, body limit, the endpoint,
//! errors as problem details, security headers, one log line.

pub(crate) mod cookie;
mod error;
pub(crate) mod page;
pub(crate) mod query;
pub mod server;
pub mod trusted_proxies;

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};
use tokio::io::AsyncReadExt as _;

use poem::{
    Body, Endpoint, EndpointExt as _, IntoEndpoint, IntoResponse, Middleware, Request, RequestBody,
    Response,
    http::{HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::Cors,
    web::RemoteAddr,
};
use poem_openapi::{
    ApiResponse,
    payload::{Json, ParsePayload, Payload},
    registry::{MetaMediaType, MetaResponse, MetaResponses, MetaSchema, MetaSchemaRef, Registry},
    types::{ParseFromJSON, Type},
};
use secrecy::{ExposeSecret as _, SecretString};
use tenant_shared::{Code, GATEWAY_PATH};

pub use self::error::{ApiError, SIGN_IN};
use self::trusted_proxies::TrustedProxies;
use crate::{
    base::{
        clock::Clock,
        request_context::{REQUEST, RequestContext},
        telemetry::Metrics,
    },
    identity::{Identity, Origins, too_many},
};

/// Limit of a request body in bytes: every body here is a small form or JSON object.
pub const MAX_BODY_BYTES: usize = 64 * 1024;
/// Timeout of receiving a request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Length to which a `User-Agent` is truncated, in characters.
const MAX_USER_AGENT_CHARS: usize = 200;
/// Response header with the request id.
pub const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// The outer stack as a middleware.
#[derive(Clone, Debug)]
pub struct Outer {
    /// Source of request ids.
    pub clock: Clock,
    /// Counts requests and their duration.
    pub metrics: Metrics,
    /// Whether people reach the broker over HTTPS; then responses have HSTS.
    pub https: bool,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub proxies: TrustedProxies,
    /// Knows the secrets of recent sessions, and limits requests without one.
    pub identity: Identity,
    /// Name of the cluster behind the gateway.
    pub cluster: String,
}

impl<E: Endpoint> Middleware<E> for Outer {
    type Output = OuterEndpoint<E>;

    fn transform(&self, endpoint: E) -> Self::Output {
        OuterEndpoint { outer: self.clone(), endpoint }
    }
}

/// An endpoint inside the outer stack.
#[derive(Debug)]
pub struct OuterEndpoint<E> {
    outer: Outer,
    endpoint: E,
}

impl<E: Endpoint> Endpoint for OuterEndpoint<E> {
    type Output = Response;

    async fn call(&self, request: Request) -> poem::Result<Response> {
        let began = Instant::now();
        // Never an id of the client: it becomes the Audit-ID of calls to the cluster.
        let id = self.outer.clock.random_id().to_string();
        let address = match request.remote_addr() {
            RemoteAddr(poem::Addr::SocketAddr(connection)) => {
                Some(self.outer.proxies.client(connection.ip(), request.headers()))
            }
            RemoteAddr(_) => None,
        };
        let context = RequestContext {
            id: id.clone(),
            address,
            user_agent: user_agent(&request),
            notes: RefCell::default(),
        };
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let (mut response, notes) = REQUEST
            .scope(context, async {
                let mut response = self.respond(request).await;
                if response.status() == StatusCode::NOT_FOUND && is_kubernetes_discovery(&path) {
                    response = self.no_kubernetes_here();
                }
                let notes = REQUEST.with(|context| context.notes.take());
                (response, notes)
            })
            .await;
        set_headers(&mut response, &id, self.outer.https);
        let (status, took) = (response.status().as_u16(), began.elapsed());
        self.outer.metrics.request(&method, &path, status, took.as_secs_f64());
        write_access_log(&AccessLogLine {
            id: &id,
            address,
            method: method.as_str(),
            path: &path,
            status,
            took,
            notes,
        });
        Ok(response)
    }
}

impl<E: Endpoint> OuterEndpoint<E> {
    async fn respond(&self, mut request: Request) -> Response {
        let permit = if self.outer.identity.presents_cached_secret(request.headers()) {
            None
        } else {
            match self.outer.identity.limits().read_body() {
                Ok(permit) => Some(permit),
                Err(limit) => return too_many(limit).into_response(),
            }
        };
        let read = tokio::time::timeout(BODY_TIMEOUT, read_body(&mut request)).await;
        drop(permit);
        match read {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => return failure.into_response(),
            Err(_) => {
                return ApiError::new(Code::InvalidRequest, "the body did not arrive in 10 s")
                    .into_response();
            }
        }
        match self.endpoint.call(request).await {
            Ok(response) => response.into_response(),
            Err(error) => ApiError::from_poem(error).into_response(),
        }
    }
}

impl<E> OuterEndpoint<E> {
    /// The 404 for a Kubernetes client that was given the broker's address without the gateway's
    /// path. It is plain text for people, because client-go prints a text of its own for a 404,
    /// whatever the body says.
    fn no_kubernetes_here(&self) -> Response {
        let text = format!(
            "this is the tenant-broker, and the Kubernetes API is below {GATEWAY_PATH}{}: add that path \
             to the server's address, and with kubectl proxy use --append-server-path\n",
            self.outer.cluster
        );
        Response::builder()
            .status(StatusCode::NOT_FOUND)
            .content_type("text/plain; charset=utf-8")
            .body(text)
    }
}

/// Whether this is a path of Kubernetes API discovery.
fn is_kubernetes_discovery(path: &str) -> bool {
    matches!(
        path.trim_end_matches('/'),
        "/api" | "/apis" | "/version" | "/openapi/v2" | "/openapi/v3"
    ) || path.starts_with("/apis/")
}

/// The `User-Agent` without control characters, truncated.
fn user_agent(request: &Request) -> Option<String> {
    let text = request.header(header::USER_AGENT)?;
    Some(text.chars().filter(|c| !c.is_control()).take(MAX_USER_AGENT_CHARS).collect())
}

/// Limit of bytes that are read and discarded of a body that is too large.
const MAX_DISCARDED_BYTES: u64 = 1024 * 1024;

/// Reads the whole body up to the limit, so that handlers need no limit of their own.
async fn read_body(request: &mut Request) -> Result<(), ApiError> {
    let too_large = || {
        ApiError::new(
            Code::PayloadTooLarge,
            format!("the body is larger than {MAX_BODY_BYTES} bytes"),
        )
    };
    let mut body = request.take_body().into_async_read();
    let mut bytes = Vec::new();
    let limit = MAX_BODY_BYTES as u64;
    let read = (&mut body).take(limit + 1).read_to_end(&mut bytes).await;
    read.map_err(|_| ApiError::new(Code::InvalidRequest, "the body is incomplete"))?;
    if bytes.len() > MAX_BODY_BYTES {
        // A client that is still sending would see a connection reset instead of the response.
        let _ = tokio::io::copy(&mut body.take(MAX_DISCARDED_BYTES), &mut tokio::io::sink()).await;
        return Err(too_large());
    }
    request.set_body(Body::from(bytes));
    Ok(())
}

/// Allows pages of the listed frontends, and of no other origin, to call the API (Fetch Standard,
/// "CORS protocol"). [`Origins::check`] checks the request itself as well, because browsers send a
/// preflight only before some requests.
pub fn with_cors<E>(api: E, origins: &Origins) -> impl Endpoint<Output = Response> + use<E>
where
    E: IntoEndpoint<Endpoint: 'static>,
{
    let origins = origins.clone();
    let cors = Cors::new()
        .allow_origins_fn(move |origin| origins.contains(origin))
        .allow_credentials(true)
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers([header::CONTENT_TYPE, header::AUTHORIZATION])
        .expose_headers([REQUEST_ID_HEADER, header::RETRY_AFTER, header::CONTENT_DISPOSITION])
        .max_age(600);
    // Errors become responses inside of the CORS layer, so that pages can read them too.
    api.into_endpoint()
        .catch_all_error(|error| async { ApiError::from_poem(error).into_response() })
        .with(cors)
}

/// Sets the request id and the security headers.
fn set_headers(response: &mut Response, id: &str, https: bool) {
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(REQUEST_ID_HEADER, id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if https {
        // RFC 6797; a year, which the preload lists of browsers require.
        let value = HeaderValue::from_static("max-age=31536000");
        headers.insert(header::STRICT_TRANSPORT_SECURITY, value);
    }
    // Pages set a policy of their own; no other response may be rendered as a page.
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"));
    // Most responses are secret or personal; the few that may be cached say so themselves.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

struct AccessLogLine<'a> {
    id: &'a str,
    address: Option<std::net::IpAddr>,
    method: &'a str,
    path: &'a str,
    status: u16,
    took: Duration,
    notes: Vec<(&'static str, String)>,
}

/// Writes the log line of a request, without the query, because queries of the issuer contain
/// secrets.
fn write_access_log(line: &AccessLogLine<'_>) {
    let notes: Vec<String> =
        line.notes.iter().map(|(field, value)| format!("{field}={value:?}")).collect();
    let notes = notes.join(" ");
    let address = line.address.map(|address| address.to_string()).unwrap_or_default();
    let duration_ms = (line.took.as_secs_f64() * 1e5).round() / 1e2;
    let path: String = line.path.chars().take(200).collect();
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                request_id = line.id,
                address,
                method = line.method,
                path,
                status = line.status,
                duration_ms,
                notes,
                "request"
            )
        };
    }
    if line.status >= 500 { line!(error) } else { line!(info) }
}

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
