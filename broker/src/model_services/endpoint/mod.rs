//! Endpoint of a model, as a Llama Stack server addresses it: a URL that ends with `/v1`.

use serde::Deserialize;
use url::Url;

use super::{
    inference::{InferenceService, LlmInferenceService, ObjectMeta},
    known_keys::ENABLE_AUTH,
    lenient::{lenient_objects, read},
    model_url,
    owners::OwnedMeta,
};

/// The port on which a model serves if its Service names none.
const DEFAULT_PORT: u16 = 8080;
/// Maximum length of the value of a label, in bytes. A longer one in a selector is an error.
const MAX_LABEL_VALUE_BYTES: usize = 63;
/// Path of the OpenAI-compatible API.
const API_SEGMENT: &str = "v1";

/// A model that cannot be used now, or not at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EndpointError {
    /// KServe has given it no address yet.
    #[error("model {0} has no address yet; wait until KServe has started it")]
    NotReady(String),
    /// Its address is not an http(s) URL with a host, or has a query, a fragment or a user.
    #[error(
        "the address of model {0} cannot be used: it has to be an http(s) URL with a host of at \
             most 253 bytes, without user, query and fragment"
    )]
    Unusable(String),
    /// Llama Stack would replace a part of the text by an environment variable, which may be the
    /// token of a model.
    #[error("the {what} of model {model} has ${{ in it, which Llama Stack would replace")]
    Placeholder {
        /// Name of the model.
        model: String,
        /// The text in question: `address` or `name`.
        what: &'static str,
    },
}

/// Whether Llama Stack replaces a part of the text: `${env.NAME}`, `${env.NAME:=default}`.
pub(super) fn has_placeholder(text: &str) -> bool {
    text.contains("${")
}

/// A Service of a model.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Service {
    #[serde(deserialize_with = "read")]
    pub(super) metadata: OwnedMeta,
    #[serde(deserialize_with = "read")]
    spec: ServiceSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ServiceSpec {
    #[serde(rename = "clusterIP", deserialize_with = "read")]
    cluster_ip: String,
    #[serde(deserialize_with = "read")]
    ports: Vec<ServicePort>,
}

/// A port whose target is a number. The name of a target is the default, 0.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ServicePort {
    #[serde(deserialize_with = "read")]
    target_port: u16,
}

lenient_objects!(Service, ServiceSpec, ServicePort);

impl Service {
    fn is_headless(&self) -> bool {
        self.spec.cluster_ip == "None"
    }

    fn serving_port(&self) -> u16 {
        match self.spec.ports.first() {
            Some(port) if port.target_port != 0 => port.target_port,
            _ => DEFAULT_PORT,
        }
    }
}

/// The label selectors of a model's Services, in the order in which they count: the second one is
/// for a model that has no Service by the first. There are none if no label can have the name.
pub(super) fn service_selectors(model: &str) -> Option<[String; 2]> {
    (model.len() <= MAX_LABEL_VALUE_BYTES).then(|| {
        [
            format!("serving.kserve.io/inferenceservice={model}"),
            format!(
                "app.kubernetes.io/name={model},\
                 app.kubernetes.io/component=llminferenceservice-workload"
            ),
        ]
    })
}

/// The Service of a model among those that a selector finds, because everybody who may write
/// Services may give one the label. It is owned by the model. Of several it is the one that the
/// model's URL names, otherwise the first by name.
pub(super) fn choose_service(services: Vec<Service>, uid: &str, url: &str) -> Option<Service> {
    let host = model_url::parse(url).and_then(|url| url.host_str().map(str::to_owned));
    let name = host.as_deref().and_then(|host| host.split('.').next());
    let owned = services.into_iter().filter(|service| service.metadata.is_owned_by_uid(uid));
    owned.min_by_key(|service| {
        let other = Some(service.metadata.name.as_str()) != name;
        (other, service.metadata.name.clone())
    })
}

/// The endpoint of an InferenceService: its internal URL, with the port of a headless Service.
///
/// # Errors
/// It has no URL, or one that cannot be used.
pub(super) fn of_inference_service(
    model: &InferenceService,
    service: Option<&Service>,
) -> Result<String, EndpointError> {
    let name = &model.metadata.name;
    let text = model.internal_url();
    if text.is_empty() {
        return Err(EndpointError::NotReady(name.clone()));
    }
    if has_placeholder(text) {
        return Err(EndpointError::Placeholder { model: name.clone(), what: "address" });
    }
    let address = Address::parse(text).ok_or_else(|| EndpointError::Unusable(name.clone()))?;
    let scheme = if has_auth(&model.metadata) { address.scheme } else { "http" };
    let headless_port = service.filter(|it| it.is_headless()).map(Service::serving_port);
    let port = address.port.or(headless_port).map_or_else(String::new, |port| format!(":{port}"));
    Ok(format!("{scheme}://{}{port}{}/{API_SEGMENT}", address.host, address.path))
}

/// The endpoint of an LLMInferenceService: its Service.
///
/// # Errors
/// It has no Service.
pub(super) fn of_llm_inference_service(
    model: &LlmInferenceService,
    namespace: &str,
    service: Option<&Service>,
) -> Result<String, EndpointError> {
    let Some(service) = service else {
        return Err(EndpointError::NotReady(model.metadata.name.clone()));
    };
    let scheme = if has_auth(&model.metadata) { "https" } else { "http" };
    Ok(format!(
        "{scheme}://{}.{namespace}.svc.cluster.local:{}/{API_SEGMENT}",
        service.metadata.name,
        service.serving_port()
    ))
}

fn has_auth(model: &ObjectMeta) -> bool {
    model.annotation(ENABLE_AUTH) == "true"
}

/// The parts of a model's URL.
struct Address {
    scheme: &'static str,
    host: String,
    /// The port if the text names one, also the scheme's own, which `Url` leaves out: `https` with
    /// port 443 may become `http`.
    port: Option<u16>,
    /// The path without empty segments, without a final slash and without `v1` at its end.
    path: String,
}

impl Address {
    fn parse(text: &str) -> Option<Self> {
        // `Url` skips spaces and control characters, takes `\` for `/`, and reads `http:a` as
        // `http://a`. None of them belongs into a URL.
        if text.chars().any(|char| char.is_whitespace() || char.is_control() || char == '\\') {
            return None;
        }
        let url = model_url::parse(text)?;
        let scheme = match url.scheme() {
            "http" => "http",
            "https" => "https",
            _ => return None,
        };
        let (_, rest) = text.split_once("://")?;
        let authority = rest.split(['/', '?', '#']).next()?;
        if authority.contains('@') || text.contains(['?', '#']) {
            return None;
        }
        // `Url` decodes `%7B` in a host, so that `$%7B` becomes a placeholder of Llama Stack.
        let host = url.host_str().filter(|host| is_host(host))?.to_owned();
        Some(Self { scheme, host, port: port(authority), path: path(&url) })
    }
}

/// Whether a text is a DNS name or an IP address. The brackets of an IPv6 address are part of it.
fn is_host(text: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    !text.is_empty() && text.bytes().all(is_known)
}

/// The port that an authority without a user names.
fn port(authority: &str) -> Option<u16> {
    let after_host = authority.rsplit_once(']').map_or(authority, |(_, rest)| rest);
    after_host.rsplit_once(':')?.1.parse().ok()
}

fn path(url: &Url) -> String {
    let mut segments: Vec<&str> = url.path().split('/').filter(|it| !it.is_empty()).collect();
    while segments.last() == Some(&API_SEGMENT) {
        segments.pop();
    }
    segments.iter().flat_map(|segment| ["/", segment]).collect()
}

#[cfg(test)]
mod tests;
