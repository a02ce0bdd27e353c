//! Endpoints, as tables and by property.

use proptest::prelude::*;
use serde_json::{Value, from_value, json};

use super::{super::lenient::tests::any_json, *};

fn model(url: &Value, auth: Option<&str>) -> InferenceService {
    let annotations = auth.map_or_else(|| json!(null), |auth| json!({ENABLE_AUTH: auth}));
    from_value(json!({
        "metadata": {"name": "m", "uid": "u", "annotations": annotations},
        "status": {"address": {"url": url}}
    }))
    .unwrap()
}

fn service(name: &str, cluster_ip: &str, target_port: &Value) -> Service {
    from_value(json!({
        "metadata": {"name": name, "ownerReferences": [{"kind": "InferenceService", "uid": "u"}]},
        "spec": {"clusterIP": cluster_ip, "ports": [{"targetPort": target_port}, {"targetPort": 9}]}
    }))
    .unwrap()
}

fn endpoint(url: &str, service: Option<&Service>) -> Result<String, EndpointError> {
    of_inference_service(&model(&json!(url), None), service)
}

#[test]
fn v1_comes_once() {
    for (url, expected) in [
        ("http://a.b", "http://a.b/v1"),
        ("http://a.b/", "http://a.b/v1"),
        ("http://a.b//", "http://a.b/v1"),
        ("http://a.b/v1", "http://a.b/v1"),
        ("http://a.b/v1/", "http://a.b/v1"),
        ("http://a.b//v1//v1/", "http://a.b/v1"),
        ("http://a.b/ns/m", "http://a.b/ns/m/v1"),
        ("http://a.b/v1/m", "http://a.b/v1/m/v1"),
        ("http://a.b/openai/v1", "http://a.b/openai/v1"),
        ("http://a.b/v12", "http://a.b/v12/v1"),
        ("HTTP://A.B:8080/x", "http://a.b:8080/x/v1"),
        ("http://[::1]/", "http://[::1]/v1"),
        ("http://[::1]:80/", "http://[::1]:80/v1"),
        ("http://a.b:", "http://a.b/v1"),
        ("http://10.0.0.1:1", "http://10.0.0.1:1/v1"),
    ] {
        assert_eq!(endpoint(url, None).as_deref(), Ok(expected), "{url}");
    }
}

#[test]
fn the_annotation_decides_on_https() {
    for (auth, expected) in [
        (None, "http"),
        (Some("true"), "https"),
        (Some("false"), "http"),
        (Some("True"), "http"),
        (Some(""), "http"),
    ] {
        let model = model(&json!("https://a.b:443"), auth);
        let endpoint = of_inference_service(&model, None);
        assert_eq!(endpoint, Ok(format!("{expected}://a.b:443/v1")), "{auth:?}");
    }
    let plain = model(&json!("http://a.b"), Some("true"));
    assert_eq!(of_inference_service(&plain, None).as_deref(), Ok("http://a.b/v1"));
}

#[test]
fn a_headless_service_adds_its_port() {
    let cases = [
        ("None", json!(8081), "http://a.b", "http://a.b:8081/v1"),
        ("None", json!("http"), "http://a.b/", "http://a.b:8080/v1"),
        ("None", json!(0), "http://a.b/v1", "http://a.b:8080/v1"),
        ("None", json!(70_000), "http://a.b", "http://a.b:8080/v1"),
        ("None", json!(null), "https://a.b/v1/", "http://a.b:8080/v1"),
        ("None", json!(8081), "http://a.b:80", "http://a.b:80/v1"),
        ("None", json!(8081), "http://[::1]", "http://[::1]:8081/v1"),
        ("10.0.0.1", json!(8081), "http://a.b", "http://a.b/v1"),
        ("", json!(8081), "http://a.b", "http://a.b/v1"),
    ];
    for (cluster_ip, target_port, url, expected) in cases {
        let service = service("a", cluster_ip, &target_port);
        assert_eq!(endpoint(url, Some(&service)).as_deref(), Ok(expected), "{url} {target_port}");
    }
    let without_ports: Service = from_value(json!({"spec": {"clusterIP": "None"}})).unwrap();
    assert_eq!(endpoint("http://a", Some(&without_ports)).as_deref(), Ok("http://a:8080/v1"));
}

#[test]
fn an_address_that_is_no_plain_url_is_refused() {
    let unusable = Err(EndpointError::Unusable("m".to_owned()));
    for url in [
        "a.b",
        "/a",
        "http://",
        "http:///",
        "http:a.b",
        "ftp://a.b",
        "file:///a",
        "http://u@a.b",
        "http://u:p@a.b",
        "http://@a.b",
        "http://a.b?q",
        "http://a.b?",
        "http://a.b/#",
        "http://a b",
        " http://a.b",
        "http://a.b\n",
        "http://a.b\\c",
        "http://a.b:99999",
        "http://{a}",
        "http://a.b$%7B",
        "javascript:1",
    ] {
        assert_eq!(endpoint(url, None), unusable, "{url}");
    }
    let not_ready = Err(EndpointError::NotReady("m".to_owned()));
    for url in [json!(""), json!(null), json!(1), json!({})] {
        assert_eq!(of_inference_service(&model(&url, None), None), not_ready, "{url}");
    }
}

#[test]
fn a_placeholder_in_an_address_is_refused() {
    let refused = EndpointError::Placeholder { model: "m".to_owned(), what: "address" };
    for url in ["http://${env.VLLM_API_TOKEN_1}.b", "http://a/${env.X:=y}", "${"] {
        assert_eq!(endpoint(url, None), Err(refused.clone()), "{url}");
    }
    assert_eq!(
        refused.to_string(),
        "the address of model m has ${ in it, which Llama Stack would replace"
    );
}

#[test]
fn an_llm_inference_service_is_addressed_by_its_service() {
    let model = |auth: &str| -> LlmInferenceService {
        from_value(json!({"metadata": {"name": "q", "annotations": {ENABLE_AUTH: auth}}})).unwrap()
    };
    let workload = service("q-kserve-workload-svc", "10.0.0.1", &json!(8000));
    let of = |auth, service| of_llm_inference_service(&model(auth), "ns", service);
    assert_eq!(
        of("true", Some(&workload)).as_deref(),
        Ok("https://q-kserve-workload-svc.ns.svc.cluster.local:8000/v1")
    );
    let named = service("q", "None", &json!("https"));
    assert_eq!(of("", Some(&named)).as_deref(), Ok("http://q.ns.svc.cluster.local:8080/v1"));
    assert_eq!(of("true", None), Err(EndpointError::NotReady("q".to_owned())));
}

#[test]
fn the_service_of_a_model_is_owned_by_it() {
    let owned = |name: &str, uid: &str| -> Service {
        let owner = json!({"kind": "InferenceService", "uid": uid});
        from_value(json!({"metadata": {"name": name, "ownerReferences": [owner]}})).unwrap()
    };
    let choose = |services: &[Service], url: &str| {
        choose_service(services.to_vec(), "u", url).map(|it| it.metadata.name)
    };
    let services = [owned("m-predictor", "u"), owned("m", "u"), owned("a", "other")];
    assert_eq!(choose(&services, "http://m.ns.svc.cluster.local").as_deref(), Some("m"));
    assert_eq!(choose(&services, "https://m-predictor.ns").as_deref(), Some("m-predictor"));
    assert_eq!(choose(&services, "http://a.ns").as_deref(), Some("m"));
    assert_eq!(choose(&services, "no url").as_deref(), Some("m"));
    assert_eq!(choose(&services[2..], "http://a.ns"), None);
    // Objects without uid and owner do not own each other.
    assert!(choose_service(vec![owned("m", "")], "", "http://m").is_none());
}

#[test]
fn a_name_that_no_label_can_have_has_no_selector() {
    assert_eq!(
        service_selectors("m").unwrap(),
        [
            "serving.kserve.io/inferenceservice=m",
            "app.kubernetes.io/name=m,app.kubernetes.io/component=llminferenceservice-workload",
        ]
    );
    assert!(service_selectors(&"a".repeat(63)).is_some());
    assert!(service_selectors(&"a".repeat(64)).is_none());
}

const KEYS: &[&str] =
    &["metadata", "name", "spec", "clusterIP", "ports", "targetPort", "ownerReferences", "uid"];

/// Texts like URLs.
fn url_like() -> impl Strategy<Value = String> {
    let part = proptest::sample::select(
        &[
            "http", "https", ":", "//", "/", "a", "b.c", "v1", "[::1]", ":80", "@", "?", "#", "${",
            "%7B", "..", ".", " ", "\\", "é", "$", "{",
        ][..],
    );
    prop_oneof![
        3 => (prop_oneof![Just("http://a.b"), Just("https://a"), Just("http://[::1]:8")],
              proptest::collection::vec(part.clone(), 0..8))
            .prop_map(|(start, parts)| format!("{start}{}", parts.concat())),
        1 => proptest::collection::vec(part, 0..8).prop_map(|parts| parts.concat()),
        1 => any::<String>(),
    ]
}

proptest! {
    #[test]
    fn every_endpoint_is_a_plain_url_with_v1_once(
        url in url_like(), service in any_json(KEYS), auth in any::<bool>(),
    ) {
        let service = from_value::<super::super::lenient::Page<Service>>(json!({"items": [service]}))
            .unwrap().items.remove(0);
        let model = model(&json!(url), auth.then_some("true"));
        for service in [None, Some(&service)] {
            let Ok(endpoint) = of_inference_service(&model, service) else { continue };
            prop_assert!(!has_placeholder(&endpoint), "{endpoint}");
            let (scheme, rest) = endpoint.split_once("://").unwrap();
            prop_assert!(scheme == "http" || (auth && scheme == "https"));
            prop_assert!(!rest.contains("//"), "{endpoint}");
            prop_assert!(rest.ends_with("/v1") && !rest.ends_with("/v1/v1"), "{endpoint}");
            let parsed = Url::parse(&endpoint).unwrap();
            let given = Url::parse(&url).unwrap();
            prop_assert_eq!(parsed.host_str(), given.host_str());
            prop_assert!(parsed.username().is_empty() && parsed.password().is_none());
            prop_assert!(parsed.query().is_none() && parsed.fragment().is_none());
        }
    }
}
