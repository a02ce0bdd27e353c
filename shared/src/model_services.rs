//! Model services: namespaces, models and Llama Stack distributions, as the caller may see them.
//!
//! These types have the names and the shape that frontends of Open Data Hub's "gen AI" backend
//! expect. They differ from the broker's own API: most answers are in an envelope `data`, and
//! failures are [`ModelServicesFailure`], not problem details. Requests ignore unknown fields,
//! because newer frontends send more.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Path prefix of the operations.
pub const MODEL_SERVICES_PATH: &str = "/gen-ai/api/v1";
/// Version of the API, as `GET /healthcheck` reports it.
pub const MODEL_SERVICES_VERSION: &str = "1.0.0";
/// Name of the `LlamaStackDistribution` that an installation creates.
pub const DISTRIBUTION_NAME: &str = "lsd-genai-playground";
/// Maximum number of models of an installation.
pub const MAX_INSTALLED_MODELS: usize = 50;

/// Response body of `GET /healthcheck`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct ModelServicesHealth {
    /// Always `available`.
    pub status: String,
    /// The service.
    pub system_info: ModelServicesSystem,
}

/// The service that answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct ModelServicesSystem {
    /// Version of this API, for example `1.0.0`.
    pub version: String,
}

/// Response body of `GET /namespaces`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct ModelNamespaceList {
    /// Namespaces that the caller may read, by name.
    pub data: Vec<ModelNamespace>,
}

/// A namespace that the caller may read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(rename_all = "camelCase"))]
pub struct ModelNamespace {
    /// Name of the namespace.
    pub name: String,
    /// Its annotation `openshift.io/display-name`, otherwise its name.
    pub display_name: String,
}

/// Response body of `GET /user`, which has no envelope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(rename_all = "camelCase"))]
pub struct ModelServicesUser {
    /// E-mail address of the session's user, or the name of the Kubernetes user. The name of a
    /// ServiceAccount is its last part.
    pub user_id: String,
}

/// Response body of `GET /config`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(rename = "ModelServicesConfigAnswer"))]
pub struct ModelServicesConfigResponse {
    /// Settings for a frontend.
    pub data: ModelServicesConfig,
}

/// Settings for a frontend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct ModelServicesConfig {
    /// Always `false`: an installation uses the distribution of the broker's configuration.
    #[serde(rename = "isCustomLSD")]
    #[cfg_attr(feature = "openapi", oai(rename = "isCustomLSD"))]
    pub is_custom_lsd: bool,
    /// Domain of the cluster's routes, for example `apps.example.com`; null if it is not known.
    #[serde(rename = "clusterDomain")]
    #[cfg_attr(feature = "openapi", oai(rename = "clusterDomain"))]
    pub cluster_domain: Option<String>,
}

/// Response body of `GET /aaa/models`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct AAModelList {
    /// Models of kind InferenceService, then those of kind LLMInferenceService, each by name.
    pub data: Vec<AAModel>,
}

/// A model that KServe serves ("AI asset"). Every field is always present; a text that is not known
/// is empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct AAModel {
    /// Name of the object.
    pub model_name: String,
    /// Name by which the model is addressed at its endpoint.
    pub model_id: String,
    /// Display name of the ServingRuntime.
    pub serving_runtime: String,
    /// Protocol of the ServingRuntime, for example `REST`.
    pub api_protocol: String,
    /// Version of the ServingRuntime.
    pub version: String,
    /// Annotation `openshift.io/description`.
    pub description: String,
    /// Annotation `opendatahub.io/genai-use-case`.
    pub usecase: String,
    /// Annotation `openshift.io/display-name`, otherwise the name.
    pub display_name: String,
    /// Whether the model is ready.
    pub status: AAModelStatus,
    /// URLs, each after its kind: `internal: URL`, `external: URL`.
    pub endpoints: Vec<String>,
    /// Always empty texts, because a token must not travel to a browser.
    pub sa_token: SaToken,
}

/// Whether a model is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Enum))]
pub enum AAModelStatus {
    /// Its condition `Ready` is `True`.
    Running,
    /// It is not ready. Also a status of a newer broker.
    #[serde(other)]
    Stop,
}

impl AAModelStatus {
    /// Name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Stop => "Stop",
        }
    }
}

impl fmt::Display for AAModelStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The place of a model's token in an answer. Frontends expect the fields; they are always empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct SaToken {
    /// Always empty.
    pub name: String,
    /// Always empty.
    pub token_name: String,
    /// Always empty.
    pub token: String,
}

/// Request body of `POST /lsd/install`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct InstallDistributionRequest {
    /// Models, 1 to 50, each once.
    pub models: Vec<InstallModel>,
}

/// A model of an installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct InstallModel {
    /// Name of an InferenceService or LLMInferenceService in the namespace.
    pub model_name: String,
    /// Whether the model is one of a "model as a service" product; `true` is refused.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", oai(default))]
    pub is_maas_model: bool,
}

/// Response body of `POST /lsd/install`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(rename = "InstalledDistributionAnswer"))]
pub struct InstalledDistributionResponse {
    /// The created object.
    pub data: InstalledDistribution,
}

/// A `LlamaStackDistribution` that was created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(rename_all = "camelCase"))]
pub struct InstalledDistribution {
    /// Name of the object.
    pub name: String,
    /// HTTP status as a text: `200`.
    pub http_status: String,
}

/// Response body of `GET /lsd/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(rename = "DistributionStatusAnswer"))]
pub struct DistributionStatusResponse {
    /// Status of the namespace's `LlamaStackDistribution`; null if there is none.
    pub data: Option<DistributionStatus>,
}

/// Status of a `LlamaStackDistribution`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(rename_all = "camelCase"))]
pub struct DistributionStatus {
    /// Name of the object.
    pub name: String,
    /// `Pending`, `Initializing`, `Ready`, `Failed` or `Terminating`; empty until its operator has
    /// seen it.
    pub phase: String,
    /// Version of the Llama Stack server, otherwise empty.
    pub version: String,
    /// Configuration that the operator reports.
    pub distribution_config: DistributionConfig,
}

/// Configuration that the operator reports for a `LlamaStackDistribution`, as it stands in the
/// status of the object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(rename_all = "camelCase"))]
pub struct DistributionConfig {
    /// Name of the distribution in use, otherwise empty.
    pub active_distribution: String,
    /// Providers of the server.
    pub providers: Vec<Value>,
    /// Images of distributions by name.
    pub available_distributions: Value,
}

impl DistributionConfig {
    /// The configuration of an object without a status.
    pub fn empty() -> Self {
        Self { available_distributions: Value::Object(Map::new()), ..Self::default() }
    }
}

/// Request body of `DELETE /lsd/delete`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct DeleteDistributionRequest {
    /// Name of the `LlamaStackDistribution`.
    pub name: String,
}

/// Response body of `DELETE /lsd/delete`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(rename = "DeletedDistributionAnswer"))]
pub struct DeletedDistributionResponse {
    /// Envelope of the text.
    pub data: DeletedDistribution,
}

/// Text that says that a `LlamaStackDistribution` was deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct DeletedDistribution {
    /// Always `LlamaStackDistribution deleted successfully`.
    pub data: String,
}

/// Body of every response of model services that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct ModelServicesFailure {
    /// The failure.
    pub error: ModelServicesError,
}

impl ModelServicesFailure {
    /// Creates the failure with this HTTP status and a text for people.
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        Self { error: ModelServicesError { code: status.to_string(), message: message.into() } }
    }
}

/// A failure of model services.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
pub struct ModelServicesError {
    /// HTTP status as a text, for example `403`.
    pub code: String,
    /// Cause and remedy, as text for people.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn answers_have_the_names_that_frontends_expect() {
        let config = ModelServicesConfigResponse {
            data: ModelServicesConfig { is_custom_lsd: false, cluster_domain: None },
        };
        assert_eq!(
            to_value(config).unwrap(),
            json!({"data": {"isCustomLSD": false, "clusterDomain": null}})
        );
        assert_eq!(
            to_value(DistributionStatusResponse { data: None }).unwrap(),
            json!({"data": null})
        );
        let status = DistributionStatus {
            name: "lsd".to_owned(),
            phase: String::new(),
            version: String::new(),
            distribution_config: DistributionConfig::empty(),
        };
        assert_eq!(
            to_value(DistributionStatusResponse { data: Some(status) }).unwrap(),
            json!({"data": {"name": "lsd", "phase": "", "version": "", "distributionConfig": {
                "activeDistribution": "", "providers": [], "availableDistributions": {}
            }}})
        );
        assert_eq!(
            to_value(ModelServicesFailure::new(403, "no")).unwrap(),
            json!({"error": {"code": "403", "message": "no"}})
        );
    }

    #[test]
    fn unknown_fields_of_a_request_are_ignored() {
        let request: InstallDistributionRequest = from_value(json!({
            "models": [{"model_name": "m", "max_tokens": 1}, {"model_name": "n", "is_maas_model": true}],
            "later": {}
        }))
        .unwrap();
        let maas: Vec<bool> = request.models.iter().map(|model| model.is_maas_model).collect();
        assert_eq!(maas, [false, true]);
    }

    #[test]
    fn a_status_of_a_newer_broker_is_not_running() {
        assert_eq!(from_value::<AAModelStatus>(json!("Paused")).unwrap(), AAModelStatus::Stop);
        assert_eq!(to_value(AAModelStatus::Running).unwrap(), AAModelStatus::Running.as_str());
    }
}
