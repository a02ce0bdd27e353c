//! The models that KServe serves in a namespace.

use http::StatusCode;
use serde::Deserialize;

use super::{
    InNamespace,
    call::Call,
    call_kind::CallKind,
    failure::Failure,
    inference::{InferenceService, LlmInferenceService, Models, ObjectMetadata},
    lenient::{Lenient, lenient_objects, read},
    list::{List, Listed},
};

/// API group of KServe.
const GROUP: &str = "serving.kserve.io";
/// Label of models that people may pick.
const ASSET: &str = "opendatahub.io/genai-asset=true";
/// The largest answer of discovery.
const MAX_DISCOVERY_BYTES: usize = 1024 * 1024;

/// A kind of models: the plural name, and the versions in which it may be served, preferred first.
pub(super) struct ModelKind {
    pub(super) call: CallKind,
    pub(super) plural: &'static str,
    pub(super) versions: &'static [&'static str],
    /// For people.
    pub(super) name: &'static str,
}

pub(super) const INFERENCE_SERVICES: ModelKind = ModelKind {
    call: CallKind::InferenceServices,
    plural: "inferenceservices",
    versions: &["v1beta1"],
    name: "InferenceService",
};
pub(super) const LLM_INFERENCE_SERVICES: ModelKind = ModelKind {
    call: CallKind::LlmInferenceServices,
    plural: "llminferenceservices",
    versions: &["v1alpha1", "v1alpha2"],
    name: "LLMInferenceService",
};

impl ModelKind {
    /// Path of the objects of a namespace.
    pub(super) fn path(&self, version: &str, namespace: &str) -> String {
        format!("/apis/{GROUP}/{version}/namespaces/{namespace}/{}", self.plural)
    }
}

impl InNamespace {
    /// The models of the namespace that are labelled for people. A kind that is not installed has
    /// none. Their memory is held as long as this request.
    ///
    /// # Errors
    /// The caller may not list a kind; the API server does not answer; the namespace does not exist.
    pub(super) async fn models(&self) -> Result<Models, Failure> {
        let lists = async {
            tokio::try_join!(
                self.labelled::<InferenceService>(&INFERENCE_SERVICES),
                self.labelled::<LlmInferenceService>(&LLM_INFERENCE_SERVICES),
                self.runtimes(),
            )
        };
        // It counts only if there are no models, but a call after the lists would take as long as they
        // do.
        let (lists, existence) = tokio::join!(lists, self.require_existence());
        let (services, llm_services, runtimes) = lists?;
        if services.is_empty() && llm_services.is_empty() {
            existence?;
        }
        Ok(Models::new(services, llm_services, runtimes))
    }

    async fn labelled<T: Lenient + Send + 'static>(
        &self,
        kind: &ModelKind,
    ) -> Result<Vec<T>, Failure> {
        for version in kind.versions {
            let list = List::new(kind.call, kind.path(version, self.namespace())).labels(ASSET);
            match self.client().list(&list).await? {
                Listed::Objects(objects) => return Ok(objects),
                Listed::Forbidden if self.is_served(kind.plural, version).await? => {
                    let what = format!("you may not list objects of kind {}", kind.name);
                    return Err(Failure::forbidden_to(&what, self.namespace()));
                }
                Listed::Forbidden | Listed::NotFound => {}
            }
        }
        Ok(Vec::new())
    }

    /// The ServingRuntimes of the namespace. Models are shown without them if the caller may not list
    /// them.
    async fn runtimes(&self) -> Result<Vec<ObjectMetadata>, Failure> {
        let path =
            format!("/apis/{GROUP}/v1alpha1/namespaces/{}/servingruntimes", self.namespace());
        let list = List::new(CallKind::ServingRuntimes, path).metadata_only();
        match self.client().list(&list).await? {
            Listed::Objects(objects) => Ok(objects),
            Listed::NotFound | Listed::Forbidden => {
                tracing::debug!(
                    namespace = self.namespace(),
                    "models are shown without their runtimes, which the caller may not list"
                );
                Ok(Vec::new())
            }
        }
    }

    /// Whether the API server serves a kind, which discovery says to everybody who is signed in. To
    /// somebody without rights it says of a kind that is not installed that they may not list it.
    pub(super) async fn is_served(&self, plural: &str, version: &str) -> Result<bool, Failure> {
        let path = format!("/apis/{GROUP}/{version}");
        let call = Call::get(CallKind::Discovery, path).max_bytes(MAX_DISCOVERY_BYTES);
        let response = self.client().send(call).await?;
        match response.status {
            StatusCode::OK => {
                let list: ResourceList = response.json().await?;
                Ok(list.resources.iter().any(|resource| resource.name == plural))
            }
            StatusCode::NOT_FOUND => Ok(false),
            // Discovery is not open to this caller.
            StatusCode::FORBIDDEN => Ok(true),
            _ => Err(response.unexpected()),
        }
    }

    /// Checks that the namespace exists, as far as the caller may know.
    async fn require_existence(&self) -> Result<(), Failure> {
        let path = format!("/api/v1/namespaces/{}", self.namespace());
        let response = self.client().send(Call::get(CallKind::Namespace, path)).await?;
        match response.status {
            StatusCode::NOT_FOUND => {
                Err(Failure::not_found(format!("namespace {} does not exist", self.namespace())))
            }
            status if status.is_server_error() => Err(response.unexpected()),
            _ => Ok(()),
        }
    }
}

/// The part of an `APIResourceList` that counts.
#[derive(Debug, Deserialize)]
struct ResourceList {
    #[serde(default, deserialize_with = "read")]
    resources: Vec<ServedResource>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ServedResource {
    #[serde(deserialize_with = "read")]
    name: String,
}

lenient_objects!(ServedResource);
