//! The operations as an endpoint, which answers every request itself.

use poem::{
    Endpoint, EndpointExt as _, Response, Route,
    error::{MethodNotAllowedError, ResponseError as _},
    get, handler,
    http::{Method, StatusCode, header},
    middleware::CatchPanic,
    web::Json,
};
use poem_openapi::{OpenApi, OpenApiService};
use tenant_shared::{MODEL_SERVICES_PATH, ModelServicesHealth};

use super::{ModelServicesApi, health::available};
use crate::{
    http::{ApiError, ErrorFormat},
    model_services::{Failure, ModelServices},
};

/// Path of the health check besides that below [`MODEL_SERVICES_PATH`].
pub const HEALTH_PATH: &str = "/healthcheck";

/// The operations below [`MODEL_SERVICES_PATH`]. No error leaves this endpoint: each is a response in
/// the format of model services.
pub fn endpoint<T: OpenApi + 'static>(
    service: OpenApiService<T, ()>,
    services: &ModelServices,
) -> impl Endpoint<Output = Response> + use<T> {
    Route::new()
        .nest(MODEL_SERVICES_PATH, service)
        .at(HEALTH_PATH, get(health))
        .data(services.clone())
        .with(CatchPanic::new().with_handler(panicked))
        .map_to_response()
        .around({
            let services = services.clone();
            move |endpoint, request| {
                let services = services.clone();
                async move {
                    let path = request.uri().path().to_owned();
                    let answered = match endpoint.call(request).await {
                        Ok(answered) => services.reserve_response_memory(answered).await,
                        Err(error) => Err(error),
                    };
                    Ok(answered.unwrap_or_else(|error| response(error, &path)))
                }
            }
        })
}

/// The health check at the root of a listener.
#[handler]
fn health() -> Json<ModelServicesHealth> {
    Json(available())
}

/// The response to a request whose handler panicked. The panic itself is in the log.
fn panicked(_: Box<dyn std::any::Any + Send + 'static>) -> Response {
    Failure::internal("a handler panicked").as_response()
}

/// The response of an error of a handler, an extractor or the router.
fn response(error: poem::Error, path: &str) -> Response {
    if error.is::<Failure>() {
        return error.into_response();
    }
    let is_method = error.is::<MethodNotAllowedError>();
    let error = ApiError::from_poem(error);
    let mut response = match error.code().status() {
        // A body that is no JSON, or of another type.
        411 | 415 => Failure::bad_request(error.detail()).as_response(),
        _ => ErrorFormat::ModelServices.response(error),
    };
    if is_method || response.status() == StatusCode::METHOD_NOT_ALLOWED {
        let allowed = allowed_methods(path).join(", ");
        if let Ok(allowed) = allowed.parse() {
            response.headers_mut().insert(header::ALLOW, allowed);
        }
    }
    response
}

/// The methods of a path (RFC 9110 section 10.2.1).
fn allowed_methods(path: &str) -> Vec<&'static str> {
    let Some(path) = path.strip_prefix(MODEL_SERVICES_PATH) else { return Vec::new() };
    let paths = ModelServicesApi::meta().into_iter().flat_map(|api| api.paths);
    let operations = paths.filter(|known| known.path == path).flat_map(|known| known.operations);
    let name = |method: &Method| match *method {
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        _ => "GET",
    };
    operations.map(|operation| name(&operation.method)).collect()
}
