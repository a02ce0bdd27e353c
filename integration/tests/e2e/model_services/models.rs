//! The list of models.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{StreamExt as _, stream};
use http::{Method, StatusCode};
use integration::fault_proxy::{Fault, RecordedRequest, Rule};
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::{Value, json};

use super::fixture::{
    ADM, Client, NONE, REG, TIMEOUT, VIEWER, apply, builder, create_with_status, model,
    namespace_of, world,
};

fn path(namespace: &str) -> String {
    format!("/aaa/models?namespace={namespace}")
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|item| item["model_name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn labelled_models_have_every_key() {
    let world = world().await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    namespace_of(&world, "models-a", "reg", "admin").await;
    let runtime = json!({
        "apiVersion": "serving.kserve.io/v1alpha1", "kind": "ServingRuntime",
        "metadata": {"name": "vllm", "namespace": "models-a", "annotations": {
            "opendatahub.io/template-display-name": "vLLM NVIDIA GPU",
            "opendatahub.io/apiProtocol": "REST",
            "opendatahub.io/runtime-version": "v0.9.1"}},
        "spec": {},
    });
    apply(&admin, runtime.to_string()).await;
    let mut full = model("models-a", "granite");
    full["metadata"]["annotations"] = json!({
        "openshift.io/display-name": "Granite 3", "openshift.io/description": "a model",
        "opendatahub.io/genai-use-case": "chat"});
    full["spec"] = json!({"predictor": {"model": {"runtime": "vllm"}}});
    let status = json!({"url": "https://granite.example.com", "conditions":
        [{"type": "Ready", "status": "True"}],
        "address": {"url": "http://granite-predictor.models-a.svc.cluster.local"}});
    create_with_status(&admin, &full, &status).await;
    let plain = model("models-a", "alpha");
    create_with_status(
        &admin,
        &plain,
        &json!({"conditions": [{"type": "Ready", "status": "False"}]}),
    )
    .await;
    let mut unlabelled = model("models-a", "hidden");
    unlabelled["metadata"]["labels"] = json!({"opendatahub.io/genai-asset": "false"});
    apply(&admin, unlabelled.to_string()).await;
    let llm = json!({
        "apiVersion": "serving.kserve.io/v1alpha1", "kind": "LLMInferenceService",
        "metadata": {"name": "big", "namespace": "models-a",
                     "labels": {"opendatahub.io/genai-asset": "true"}},
        "spec": {"model": {"name": "org/big"}},
    });
    apply(&admin, llm.to_string()).await;

    let empty = json!({"name": "", "token_name": "", "token": ""});
    let expected = json!([
        {"model_name": "alpha", "model_id": "alpha", "serving_runtime": "", "api_protocol": "",
         "version": "", "description": "", "usecase": "", "display_name": "alpha",
         "status": "Stop", "endpoints": [], "sa_token": empty},
        {"model_name": "granite", "model_id": "granite", "serving_runtime": "vLLM NVIDIA GPU",
         "api_protocol": "REST", "version": "v0.9.1", "description": "a model", "usecase": "chat",
         "display_name": "Granite 3", "status": "Running", "endpoints": [
            "internal: http://granite-predictor.models-a.svc.cluster.local",
            "external: https://granite.example.com"], "sa_token": empty},
        {"model_name": "big", "model_id": "org/big",
         "serving_runtime": "Distributed inference with llm-d", "api_protocol": "REST",
         "version": "", "description": "", "usecase": "", "display_name": "big",
         "status": "Stop", "endpoints": [], "sa_token": empty},
    ]);
    for token in [REG, ADM] {
        assert_eq!(*client.get(&path("models-a"), token).await.data(), expected);
    }
    client.get(&path("models-a"), NONE).await.failure(403);
    let missing = client.get(&path("models-none"), ADM).await;
    assert!(missing.failure(404).contains("models-none"));
    namespace_of(&world, "models-a", "viewer", "view").await;
    assert_eq!(*client.get(&path("models-a"), VIEWER).await.data(), expected);

    // A failed half fails the answer, and a runtime that cannot be read does not.
    let proxy = world.proxy().unwrap();
    let respond = |status, end: &'static str| {
        let fault = Fault::respond(status);
        proxy.add(Rule::new(fault).when(move |seen| seen.is(&Method::GET, end)));
    };
    for (status, expected) in [
        (StatusCode::INTERNAL_SERVER_ERROR, 500),
        (StatusCode::TOO_MANY_REQUESTS, 500),
        (StatusCode::FORBIDDEN, 403),
        (StatusCode::UNAUTHORIZED, 401),
    ] {
        for kind in ["/inferenceservices", "/llminferenceservices"] {
            respond(status, kind);
            client.get(&path("models-a"), REG).await.failure(expected);
            proxy.clear();
        }
    }
    respond(StatusCode::FORBIDDEN, "/servingruntimes");
    let without = client.get(&path("models-a"), REG).await;
    assert_eq!(without.data()[1]["serving_runtime"], "");
    proxy.clear();
    let cut =
        Rule::new(Fault::CutBody(100)).when(|seen| seen.is(&Method::GET, "/inferenceservices"));
    proxy.add(cut);
    client.get(&path("models-a"), REG).await.failure(500);
}

#[tokio::test]
async fn no_object_fails_the_list_however_odd() {
    let world = world().await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    namespace_of(&world, "models-odd", "reg", "admin").await;
    let mut deep = json!(1);
    for _ in 0..300 {
        deep = json!({ "deeper": [deep] });
    }
    let odd = [
        json!({"predictor": 5}),
        json!({"predictor": {"model": []}}),
        json!({"predictor": {"model": {"runtime": {"a": 1}}}}),
        json!({"predictor": {"model": {"runtime": 7}}, "deep": deep}),
    ];
    for (number, spec) in odd.iter().enumerate() {
        let mut object = model("models-odd", &format!("odd-{number}"));
        object["spec"] = spec.clone();
        let status = json!({"url": spec, "address": [spec], "addresses": spec, "conditions": spec,
            "address.url": null});
        create_with_status(&admin, &object, &status).await;
    }
    let fine = model("models-odd", "zz");
    let status = json!({"conditions": [null, 1, {"type": "Ready", "status": "True"}]});
    create_with_status(&admin, &fine, &status).await;
    let found = client.get(&path("models-odd"), REG).await;
    assert_eq!(names(found.data()), ["odd-0", "odd-1", "odd-2", "odd-3", "zz"]);
    assert_eq!(found.data()[4]["status"], "Running");
}

/// Creates models side by side, because kubectl takes long for many objects.
async fn create_models(world: &World, namespace: &str, names: &[String], spec: &Value) {
    let authority = world.cluster().authority().certificate();
    let http = integration::http_client::http_client(Some(authority)).unwrap();
    let path = format!("apis/serving.kserve.io/v1beta1/namespaces/{namespace}/inferenceservices");
    let url = world.cluster().url().join(&path).unwrap();
    let creations = names.iter().map(|name| {
        let mut object = model(namespace, name);
        object["spec"] = spec.clone();
        let create = http.post(url.clone()).bearer_auth(ADM).json(&object);
        async move { create.send().await.unwrap().error_for_status().map(drop).unwrap() }
    });
    stream::iter(creations).buffer_unordered(16).collect::<()>().await;
}

#[tokio::test]
async fn a_thousand_models_come_in_pages() {
    let world = world().await;
    let client = Client::new(&world);
    namespace_of(&world, "models-many", "reg", "admin").await;
    let created: Vec<String> = (0..1000).map(|n| format!("m-{n:04}")).collect();
    create_models(&world, "models-many", &created, &json!({})).await;
    let found = client.get(&path("models-many"), REG).await;
    assert_eq!(names(found.data()), created);
    let pages = world.proxy().unwrap().count(|seen| {
        seen.is(&Method::GET, "/models-many/inferenceservices") && seen.query.contains("limit=250")
    });
    assert_eq!(pages, 4);
}

#[tokio::test]
async fn a_large_text_of_a_runtime_makes_no_large_answer() {
    let world = world().await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    namespace_of(&world, "models-large", "reg", "admin").await;
    let text = "é".repeat(100_000);
    let runtime = json!({
        "apiVersion": "serving.kserve.io/v1alpha1", "kind": "ServingRuntime",
        "metadata": {"name": "large", "namespace": "models-large",
                     "annotations": {"opendatahub.io/template-display-name": text}},
        "spec": {},
    });
    admin
        .run_with_input(["create", "-f", "-"], runtime.to_string())
        .await
        .unwrap()
        .success()
        .unwrap();
    let created: Vec<String> = (0..300).map(|n| format!("m-{n:04}")).collect();
    let spec = json!({"predictor": {"model": {"runtime": "large"}}});
    create_models(&world, "models-large", &created, &spec).await;
    let found = client.get(&path("models-large"), REG).await;
    assert_eq!(names(found.data()), created);
    for model in found.data().as_array().unwrap() {
        assert_eq!(model["serving_runtime"], text[..1024]);
    }
    let length: usize = found.headers["content-length"].to_str().unwrap().parse().unwrap();
    assert!(length < created.len() * 2048, "{length}");
    assert_eq!(found.headers["content-type"], "application/json; charset=utf-8");
}

#[tokio::test]
async fn an_api_server_that_goes_between_two_lists_fails_the_answer() {
    let world = world().await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    namespace_of(&world, "models-gone", "reg", "admin").await;
    apply(&admin, model("models-gone", "granite").to_string()).await;
    let proxy = world.proxy().unwrap();
    let is_answered = Arc::new(AtomicBool::new(false));
    let answered = Fault::after({
        let is_answered = Arc::clone(&is_answered);
        move |_| {
            is_answered.store(true, Ordering::SeqCst);
            std::future::ready(())
        }
    });
    let first = |seen: &RecordedRequest| seen.is(&Method::GET, "/models-gone/inferenceservices");
    proxy.add(Rule::new(answered).when(first));
    let held = Fault::before(|_| std::future::pending());
    let second = "/models-gone/llminferenceservices";
    let running = client.get_held(&world, held, second, &path("models-gone"), REG).await;
    probe::until("the first list", TIMEOUT, || async {
        let is_answered = is_answered.load(Ordering::SeqCst);
        Ok(if is_answered { Probe::Ready(()) } else { Probe::NotYet("not yet".to_owned()) })
    })
    .await
    .unwrap();
    proxy.down().await;
    running.await.unwrap().failure(500);
    client.get(&path("models-gone"), REG).await.failure(500);
    proxy.clear();
    proxy.up().await.unwrap();
    assert_eq!(names(client.get(&path("models-gone"), REG).await.data()), ["granite"]);
}

#[tokio::test]
async fn kinds_that_are_not_installed_are_empty_halves_for_everybody() {
    let world =
        builder().setting("model_services.access_check", "deployments.apps").start().await.unwrap();
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bare"}});
    apply(&admin, namespace.to_string()).await;
    let subject = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "reg"});
    super::fixture::bind(&admin, "bare", &subject, "admin").await;
    super::fixture::until_allowed(&admin, &["--as=reg", "list", "deployments.apps", "-n", "bare"])
        .await;
    assert_eq!(*client.get(&path("bare"), REG).await.data(), json!([]));
    let status = client.get("/lsd/status?namespace=bare", REG).await;
    // A person without the right to the kind cannot know whether it is installed.
    assert!([200, 403].contains(&status.status.as_u16()), "{status:?}");
    let refused = client.install("bare", REG, &["m"]).await;
    assert!([403, 404].contains(&refused.status.as_u16()), "{refused:?}");
}
