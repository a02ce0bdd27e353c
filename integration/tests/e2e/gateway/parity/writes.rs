//! Parity of writes: creations, patches, conflicts and validation, except for fields that are
//! unique to each object.

use http::Method;
use integration::world::World;
use serde_json::{Value, json};

use super::route::{Route, RouteResponse};
use super::{GROUP, make_resource, routes};

const JSON: &str = "application/json";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const PATCH: &str = "application/json-patch+json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// One request and the expected status.
type RequestCase = (Method, String, &'static str, Vec<u8>, u16);

#[tokio::test]
async fn writes_get_the_same_responses_on_both_routes() {
    let world = World::builder().tls().start().await.unwrap();
    let (alice, routes) = routes(&world).await;
    make_resource(&world, &alice, &routes[0]).await;
    let script = script(&alice.namespace());
    let mut told = Vec::with_capacity(2);
    for route in &routes {
        let mut answers = Vec::with_capacity(script.len());
        for (method, path, kind, body, status) in &script {
            let headers = [("content-type", *kind), ("accept", JSON)];
            let answer = route.send(method.clone(), path, &headers, body.clone()).await;
            assert_eq!(answer.status, *status, "{method} {path} {kind}: {answer}");
            answers.push(answer.without_volatile_fields());
        }
        a_protobuf_round_trip_changes_nothing(route, &alice.namespace()).await;
        told.push(answers);
    }
    for ((case, direct), through) in script.iter().zip(&told[0]).zip(&told[1]) {
        let (method, path, ..) = case;
        assert!(direct == through, "{method} {path}:\n{direct}\n\n{through}");
    }
    let warned = told[1].iter().any(|answer| answer.headers.contains_key("warning"));
    assert!(warned, "unknown fields are warned of");
}

/// Returns a `ConfigMap` with this name and these fields.
fn map(name: &str, fields: &Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    object
}

fn request_case(
    method: Method,
    path: impl Into<String>,
    kind: &'static str,
    body: &(impl ToString + ?Sized),
    status: u16,
) -> RequestCase {
    (method, path.into(), kind, body.to_string().into_bytes(), status)
}

/// Returns the requests in their order; they leave nothing behind.
fn script(namespace: &str) -> Vec<RequestCase> {
    let maps = format!("api/v1/namespaces/{namespace}/configmaps");
    let things = format!("apis/{GROUP}/v1/namespaces/{namespace}/things");
    let rights =
        format!("apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews");
    let question = json!({
        "metadata": {"namespace": namespace},
        "spec": {"user": "somebody", "resourceAttributes":
            {"namespace": namespace, "verb": "get", "resource": "pods"}},
    });
    let tokens = "apis/authentication.k8s.io/v1/tokenreviews";
    let mut script = creations(&maps).to_vec();
    script.extend(changes(&format!("{maps}/one")));
    script.extend(custom_resources(&things));
    script.extend(removals(&maps));
    script.extend([
        request_case(Method::POST, rights, JSON, &question, 201),
        request_case(Method::POST, tokens, JSON, &json!({"spec": {"token": "none"}}), 403),
    ]);
    script
}

fn creations(maps: &str) -> [RequestCase; 9] {
    let (one, wrong) = (map("one", &json!({})), map("No", &json!({})));
    let twice = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "two"},
        "data": {"a": "1", "a": "2"}}"#;
    [
        request_case(Method::POST, format!("{maps}?dryRun=All"), JSON, &one, 201),
        request_case(Method::GET, format!("{maps}/one"), JSON, "", 404),
        request_case(Method::POST, maps, JSON, &one, 201),
        request_case(Method::POST, maps, JSON, &one, 409),
        request_case(Method::POST, maps, JSON, &wrong, 422),
        request_case(Method::POST, maps, "text/plain", "text", 415),
        request_case(Method::PUT, maps, JSON, "{}", 405),
        request_case(Method::POST, format!("{maps}?fieldValidation=Strict"), JSON, twice, 400),
        request_case(Method::POST, format!("{maps}?fieldValidation=Warn"), JSON, twice, 201),
    ]
}

fn changes(one: &str) -> [RequestCase; 8] {
    let stale = map("one", &json!({"metadata": {"name": "one", "resourceVersion": "1"}}));
    let operation = |name, value| json!([{"op": name, "path": "/data/a", "value": value}]);
    let applied = |value| map("one", &json!({"data": {"c": value}}));
    let by = |manager| format!("{one}?fieldManager={manager}");
    [
        request_case(Method::PUT, one, JSON, &stale, 409),
        request_case(Method::PATCH, one, MERGE, &json!({"data": {"a": "1"}}), 200),
        request_case(Method::PATCH, one, STRATEGIC, &json!({"data": {"b": "2"}}), 200),
        request_case(Method::PATCH, one, PATCH, &operation("replace", "3"), 200),
        request_case(Method::PATCH, one, PATCH, &operation("test", "4"), 422),
        request_case(Method::PATCH, by("first"), APPLY, &applied("1"), 200),
        request_case(Method::PATCH, by("second"), APPLY, &applied("2"), 409),
        request_case(Method::PATCH, by("second&force=true"), APPLY, &applied("2"), 200),
    ]
}

fn custom_resources(things: &str) -> [RequestCase; 4] {
    let thing = |spec: Value| {
        json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Thing",
            "metadata": {"name": "thing"}, "spec": spec})
    };
    let unknown = thing(json!({"size": 1, "shape": "round"}));
    [
        request_case(Method::POST, things, JSON, &thing(json!({"size": 0})), 422),
        request_case(Method::POST, format!("{things}?fieldValidation=Strict"), JSON, &unknown, 400),
        request_case(Method::POST, format!("{things}?fieldValidation=Warn"), JSON, &unknown, 201),
        request_case(Method::DELETE, things, JSON, "", 200),
    ]
}

fn removals(maps: &str) -> [RequestCase; 7] {
    let labels = json!({"some": "of-them"});
    let labelled = |name| map(name, &json!({"metadata": {"name": name, "labels": labels}}));
    let one = &*format!("{maps}/one");
    let another = json!({"preconditions": {"uid": "another"}});
    let behind = json!({"propagationPolicy": "Background"});
    [
        request_case(Method::POST, maps, JSON, &labelled("three"), 201),
        request_case(Method::POST, maps, JSON, &labelled("four"), 201),
        request_case(Method::DELETE, format!("{maps}?labelSelector=some%3Dof-them"), JSON, "", 200),
        request_case(
            Method::DELETE,
            format!("{maps}?fieldSelector=metadata.name%3Dtwo"),
            JSON,
            "",
            200,
        ),
        request_case(Method::DELETE, one, JSON, &another, 409),
        request_case(Method::DELETE, one, JSON, &behind, 200),
        request_case(Method::DELETE, one, JSON, "", 404),
    ]
}

/// Writes an object back as it was read, which must not change it.
async fn a_protobuf_round_trip_changes_nothing(route: &Route, namespace: &str) {
    let maps = format!("api/v1/namespaces/{namespace}/configmaps");
    let path = format!("{maps}/binary");
    let send = async |method: Method, path: &str, kind: &str, body: Vec<u8>| -> RouteResponse {
        route.send(method, path, &[("content-type", kind), ("accept", PROTOBUF)], body).await
    };
    let object = map("binary", &json!({"data": {"a": "b"}})).to_string().into_bytes();
    let made = send(Method::POST, &maps, JSON, object).await;
    assert_eq!(made.status, 201, "{made}");
    assert!(made.body.starts_with(b"k8s\0"), "{made}");
    let put = send(Method::PUT, &path, PROTOBUF, made.body.clone()).await;
    assert_eq!((put.status, put.body), (200, made.body));
    let gone = send(Method::DELETE, &path, JSON, Vec::new()).await;
    assert_eq!(gone.status, 200, "{gone}");
}
