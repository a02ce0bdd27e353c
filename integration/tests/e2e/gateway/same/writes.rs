//! Creations, patches, conflicts, validation: but for what makes every object another one.

use http::Method;
use integration::world::World;
use serde_json::{Value, json};

use super::way::{Answer, Way};
use super::{GROUP, make_resource, ways};

const JSON: &str = "application/json";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const PATCH: &str = "application/json-patch+json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// One request and the status of its answer.
type Ask = (Method, String, &'static str, Vec<u8>, u16);

#[tokio::test]
async fn what_is_written_is_answered_the_same() {
    let world = World::builder().tls().start().await.unwrap();
    let (alice, ways) = ways(&world).await;
    make_resource(&world, &alice, &ways[0]).await;
    let script = script(&alice.namespace());
    let mut told = Vec::with_capacity(2);
    for way in &ways {
        let mut answers = Vec::with_capacity(script.len());
        for (method, path, kind, body, status) in &script {
            let headers = [("content-type", *kind), ("accept", JSON)];
            let answer = way.send(method.clone(), path, &headers, body.clone()).await;
            assert_eq!(answer.status, *status, "{method} {path} {kind}: {answer}");
            answers.push(answer.timeless());
        }
        protobuf_goes_back_as_it_came(way, &alice.namespace()).await;
        told.push(answers);
    }
    for ((ask, direct), through) in script.iter().zip(&told[0]).zip(&told[1]) {
        let (method, path, ..) = ask;
        assert!(direct == through, "{method} {path}:\n{direct}\n\n{through}");
    }
    let warned = told[1].iter().any(|answer| answer.headers.contains_key("warning"));
    assert!(warned, "unknown fields are warned of");
}

/// A `ConfigMap` with this name, and these fields beside.
fn map(name: &str, fields: &Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    object
}

fn ask(
    method: Method,
    path: impl Into<String>,
    kind: &'static str,
    body: &(impl ToString + ?Sized),
    status: u16,
) -> Ask {
    (method, path.into(), kind, body.to_string().into_bytes(), status)
}

/// What is asked, in this order; in the end there is nothing left.
fn script(namespace: &str) -> Vec<Ask> {
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
    script.extend(of_things(&things));
    script.extend(removals(&maps));
    script.extend([
        ask(Method::POST, rights, JSON, &question, 201),
        ask(Method::POST, tokens, JSON, &json!({"spec": {"token": "none"}}), 403),
    ]);
    script
}

fn creations(maps: &str) -> [Ask; 9] {
    let (one, wrong) = (map("one", &json!({})), map("No", &json!({})));
    let twice = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "two"},
        "data": {"a": "1", "a": "2"}}"#;
    [
        ask(Method::POST, format!("{maps}?dryRun=All"), JSON, &one, 201),
        ask(Method::GET, format!("{maps}/one"), JSON, "", 404),
        ask(Method::POST, maps, JSON, &one, 201),
        ask(Method::POST, maps, JSON, &one, 409),
        ask(Method::POST, maps, JSON, &wrong, 422),
        ask(Method::POST, maps, "text/plain", "text", 415),
        ask(Method::PUT, maps, JSON, "{}", 405),
        ask(Method::POST, format!("{maps}?fieldValidation=Strict"), JSON, twice, 400),
        ask(Method::POST, format!("{maps}?fieldValidation=Warn"), JSON, twice, 201),
    ]
}

fn changes(one: &str) -> [Ask; 8] {
    let stale = map("one", &json!({"metadata": {"name": "one", "resourceVersion": "1"}}));
    let operation = |name, value| json!([{"op": name, "path": "/data/a", "value": value}]);
    let applied = |value| map("one", &json!({"data": {"c": value}}));
    let by = |manager| format!("{one}?fieldManager={manager}");
    [
        ask(Method::PUT, one, JSON, &stale, 409),
        ask(Method::PATCH, one, MERGE, &json!({"data": {"a": "1"}}), 200),
        ask(Method::PATCH, one, STRATEGIC, &json!({"data": {"b": "2"}}), 200),
        ask(Method::PATCH, one, PATCH, &operation("replace", "3"), 200),
        ask(Method::PATCH, one, PATCH, &operation("test", "4"), 422),
        ask(Method::PATCH, by("first"), APPLY, &applied("1"), 200),
        ask(Method::PATCH, by("second"), APPLY, &applied("2"), 409),
        ask(Method::PATCH, by("second&force=true"), APPLY, &applied("2"), 200),
    ]
}

fn of_things(things: &str) -> [Ask; 4] {
    let thing = |spec: Value| {
        json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Thing",
            "metadata": {"name": "thing"}, "spec": spec})
    };
    let unknown = thing(json!({"size": 1, "shape": "round"}));
    [
        ask(Method::POST, things, JSON, &thing(json!({"size": 0})), 422),
        ask(Method::POST, format!("{things}?fieldValidation=Strict"), JSON, &unknown, 400),
        ask(Method::POST, format!("{things}?fieldValidation=Warn"), JSON, &unknown, 201),
        ask(Method::DELETE, things, JSON, "", 200),
    ]
}

fn removals(maps: &str) -> [Ask; 7] {
    let labels = json!({"some": "of-them"});
    let labelled = |name| map(name, &json!({"metadata": {"name": name, "labels": labels}}));
    let one = &*format!("{maps}/one");
    let another = json!({"preconditions": {"uid": "another"}});
    let behind = json!({"propagationPolicy": "Background"});
    [
        ask(Method::POST, maps, JSON, &labelled("three"), 201),
        ask(Method::POST, maps, JSON, &labelled("four"), 201),
        ask(Method::DELETE, format!("{maps}?labelSelector=some%3Dof-them"), JSON, "", 200),
        ask(Method::DELETE, format!("{maps}?fieldSelector=metadata.name%3Dtwo"), JSON, "", 200),
        ask(Method::DELETE, one, JSON, &another, 409),
        ask(Method::DELETE, one, JSON, &behind, 200),
        ask(Method::DELETE, one, JSON, "", 404),
    ]
}

/// An object that is put back as it was read is the same object still.
async fn protobuf_goes_back_as_it_came(way: &Way, namespace: &str) {
    let maps = format!("api/v1/namespaces/{namespace}/configmaps");
    let path = format!("{maps}/binary");
    let send = async |method: Method, path: &str, kind: &str, body: Vec<u8>| -> Answer {
        way.send(method, path, &[("content-type", kind), ("accept", PROTOBUF)], body).await
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
