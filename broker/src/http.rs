//! What every request passes, in visible order: request id, body limit, the endpoint, failures as
//! problem details, security headers, one log line.

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

use crate::{
    clock::Clock,
    identity::{Identity, Origins, too_many},
    problem::{Failure, REQUEST, RequestFacts},
    proxy::TrustedProxies,
    telemetry::Metrics,
};

/// Bytes of a request body at most: every body here is a small form or JSON object.
pub const MOST_BODY_BYTES: usize = 64 * 1024;
/// How long a client may take to send it.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Characters of a `User-Agent` that are kept.
const MOST_USER_AGENT: usize = 200;
/// Name of the header that carries the request id back.
pub const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// The outer stack as a middleware.
#[derive(Clone, Debug)]
pub struct Outer {
    /// Names requests.
    pub clock: Clock,
    /// Counts them.
    pub metrics: Metrics,
    /// Whether people reach the broker over https, and browsers shall never try without.
    pub https: bool,
    /// The proxies whose word counts for where a request came from.
    pub proxies: TrustedProxies,
    /// Knows the secrets of people who are signed in, and limits everybody else.
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
        // Ours, never the client's: it becomes the Audit-ID of calls to the cluster.
        let id = self.outer.clock.random_id().to_string();
        let address = match request.remote_addr() {
            RemoteAddr(poem::Addr::SocketAddr(connection)) => {
                Some(self.outer.proxies.client(connection.ip(), request.headers()))
            }
            RemoteAddr(_) => None,
        };
        let facts = RequestFacts {
            id: id.clone(),
            address,
            user_agent: user_agent(&request),
            notes: RefCell::default(),
        };
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let (mut response, notes) = REQUEST
            .scope(facts, async {
                let mut response = self.answer(request).await;
                if response.status() == StatusCode::NOT_FOUND && is_kubernetes_discovery(&path) {
                    response = self.no_kubernetes_here();
                }
                let notes = REQUEST.with(|facts| facts.notes.take());
                (response, notes)
            })
            .await;
        finish(&mut response, &id, self.outer.https);
        let (status, took) = (response.status().as_u16(), began.elapsed());
        self.outer.metrics.request(&method, &path, status, took.as_secs_f64());
        log(&Line { id: &id, address, method: method.as_str(), path: &path, status, took, notes });
        Ok(response)
    }
}

impl<E: Endpoint> OuterEndpoint<E> {
    async fn answer(&self, mut request: Request) -> Response {
        let place = if self.outer.identity.presents_known_secret(request.headers()) {
            None
        } else {
            match self.outer.identity.limits().read_body() {
                Ok(place) => Some(place),
                Err(limit) => return too_many(limit).into_response(),
            }
        };
        let read = tokio::time::timeout(BODY_TIMEOUT, read_body(&mut request)).await;
        drop(place);
        match read {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => return failure.into_response(),
            Err(_) => {
                return Failure::new(Code::InvalidRequest, "the body did not arrive in 10 s")
                    .into_response();
            }
        }
        match self.endpoint.call(request).await {
            Ok(response) => response.into_response(),
            Err(error) => Failure::from_poem(error).into_response(),
        }
    }
}

impl<E> OuterEndpoint<E> {
    /// What a client of Kubernetes is told that has the broker's address without the gateway's path.
    /// It is plain text for people: client-go has a text of its own for a 404, whatever the body says.
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

/// Whether a client of Kubernetes asks here which APIs there are.
fn is_kubernetes_discovery(path: &str) -> bool {
    matches!(
        path.trim_end_matches('/'),
        "/api" | "/apis" | "/version" | "/openapi/v2" | "/openapi/v3"
    ) || path.starts_with("/apis/")
}

/// What the client says it is, short enough to be kept.
fn user_agent(request: &Request) -> Option<String> {
    let text = request.header(header::USER_AGENT)?;
    Some(text.chars().filter(|c| !c.is_control()).take(MOST_USER_AGENT).collect())
}

/// Bytes of a body that is too large that are read all the same.
const MOST_DISCARDED: u64 = 1024 * 1024;

/// Reads the body whole, within its limit, so that no handler has to think of it.
async fn read_body(request: &mut Request) -> Result<(), Failure> {
    let too_large = || {
        Failure::new(Code::PayloadTooLarge, format!("a body has {MOST_BODY_BYTES} bytes at most"))
    };
    let mut body = request.take_body().into_async_read();
    let mut bytes = Vec::new();
    let most = MOST_BODY_BYTES as u64;
    let read = (&mut body).take(most + 1).read_to_end(&mut bytes).await;
    read.map_err(|_| Failure::new(Code::InvalidRequest, "the body was cut off"))?;
    if bytes.len() > MOST_BODY_BYTES {
        // Who is still sending would not see the answer, only that the connection breaks.
        let _ = tokio::io::copy(&mut body.take(MOST_DISCARDED), &mut tokio::io::sink()).await;
        return Err(too_large());
    }
    request.set_body(Body::from(bytes));
    Ok(())
}

/// Lets pages of frontends call the API, and those of no other origin (Fetch Standard, "CORS
/// protocol"). The request itself is judged by [`Origins::check`] as well: a browser asks before it
/// sends only some requests.
pub fn for_frontends<E>(api: E, origins: &Origins) -> impl Endpoint<Output = Response> + use<E>
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
    // A page is to read failures too, so they become answers in here.
    api.into_endpoint()
        .catch_all_error(|error| async { Failure::from_poem(error).into_response() })
        .with(cors)
}

fn finish(response: &mut Response, id: &str, https: bool) {
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(REQUEST_ID_HEADER, id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if https {
        // RFC 6797; a year, as browsers' lists want it.
        let value = HeaderValue::from_static("max-age=31536000");
        headers.insert(header::STRICT_TRANSPORT_SECURITY, value);
    }
    // Pages say themselves what they may load; nothing else is to be shown as a page at all.
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"));
    // Most answers are secret or personal; the few that may be kept say so themselves.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

struct Line<'a> {
    id: &'a str,
    address: Option<std::net::IpAddr>,
    method: &'a str,
    path: &'a str,
    status: u16,
    took: Duration,
    notes: Vec<(&'static str, String)>,
}

/// One line a request. The query is left out, for the issuer's carries what is secret.
fn log(line: &Line<'_>) {
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

/// A JSON body that may be left out; then it is the default.
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
        let bytes = body.take()?.into_bytes_limit(MOST_BODY_BYTES).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        let media_type = request.content_type().unwrap_or_default();
        if !Self::check_content_type(media_type) {
            return Err(Failure::of_status(StatusCode::UNSUPPORTED_MEDIA_TYPE, "").into());
        }
        *body = RequestBody::new(Body::from(bytes));
        <Self as ParsePayload>::from_request(request, body).await
    }
}

/// A YAML document that may be secret; saved as `kubeconfig` by a browser.
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

/// Text with one JSON object a line.
#[derive(Debug)]
pub struct JsonLines(pub String);

/// The name that log collectors know (<https://jsonlines.org>); none is registered.
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
