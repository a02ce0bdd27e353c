//! The objects that an installation creates. Nothing in them is the token of a model.

use serde_json::{Value, json};
use tenant_shared::DISTRIBUTION_NAME;

pub(in crate::model_services) use super::super::known_keys::{
    DASHBOARD_LABEL, DISTRIBUTION_LABEL, INSTALLATION_ANNOTATION,
};
use super::model::ResolvedModel;

/// API version of the kind.
pub(in crate::model_services) const API_VERSION: &str = "llamastack.io/v1alpha1";
/// The kind.
pub(in crate::model_services) const KIND: &str = "LlamaStackDistribution";
/// Name of the ConfigMap with the configuration of the server.
pub(in crate::model_services) const CONFIG_MAP_NAME: &str = "llama-stack-config";
const PORT: u16 = 8321;

/// Settings of the server, from the configuration of the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistributionSettings {
    /// Name of a distribution that the operator of the cluster knows, or an image.
    pub distribution: String,
    /// Requested CPU.
    pub cpu_request: String,
    /// Requested memory.
    pub memory_request: String,
    /// Limit of CPU.
    pub cpu_limit: String,
    /// Limit of memory.
    pub memory_limit: String,
    /// Whether the server verifies the certificates of models.
    pub verify_model_tls: bool,
}

impl Default for DistributionSettings {
    fn default() -> Self {
        Self {
            distribution: "rh-dev".to_owned(),
            cpu_request: "250m".to_owned(),
            memory_request: "500Mi".to_owned(),
            cpu_limit: "2".to_owned(),
            memory_limit: "12Gi".to_owned(),
            verify_model_tls: false,
        }
    }
}

/// The `LlamaStackDistribution` for these models. It names the Secrets with their tokens.
pub(in crate::model_services) fn distribution(
    settings: &DistributionSettings,
    models: &[ResolvedModel],
    installation: &str,
) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": DISTRIBUTION_NAME,
            "labels": {DASHBOARD_LABEL: "true"},
            "annotations": {
                "openshift.io/display-name": DISTRIBUTION_NAME,
                INSTALLATION_ANNOTATION: installation,
            },
        },
        "spec": {"replicas": 1, "server": {
            "containerSpec": {
                "name": "llama-stack",
                "port": PORT,
                "command": ["/bin/sh", "-c", "llama stack run /etc/llama-stack/run.yaml"],
                "resources": {
                    "requests": {"cpu": settings.cpu_request, "memory": settings.memory_request},
                    "limits": {"cpu": settings.cpu_limit, "memory": settings.memory_limit},
                },
                "env": environment(settings, models),
            },
            "distribution": image_or_name(&settings.distribution),
            "userConfig": {"configMapName": CONFIG_MAP_NAME},
        }},
    })
}

/// The environment of the server, in the order in which frontends expect it.
fn environment(settings: &DistributionSettings, models: &[ResolvedModel]) -> Vec<Value> {
    let variable = |name: &str, value: &str| json!({"name": name, "value": value});
    let mut variables = vec![
        variable("VLLM_TLS_VERIFY", if settings.verify_model_tls { "true" } else { "false" }),
        variable("MILVUS_DB_PATH", "~/.llama/milvus.db"),
        variable("FMS_ORCHESTRATOR_URL", "http://localhost"),
        variable("VLLM_MAX_TOKENS", "4096"),
    ];
    variables.extend(models.iter().zip(1..).map(|(model, number): (_, usize)| {
        let name = format!("VLLM_API_TOKEN_{number}");
        match &model.token_secret {
            Some(secret) => json!({
                "name": name,
                "valueFrom": {"secretKeyRef": {"name": secret, "key": "token"}},
            }),
            None => variable(&name, "fake"),
        }
    }));
    variables
        .push(variable("LLAMA_STACK_CONFIG_DIR", "/opt/app-root/src/.llama/distributions/rh/"));
    variables
}

/// The distribution by name, or by image if it can be one only. The kind refuses both together.
fn image_or_name(distribution: &str) -> Value {
    let key = if distribution.contains(['/', ':']) { "image" } else { "name" };
    json!({key: distribution})
}

/// The ConfigMap of the `LlamaStackDistribution` with this uid, with this configuration. Its owner does not block the
/// deletion, because that takes a right on finalizers that tenants do not have
/// (`OwnerReferencesPermissionEnforcement`).
pub(in crate::model_services) fn config_map(uid: &str, run_yaml: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": CONFIG_MAP_NAME,
            "labels": {DASHBOARD_LABEL: "true", DISTRIBUTION_LABEL: DISTRIBUTION_NAME},
            "ownerReferences": [{
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": DISTRIBUTION_NAME,
                "uid": uid,
                "controller": true,
                "blockOwnerDeletion": false,
            }],
        },
        "data": {"run.yaml": run_yaml},
    })
}

#[cfg(test)]
mod tests {
    use super::{super::run_yaml::run_yaml, *};

    fn model(id: &str, token_secret: Option<&str>) -> ResolvedModel {
        ResolvedModel {
            id: id.to_owned(),
            url: format!("http://{id}/v1"),
            display_name: None,
            description: None,
            token_secret: token_secret.map(str::to_owned),
        }
    }

    #[test]
    fn the_distribution_has_every_field() {
        let models = [model("a", Some("default-token")), model("b", None)];
        assert_eq!(
            distribution(&DistributionSettings::default(), &models, "id-1"),
            json!({
                "apiVersion": "llamastack.io/v1alpha1",
                "kind": "LlamaStackDistribution",
                "metadata": {
                    "name": "lsd-genai-playground",
                    "labels": {"opendatahub.io/dashboard": "true"},
                    "annotations": {"openshift.io/display-name": "lsd-genai-playground",
                        "tenant-broker.io/installation": "id-1"}
                },
                "spec": {
                    "replicas": 1,
                    "server": {
                        "containerSpec": {
                            "name": "llama-stack",
                            "port": 8321,
                            "command": ["/bin/sh", "-c",
                                "llama stack run /etc/llama-stack/run.yaml"],
                            "resources": {
                                "requests": {"cpu": "250m", "memory": "500Mi"},
                                "limits": {"cpu": "2", "memory": "12Gi"}
                            },
                            "env": [
                                {"name": "VLLM_TLS_VERIFY", "value": "false"},
                                {"name": "MILVUS_DB_PATH", "value": "~/.llama/milvus.db"},
                                {"name": "FMS_ORCHESTRATOR_URL", "value": "http://localhost"},
                                {"name": "VLLM_MAX_TOKENS", "value": "4096"},
                                {"name": "VLLM_API_TOKEN_1", "valueFrom": {"secretKeyRef":
                                    {"name": "default-token", "key": "token"}}},
                                {"name": "VLLM_API_TOKEN_2", "value": "fake"},
                                {"name": "LLAMA_STACK_CONFIG_DIR",
                                    "value": "/opt/app-root/src/.llama/distributions/rh/"}
                            ]
                        },
                        "distribution": {"name": "rh-dev"},
                        "userConfig": {"configMapName": "llama-stack-config"}
                    }
                }
            })
        );
    }

    #[test]
    fn settings_are_in_the_distribution() {
        let settings = DistributionSettings {
            distribution: "starter".to_owned(),
            cpu_request: "1".to_owned(),
            memory_request: "2Gi".to_owned(),
            cpu_limit: "3".to_owned(),
            memory_limit: "4Gi".to_owned(),
            verify_model_tls: true,
        };
        let container =
            distribution(&settings, &[], "id-1")["spec"]["server"]["containerSpec"].take();
        assert_eq!(
            container["resources"],
            json!({"requests": {"cpu": "1", "memory": "2Gi"},
                   "limits": {"cpu": "3", "memory": "4Gi"}})
        );
        assert_eq!(container["env"][0], json!({"name": "VLLM_TLS_VERIFY", "value": "true"}));
    }

    #[test]
    fn a_distribution_is_a_name_or_an_image() {
        assert_eq!(image_or_name("remote-vllm"), json!({"name": "remote-vllm"}));
        for image in ["quay.io/llamastack/distribution:0.3", "stack:1", "a/b", "r@sha256:0"] {
            assert_eq!(image_or_name(image), json!({"image": image}));
        }
    }

    #[test]
    fn the_config_map_is_owned_by_the_distribution() {
        let run_yaml = run_yaml(&[model("a", Some("default-token"))]).unwrap();
        let map = config_map("uid-1", &run_yaml);
        assert_eq!(map["apiVersion"], "v1");
        assert_eq!(map["kind"], "ConfigMap");
        assert_eq!(
            map["metadata"],
            json!({
                "name": "llama-stack-config",
                "labels": {"opendatahub.io/dashboard": "true",
                           "llamastack.io/distribution": "lsd-genai-playground"},
                "ownerReferences": [{
                    "apiVersion": "llamastack.io/v1alpha1", "kind": "LlamaStackDistribution",
                    "name": "lsd-genai-playground", "uid": "uid-1",
                    "controller": true, "blockOwnerDeletion": false
                }]
            })
        );
        let data = map["data"].as_object().unwrap();
        assert_eq!(data.keys().collect::<Vec<_>>(), ["run.yaml"]);
        assert!(!data["run.yaml"].as_str().unwrap().contains("default-token"));
    }
}
