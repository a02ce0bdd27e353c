//! Extractors of the caller. They run before anything else of a request is read, so that strangers
//! learn nothing.

use poem::{
    Request, RequestBody,
    http::{Method, StatusCode},
};
use poem_openapi::{
    ApiExtractor, ApiExtractorType, ExtractParamOptions,
    registry::{MetaParamIn, MetaSchemaRef, Registry},
    types::Type,
};
use tenant_shared::is_dns_label;
use url::form_urlencoded;

use crate::{
    audit::Action,
    gateway::Verb,
    http::{SECURITY_SCHEMES, register_security_schemes},
    model_services::{Failure, InNamespace, ModelServices, caller::ApiCaller},
};

/// Name of the parameter of operations in a namespace.
const NAMESPACE: &str = "namespace";

/// The caller of a request.
#[derive(Debug)]
pub(super) struct CallerOfRequest(pub(super) ApiCaller);

/// The namespace of a request, whose caller may use it. The review precedes the request's body.
#[derive(Debug)]
pub(super) struct ReviewedNamespace(pub(super) InNamespace);

fn register_schemes(registry: &mut Registry) {
    register_security_schemes(
        registry,
        "An access token of the broker's issuer, or a Kubernetes token of the caller's own, \
         which the API server checks (unless `model_services.kubernetes_tokens` is false).",
        "The session of a browser at the broker. Accepted only from the broker's own pages and \
         from the origins in `frontends.origins`.",
    );
}

/// The services in the request's data, where the routes put them.
fn services(request: &Request) -> Result<&ModelServices, Failure> {
    let services = request.data::<ModelServices>();
    services.ok_or_else(|| Failure::internal("the routes gave the API no ModelServices"))
}

impl<'a> ApiExtractor<'a> for CallerOfRequest {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::SecurityScheme];

    type ParamType = ();
    type ParamRawType = ();

    fn register(registry: &mut Registry) {
        register_schemes(registry);
    }

    fn security_schemes() -> Vec<&'static str> {
        SECURITY_SCHEMES.to_vec()
    }

    async fn from_request(
        request: &'a Request,
        _: &mut RequestBody,
        _: ExtractParamOptions<()>,
    ) -> poem::Result<Self> {
        let caller = services(request)?.caller(request.method(), request.headers()).await?;
        Ok(Self(caller))
    }
}

impl<'a> ApiExtractor<'a> for ReviewedNamespace {
    const TYPES: &'static [ApiExtractorType] =
        &[ApiExtractorType::SecurityScheme, ApiExtractorType::Parameter];
    const PARAM_IS_REQUIRED: bool = true;

    type ParamType = String;
    type ParamRawType = String;

    fn register(registry: &mut Registry) {
        register_schemes(registry);
    }

    fn security_schemes() -> Vec<&'static str> {
        SECURITY_SCHEMES.to_vec()
    }

    fn param_in() -> Option<MetaParamIn> {
        Some(MetaParamIn::Query)
    }

    fn param_schema_ref() -> Option<MetaSchemaRef> {
        Some(<String as Type>::schema_ref())
    }

    async fn from_request(
        request: &'a Request,
        _: &mut RequestBody,
        _: ExtractParamOptions<String>,
    ) -> poem::Result<Self> {
        let services = services(request)?;
        let caller = services.caller(request.method(), request.headers()).await?;
        let namespace = namespace(request.uri().query().unwrap_or_default())?;
        let (verb, audited) = match *request.method() {
            Method::POST => (Verb::Create, Some(Action::InstallLlamaStack)),
            Method::DELETE => (Verb::Delete, Some(Action::DeleteLlamaStack)),
            _ => (Verb::Get, None),
        };
        match (services.review(&caller, &namespace, verb).await, audited) {
            (Ok(reviewed), _) => Ok(Self(reviewed)),
            (Err(refused), Some(action)) if refused.failure.status() == StatusCode::FORBIDDEN => {
                Err(services.record_refused_review(caller, action, namespace, refused).await.into())
            }
            (Err(refused), _) => Err(refused.failure.into()),
        }
    }
}

/// The namespace that a query names.
fn namespace(query: &str) -> Result<String, Failure> {
    let mut named = form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == NAMESPACE);
    let (first, second) = (named.next(), named.next());
    match (first, second) {
        (Some((_, name)), None) if is_dns_label(&name) => Ok(name.into_owned()),
        (Some(_), Some(_)) => {
            Err(Failure::bad_request("the query parameter namespace is there more than once"))
        }
        (Some(_), None) => Err(Failure::bad_request(
            "the query parameter namespace is no name of a namespace: 1 to 63 lower-case letters, \
             digits and hyphens",
        )),
        (None, _) => Err(Failure::bad_request("the query parameter namespace is missing")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_a_dns_label_that_is_given_once() {
        assert_eq!(namespace("namespace=user-ns").unwrap(), "user-ns");
        assert_eq!(namespace("a=b&namespace=%75ser").unwrap(), "user");
        let long = format!("namespace={}", "a".repeat(64));
        for query in [
            "",
            "namespace",
            "namespace=",
            "namespace=a&namespace=a",
            "namespace=..",
            "namespace=a/b",
            "namespace=a%2fb",
            "namespace=A",
            "namespace=a.b",
            "namespace=-a",
            "namespace=a%00",
            "namespace=a%3fb",
            "Namespace=a",
            &long,
        ] {
            let failure = namespace(query).unwrap_err();
            assert_eq!(failure.status().as_u16(), 400, "{query}");
            assert!(failure.message().contains("namespace"), "{query}");
        }
    }
}
