//! The objects of KServe as this API reads them, and their conversion to the types of the API.
//! Values are shown as they stand in the objects, long annotations cut; nothing is fetched from
//! them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer, de::SeqAccess, ser::SerializeStruct as _};
use tenant_shared::{AAModelStatus, SaToken};

use super::{
    known_keys::{
        DESCRIPTION, DISPLAY_NAME, KnownKeys, RUNTIME_NAME, RUNTIME_PROTOCOL, RUNTIME_VERSION,
        USE_CASE,
    },
    lenient::{
        Lenient, MAX_NAME_BYTES, MAX_URL_BYTES, for_each, lenient_objects, read, read_at_most,
    },
    model_url::{has_same_host, is_cluster_local},
};

/// What serves an LLMInferenceService, which names no ServingRuntime.
const LLM_RUNTIME: &str = "Distributed inference with llm-d";
const LLM_PROTOCOL: &str = "REST";

/// Metadata of an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ObjectMeta {
    #[serde(deserialize_with = "read_at_most::<MAX_NAME_BYTES, _>")]
    pub(super) name: String,
    #[serde(deserialize_with = "read")]
    pub(super) uid: String,
    #[serde(deserialize_with = "read")]
    pub(super) labels: KnownKeys,
    #[serde(deserialize_with = "read")]
    pub(super) annotations: KnownKeys,
}

impl ObjectMeta {
    /// Value of a known annotation; empty if it is not there.
    pub(super) fn annotation(&self, key: &str) -> &str {
        self.annotations.get(key).unwrap_or_default()
    }

    /// The name that people see: an annotation, otherwise the object's name.
    fn display_name(&self) -> &str {
        match self.annotation(DISPLAY_NAME) {
            "" => &self.name,
            name => name,
        }
    }
}

/// An object of which only the metadata is read (`PartialObjectMetadata`): a ServingRuntime, a
/// Secret, a namespace.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ObjectMetadata {
    #[serde(deserialize_with = "read")]
    pub(super) metadata: ObjectMeta,
}

/// An InferenceService (`serving.kserve.io/v1beta1`).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct InferenceService {
    #[serde(deserialize_with = "read")]
    pub(super) metadata: ObjectMeta,
    #[serde(deserialize_with = "read")]
    spec: InferenceServiceSpec,
    #[serde(deserialize_with = "read")]
    status: ModelStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct InferenceServiceSpec {
    #[serde(deserialize_with = "read")]
    predictor: Predictor,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Predictor {
    #[serde(deserialize_with = "read")]
    model: PredictorModel,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PredictorModel {
    #[serde(deserialize_with = "read_at_most::<MAX_NAME_BYTES, _>")]
    runtime: String,
}

/// An LLMInferenceService (`serving.kserve.io/v1alpha1` or `v1alpha2`).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LlmInferenceService {
    #[serde(deserialize_with = "read")]
    pub(super) metadata: ObjectMeta,
    #[serde(deserialize_with = "read")]
    spec: LlmInferenceServiceSpec,
    #[serde(deserialize_with = "read")]
    status: ModelStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct LlmInferenceServiceSpec {
    #[serde(deserialize_with = "read")]
    model: LlmModel,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct LlmModel {
    #[serde(deserialize_with = "read_at_most::<MAX_URL_BYTES, _>")]
    name: String,
}

/// Status of either kind. `addresses` is of LLMInferenceServices only.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ModelStatus {
    #[serde(deserialize_with = "read_at_most::<MAX_URL_BYTES, _>")]
    url: String,
    #[serde(deserialize_with = "read")]
    address: Address,
    #[serde(deserialize_with = "read")]
    addresses: Addresses,
    #[serde(rename = "conditions", deserialize_with = "read")]
    readiness: Readiness,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Address {
    #[serde(deserialize_with = "read_at_most::<MAX_NAME_BYTES, _>")]
    name: String,
    #[serde(deserialize_with = "read_at_most::<MAX_URL_BYTES, _>")]
    url: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type", deserialize_with = "read")]
    kind: String,
    #[serde(deserialize_with = "read")]
    status: String,
}

/// The addresses that count: the first one of each kind, because there may be any number.
#[derive(Clone, Debug, Default)]
struct Addresses {
    gateway_internal: Option<String>,
    internal: Option<String>,
    cluster_local: Option<String>,
}

impl Lenient for Addresses {
    fn array<'de, A: SeqAccess<'de>>(array: A) -> Result<Self, A::Error> {
        let mut addresses = Self::default();
        for_each(array, |Address { name, url }| {
            let kind = match name.as_str() {
                "gateway-internal" => &mut addresses.gateway_internal,
                "internal" => &mut addresses.internal,
                _ if is_cluster_local(&url) => &mut addresses.cluster_local,
                _ => return,
            };
            kind.get_or_insert(url);
        })?;
        Ok(addresses)
    }
}

/// Whether a condition says that the model is ready. The conditions themselves are not kept.
#[derive(Clone, Copy, Debug, Default)]
struct Readiness(bool);

impl Lenient for Readiness {
    fn array<'de, A: SeqAccess<'de>>(array: A) -> Result<Self, A::Error> {
        let mut is_ready = false;
        for_each(array, |condition: Condition| {
            is_ready |= condition.kind == "Ready" && condition.status == "True";
        })?;
        Ok(Self(is_ready))
    }
}

lenient_objects!(
    ObjectMeta,
    ObjectMetadata,
    InferenceService,
    InferenceServiceSpec,
    Predictor,
    PredictorModel,
    LlmInferenceService,
    LlmInferenceServiceSpec,
    LlmModel,
    ModelStatus,
    Address,
    Condition,
);

impl InferenceService {
    /// URL of the model inside of the cluster; empty until it has one.
    pub(super) fn internal_url(&self) -> &str {
        &self.status.address.url
    }
}

impl LlmInferenceService {
    /// Name by which the model is addressed at its endpoint. The object's name is KServe's own
    /// default.
    pub(super) fn model_id(&self) -> &str {
        match self.spec.model.name.as_str() {
            name if name.trim().is_empty() => &self.metadata.name,
            name => name,
        }
    }

    /// URL of the model inside of the cluster; empty until it has one. In `v1alpha2` KServe never
    /// fills `status.address`.
    pub(super) fn internal_url(&self) -> &str {
        let status = &self.status;
        if !status.address.url.is_empty() {
            return &status.address.url;
        }
        let Addresses { gateway_internal, internal, cluster_local } = &status.addresses;
        let url = gateway_internal.as_ref().or(internal.as_ref()).or(cluster_local.as_ref());
        url.map_or("", String::as_str)
    }
}

impl ModelStatus {
    fn to_api(&self) -> AAModelStatus {
        if self.readiness.0 { AAModelStatus::Running } else { AAModelStatus::Stop }
    }

    /// The URLs that the API shows: the internal one, then `status.url` if it leads elsewhere.
    fn endpoints<'a>(&'a self, internal: &'a str) -> Vec<EndpointView<'a>> {
        let external = self.url.as_str();
        let is_internal =
            external == internal || is_cluster_local(external) || has_same_host(external, internal);
        let mut endpoints = Vec::new();
        if !internal.is_empty() {
            endpoints.push(EndpointView { kind: "internal", url: internal });
        }
        if !external.is_empty() && !is_internal {
            endpoints.push(EndpointView { kind: "external", url: external });
        }
        endpoints
    }
}

/// The models of a namespace. Each is converted only while it is serialized, and its texts are not
/// copied, because all of a runtime have the texts of its annotations.
#[derive(Debug)]
pub(super) struct Models {
    services: Vec<InferenceService>,
    llm_services: Vec<LlmInferenceService>,
    /// The ServingRuntimes of the namespace by name.
    runtimes: BTreeMap<String, ObjectMeta>,
}

impl Models {
    pub(super) fn new(
        mut services: Vec<InferenceService>,
        mut llm_services: Vec<LlmInferenceService>,
        runtimes: Vec<ObjectMetadata>,
    ) -> Self {
        services.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        llm_services.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        let named = runtimes.into_iter().filter(|it| !it.metadata.name.is_empty());
        let runtimes = named.map(|it| (it.metadata.name.clone(), it.metadata)).collect();
        Self { services, llm_services, runtimes }
    }

    /// The models as the API shows them: InferenceServices, then LLMInferenceServices, each by
    /// name.
    fn views(&self) -> impl Iterator<Item = ModelView<'_>> {
        let services = self.services.iter().map(|service| {
            let runtime = self.runtimes.get(&service.spec.predictor.model.runtime);
            from_inference_service(service, runtime)
        });
        services
            .chain(self.llm_services.iter().map(from_llm_inference_service))
            .filter(|model| !model.model_name.is_empty())
    }
}

/// See [`tenant_shared::AAModelList`].
impl Serialize for Models {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Data<'a>(&'a Models);
        impl Serialize for Data<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(self.0.views())
            }
        }
        let mut list = serializer.serialize_struct("AAModelList", 1)?;
        list.serialize_field("data", &Data(self))?;
        list.end()
    }
}

/// A model while it is serialized, with the texts of its object; see [`tenant_shared::AAModel`].
#[derive(Serialize)]
struct ModelView<'a> {
    model_name: &'a str,
    model_id: &'a str,
    serving_runtime: &'a str,
    api_protocol: &'a str,
    version: &'a str,
    description: &'a str,
    usecase: &'a str,
    display_name: &'a str,
    status: AAModelStatus,
    endpoints: Vec<EndpointView<'a>>,
    sa_token: SaToken,
}

/// A URL after its kind: `internal: URL`.
struct EndpointView<'a> {
    kind: &'static str,
    url: &'a str,
}

impl Serialize for EndpointView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}: {}", self.kind, self.url))
    }
}

fn from_inference_service<'a>(
    service: &'a InferenceService,
    runtime: Option<&'a ObjectMeta>,
) -> ModelView<'a> {
    let of_runtime = |key| runtime.map_or("", |it| it.annotation(key));
    ModelView {
        serving_runtime: of_runtime(RUNTIME_NAME),
        api_protocol: of_runtime(RUNTIME_PROTOCOL),
        version: of_runtime(RUNTIME_VERSION),
        ..model(&service.metadata, &service.metadata.name, &service.status, service.internal_url())
    }
}

fn from_llm_inference_service(service: &LlmInferenceService) -> ModelView<'_> {
    ModelView {
        serving_runtime: LLM_RUNTIME,
        api_protocol: LLM_PROTOCOL,
        ..model(&service.metadata, service.model_id(), &service.status, service.internal_url())
    }
}

/// A model without a runtime.
fn model<'a>(
    metadata: &'a ObjectMeta,
    model_id: &'a str,
    status: &'a ModelStatus,
    internal: &'a str,
) -> ModelView<'a> {
    ModelView {
        model_name: &metadata.name,
        model_id,
        serving_runtime: "",
        api_protocol: "",
        version: "",
        description: metadata.annotation(DESCRIPTION),
        usecase: metadata.annotation(USE_CASE),
        display_name: metadata.display_name(),
        status: status.to_api(),
        endpoints: status.endpoints(internal),
        sa_token: SaToken::default(),
    }
}

#[cfg(test)]
mod tests;
