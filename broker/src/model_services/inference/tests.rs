//! Objects as KServe writes them, and odd ones.

use proptest::prelude::*;
use serde_json::{Value, from_str, from_value, json, to_string, to_value};
use tenant_shared::{AAModel, AAModelList};

use super::{
    super::lenient::{Page, tests::any_json},
    *,
};

fn page<T: super::super::lenient::Lenient>(items: &[Value]) -> Vec<T> {
    from_value::<Page<T>>(json!({ "items": items })).unwrap().items
}

/// The models as the API shows them.
fn convert(services: &[Value], llm_services: &[Value], runtimes: &[Value]) -> Vec<AAModel> {
    let text = to_string(&Models::new(page(services), page(llm_services), page(runtimes)));
    from_str::<AAModelList>(&text.unwrap()).unwrap().data
}

fn service(metadata: &Value, status: &Value) -> Value {
    json!({
        "metadata": metadata, "status": status,
        "spec": {"predictor": {"model": {"runtime": "vllm", "modelFormat": {"name": "vLLM"}}}}
    })
}

fn status_with(status: &Value) -> AAModel {
    convert(&[service(&json!({"name": "m"}), status)], &[], &[]).remove(0)
}

fn llm_status_with(status: &Value) -> AAModel {
    convert(&[], &[json!({"metadata": {"name": "m"}, "status": status})], &[]).remove(0)
}

#[test]
fn a_full_inference_service_has_every_key() {
    let object = service(
        &json!({"name": "granite", "annotations": {
            "openshift.io/display-name": "Granite", "openshift.io/description": "8B",
            "opendatahub.io/genai-use-case": "chat"
        }}),
        &json!({
            "url": "https://granite-ns.apps.example.com",
            "address": {"url": "https://granite.ns.svc.cluster.local"},
            "conditions": [{"type": "PredictorReady", "status": "False"},
                           {"type": "Ready", "status": "True"}]
        }),
    );
    let runtime = json!({"metadata": {"name": "vllm", "annotations": {
        "opendatahub.io/template-display-name": "vLLM CPU", "opendatahub.io/apiProtocol": "REST",
        "opendatahub.io/runtime-version": "v0.9"
    }}});
    let model = convert(&[object], &[], &[json!({"metadata": {"name": "a"}}), runtime]).remove(0);
    assert_eq!(
        to_value(model).unwrap(),
        json!({
            "model_name": "granite", "model_id": "granite", "serving_runtime": "vLLM CPU",
            "api_protocol": "REST", "version": "v0.9", "description": "8B", "usecase": "chat",
            "display_name": "Granite", "status": "Running",
            "endpoints": ["internal: https://granite.ns.svc.cluster.local",
                          "external: https://granite-ns.apps.example.com"],
            "sa_token": {"name": "", "token_name": "", "token": ""}
        })
    );
}

#[test]
fn an_llm_inference_service_has_a_runtime_of_its_own() {
    let object = json!({
        "metadata": {"name": "qwen"}, "spec": {"model": {"name": "Qwen/Qwen3-8B"}},
        "status": {"addresses": [
            {"name": "gateway-external", "url": "https://gw.example.com/ns/qwen"},
            {"name": "gateway-internal", "url": "http://gw.ns.svc.cluster.local/ns/qwen"}],
            "url": "https://gw.example.com/ns/qwen"}
    });
    assert_eq!(
        to_value(convert(&[], &[object], &[]).remove(0)).unwrap(),
        json!({
            "model_name": "qwen", "model_id": "Qwen/Qwen3-8B",
            "serving_runtime": "Distributed inference with llm-d", "api_protocol": "REST",
            "version": "", "description": "", "usecase": "", "display_name": "qwen",
            "status": "Stop",
            "endpoints": ["internal: http://gw.ns.svc.cluster.local/ns/qwen",
                          "external: https://gw.example.com/ns/qwen"],
            "sa_token": {"name": "", "token_name": "", "token": ""}
        })
    );
}

#[test]
fn the_model_id_of_a_blank_name_is_the_name_of_the_object() {
    for name in [json!(null), json!(""), json!(" \t"), json!(1)] {
        let object = json!({"metadata": {"name": "q"}, "spec": {"model": {"name": name}}});
        assert_eq!(convert(&[], &[object], &[])[0].model_id, "q");
    }
}

#[test]
fn texts_without_a_limit_in_the_schema_are_empty_if_they_are_too_long() {
    let name = |bytes: usize| "x".repeat(bytes);
    let llm = |name: String| {
        let object = json!({"metadata": {"name": "q"}, "spec": {"model": {"name": name}}});
        convert(&[], &[object], &[])[0].model_id.clone()
    };
    assert_eq!(llm(name(MAX_URL_BYTES)).len(), MAX_URL_BYTES);
    assert_eq!(llm(name(MAX_URL_BYTES + 1)), "q");
    let url = |bytes: usize| format!("http://m/{}", name(bytes - 9));
    let shown = |bytes| status_with(&json!({"url": url(bytes), "address": {"url": url(bytes)}}));
    assert_eq!(shown(MAX_URL_BYTES).endpoints.len(), 1);
    assert_eq!(shown(MAX_URL_BYTES + 1).endpoints, [""; 0]);
    let address = json!({"name": "internal", "url": url(MAX_URL_BYTES + 1)});
    assert_eq!(llm_status_with(&json!({ "addresses": [address] })).endpoints, [""; 0]);
    assert!(convert(&[json!({"metadata": {"name": name(254)}})], &[], &[]).is_empty());
}

#[test]
fn without_a_known_runtime_its_texts_are_empty() {
    let object = service(&json!({"name": "m"}), &json!({}));
    for runtimes in [vec![], vec![json!({"metadata": {"name": "vllm"}})]] {
        let model = convert(std::slice::from_ref(&object), &[], &runtimes).remove(0);
        assert_eq!((model.serving_runtime, model.api_protocol, model.version), Default::default());
    }
    // A runtime without a name is not the one of a model that names none.
    let runtime = json!({"metadata": {"annotations": {RUNTIME_NAME: "x"}}});
    let model = convert(&[json!({"metadata": {"name": "m"}})], &[], &[runtime]).remove(0);
    assert_eq!(model.serving_runtime, "");
}

#[test]
fn only_the_condition_ready_with_true_is_running() {
    let conditions = |conditions: Value| status_with(&json!({ "conditions": conditions })).status;
    assert_eq!(conditions(json!([{"type": "Ready", "status": "True"}])), AAModelStatus::Running);
    for other in [
        json!(null),
        json!([]),
        json!([null, "Ready"]),
        json!([{"type": "Ready", "status": "False"}]),
        json!([{"type": "Ready", "status": "Unknown"}]),
        json!([{"type": "Ready", "status": true}]),
        json!([{"type": "PredictorReady", "status": "True"}]),
        json!({"type": "Ready", "status": "True"}),
    ] {
        assert_eq!(conditions(other.clone()), AAModelStatus::Stop, "{other}");
    }
}

#[test]
fn an_external_url_leads_elsewhere() {
    let endpoints = |internal: &str, url: &str| {
        status_with(&json!({"address": {"url": internal}, "url": url})).endpoints
    };
    assert_eq!(endpoints("", ""), [""; 0]);
    assert_eq!(endpoints("http://m.ns", ""), ["internal: http://m.ns"]);
    assert_eq!(endpoints("http://m.ns", "https://M.ns./"), ["internal: http://m.ns"]);
    assert_eq!(endpoints("", "http://m.ns.svc.cluster.local:80/"), [""; 0]);
    assert_eq!(endpoints("", "http://m.example.com"), ["external: http://m.example.com"]);
    // Values are shown as they stand.
    assert_eq!(endpoints("no url", "neither"), ["internal: no url", "external: neither"]);
}

#[test]
fn the_internal_url_of_an_llm_inference_service_has_an_order() {
    let endpoints = |addresses: Value| llm_status_with(&addresses).endpoints;
    let local = json!({"name": "x", "url": "http://a.ns.svc.cluster.local"});
    let named = json!({"name": "internal", "url": "http://b"});
    let gateway = json!({"name": "gateway-internal", "url": "http://c"});
    let other = json!({"name": "y", "url": "http://d"});
    assert_eq!(
        endpoints(json!({ "addresses": [other, local] })),
        ["internal: http://a.ns.svc.cluster.local"]
    );
    assert_eq!(endpoints(json!({ "addresses": [local, named] })), ["internal: http://b"]);
    assert_eq!(endpoints(json!({ "addresses": [local, named, gateway] })), ["internal: http://c"]);
    assert_eq!(endpoints(json!({ "addresses": [other] })), [""; 0]);
    assert_eq!(
        endpoints(json!({"address": {"url": "http://e"}, "addresses": [gateway]})),
        ["internal: http://e"]
    );
}

#[test]
fn models_are_serialized_as_their_list() {
    let object = |name: &str| service(&json!({"name": name}), &json!({}));
    let models = Models::new(page(&[object("b"), object("a")]), Vec::new(), Vec::new());
    let text = to_string(&models).unwrap();
    let list: AAModelList = from_str(&text).unwrap();
    assert_eq!(list.data.len(), 2);
    assert_eq!(to_string(&list).unwrap(), text);
}

#[test]
fn models_are_sorted_by_kind_and_name() {
    let object = |name: &str| json!({"metadata": {"name": name}});
    let models = convert(&[object("b"), object("a"), json!({})], &[object("d"), object("c")], &[]);
    let names: Vec<&str> = models.iter().map(|model| model.model_name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
}

const KEYS: &[&str] = &[
    "metadata",
    "name",
    "annotations",
    "labels",
    "uid",
    "ownerReferences",
    "spec",
    "predictor",
    "model",
    "runtime",
    "status",
    "url",
    "address",
    "addresses",
    "conditions",
    "type",
    DISPLAY_NAME,
];

proptest! {
    #[test]
    fn no_object_fails_the_list(objects in proptest::collection::vec(any_json(KEYS), 1..4)) {
        let good = json!({"metadata": {"name": "good"}});
        let with_good: Vec<Value> = objects.iter().cloned().chain([good]).collect();
        let models = convert(&with_good, &with_good, &objects);
        prop_assert!(models.iter().filter(|model| model.model_name == "good").count() >= 2);
        prop_assert!(models.iter().all(|model| model.sa_token == SaToken::default()));
    }

    #[test]
    fn half_filled_objects_fail_nothing(
        metadata in any_json(KEYS), spec in any_json(KEYS), status in any_json(KEYS),
    ) {
        let object = json!({"metadata": metadata, "spec": spec, "status": status});
        let objects = [object];
        convert(&objects, &objects, &objects);
    }
}
