//! Models, their runtimes and Services, as KServe has them, and their paths.

use serde_json::{Value, json};

use crate::model_kinds::inference_service;

const KSERVE: &str = "apis/serving.kserve.io";
/// Bytes of the specification of a model: 50 of them make a list of 190 kB.
pub(super) const USUAL_SPEC_BYTES: usize = 2400;

/// Path of the InferenceServices of a namespace.
pub(super) fn inference_services(namespace: &str) -> String {
    format!("{KSERVE}/v1beta1/namespaces/{namespace}/inferenceservices")
}

/// Path of the LLMInferenceServices of a namespace.
pub(super) fn llm_inference_services(namespace: &str) -> String {
    format!("{KSERVE}/v1alpha1/namespaces/{namespace}/llminferenceservices")
}

/// Path of the ServingRuntimes of a namespace.
pub(super) fn serving_runtimes(namespace: &str) -> String {
    format!("{KSERVE}/v1alpha1/namespaces/{namespace}/servingruntimes")
}

/// Path of the objects of kind `LlamaStackDistribution` of a namespace.
pub(super) fn distributions(namespace: &str) -> String {
    format!("apis/llamastack.io/v1alpha1/namespaces/{namespace}/llamastackdistributions")
}

/// Path of the Services of a namespace.
pub(super) fn services(namespace: &str) -> String {
    format!("api/v1/namespaces/{namespace}/services")
}

/// Query of a list of the models that people may pick.
pub(super) const LABELLED: &str = "?limit=250&labelSelector=opendatahub.io%2Fgenai-asset%3Dtrue";

fn annotations(name: &str) -> Value {
    json!({
        "openshift.io/display-name": format!("Model {name}"),
        "openshift.io/description": "A model that answers questions about the measurement.",
        "opendatahub.io/genai-use-case": "chat",
    })
}

fn arguments(bytes: usize) -> Value {
    let argument = "--an-argument-of-the-server=of-32-";
    let count = bytes / (argument.len() + 3);
    (0..count).map(|_| argument).collect()
}

/// An InferenceService with a specification of about this number of bytes, which has one of the
/// runtimes.
pub(super) fn model(namespace: &str, number: usize, runtimes: usize, bytes: usize) -> Value {
    let name = format!("model-{number:03}");
    let mut model = inference_service(namespace, &name);
    model["metadata"]["annotations"] = annotations(&name);
    let runtime = format!("runtime-{}", number % runtimes.max(1));
    model["spec"] = json!({"predictor": {"model": {"runtime": runtime, "args": arguments(bytes)}}});
    model
}

/// An LLMInferenceService.
pub(super) fn llm_model(namespace: &str, number: usize, bytes: usize) -> Value {
    let name = format!("llm-{number:03}");
    json!({
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "LLMInferenceService",
        "metadata": {"name": name, "namespace": namespace,
            "labels": {"opendatahub.io/genai-asset": "true"}, "annotations": annotations(&name)},
        "spec": {"model": {"name": format!("org/{name}")}, "args": arguments(bytes)},
    })
}

/// The status of a model that runs.
pub(super) fn running(namespace: &str, name: &str) -> Value {
    json!({"status": {
        "url": format!("https://{name}.apps.example.com"),
        "address": {"url": format!("https://{name}.{namespace}.svc.cluster.local")},
        "conditions": [{"type": "Ready", "status": "True"}],
    }})
}

/// A ServingRuntime.
pub(super) fn runtime(namespace: &str, number: usize) -> Value {
    json!({
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "ServingRuntime",
        "metadata": {"name": format!("runtime-{number}"), "namespace": namespace, "annotations": {
            "opendatahub.io/template-display-name": "vLLM", "opendatahub.io/apiProtocol": "REST",
            "opendatahub.io/runtime-version": "v0.9.1"}},
        "spec": {"args": arguments(USUAL_SPEC_BYTES)},
    })
}

/// The headless Service of a model with this uid.
pub(super) fn service(model: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": model,
            "labels": {"serving.kserve.io/inferenceservice": model},
            "ownerReferences": [{"apiVersion": "serving.kserve.io/v1beta1",
                "kind": "InferenceService", "name": model, "uid": uid}],
        },
        "spec": {"clusterIP": "None", "ports": [{"port": 80, "targetPort": 8080}]},
    })
}
