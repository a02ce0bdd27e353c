//! Parity of reads: lists, tables, pages, discovery, schemas and watches, byte by byte.

use integration::world::World;
use serde_json::json;

use super::route::{Route, RouteResponse};
use super::{GROUP, make_resource, routes};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// Number of objects, which fill several of the requested pages.
const OBJECTS: usize = 8;

/// Number of times that a request is sent on both routes until the bodies are equal. The API server
/// computes the column `Age` of a table from its clock, so that two responses differ if a second ends
/// between them, and it ends a watch of a second whether or not all events are sent.
const MAX_ATTEMPTS: usize = 20;

/// Sends the request on both routes, and returns the response that they have in common.
async fn same(
    routes: &[Route; 2],
    path: &str,
    headers: &[(&str, &str)],
    status: u16,
) -> RouteResponse {
    let mut attempt = 1;
    loop {
        let (direct, through) =
            tokio::join!(routes[0].get(path, headers), routes[1].get(path, headers));
        assert_eq!(direct.status, status, "{path} {headers:?}: {direct}");
        assert_eq!(direct.status, through.status, "{path} {headers:?}: {direct}\n{through}");
        if direct.headers == through.headers && direct.body == through.body {
            return direct;
        }
        let may_differ = headers.contains(&("accept", TABLE)) || path.contains("timeoutSeconds=1");
        assert!(may_differ && attempt < MAX_ATTEMPTS, "{path} {headers:?}:\n{direct}\n\n{through}");
        attempt += 1;
    }
}

#[tokio::test]
async fn reads_get_the_same_responses_on_both_routes() {
    let world = World::builder().tls().start().await.unwrap();
    let (alice, routes) = routes(&world).await;
    make_resource(&world, &alice, &routes[0]).await;
    let maps = format!("api/v1/namespaces/{}/configmaps", alice.namespace());
    let things = format!("apis/{GROUP}/v1/namespaces/{}/things", alice.namespace());
    let before = routes[0].get(&maps, &[]).await.json()["metadata"]["resourceVersion"].clone();
    make_objects(&routes[0], &maps, &things).await;
    let now = routes[0].get(&maps, &[]).await.json()["metadata"]["resourceVersion"].clone();
    let (before, now) = (before.as_str().unwrap(), now.as_str().unwrap());
    // The resource version of a list is that of the whole cluster, in which other tests write
    // concurrently.
    let exact = format!("resourceVersion={now}&resourceVersionMatch=Exact");

    for list in [&maps, &things] {
        let path = format!("{list}?{exact}");
        for accept in ["application/json", TABLE, METADATA, "application/yaml", "*/*"] {
            same(&routes, &path, &[("accept", accept)], 200).await;
        }
        same(&routes, &path, &[("accept", "image/png")], 406).await;
    }
    let protobuf_table = format!("{PROTOBUF};as=Table;v=v1;g=meta.k8s.io");
    for (accept, status) in [(PROTOBUF, 200), (&protobuf_table, 406), ("application/cbor", 406)] {
        same(&routes, &format!("{maps}?{exact}"), &[("accept", accept)], status).await;
    }
    let long = format!("{maps}?{exact}");
    let zipped = same(&routes, &long, &[("accept-encoding", "gzip")], 200).await;
    assert_eq!(zipped.headers["content-encoding"], "gzip");
    let plain = same(&routes, &long, &[("accept-encoding", "identity")], 200).await;
    assert!(zipped.body.len() < plain.body.len() / 4);

    let (mut seen, mut path) = (0, format!("{maps}?limit=3&{exact}"));
    loop {
        let page = same(&routes, &path, &[], 200).await.json();
        seen += page["items"].as_array().unwrap().len();
        match page["metadata"]["continue"].as_str() {
            Some(next) if !next.is_empty() => path = format!("{maps}?limit=3&continue={next}"),
            _ => break,
        }
    }
    // Every namespace has one ConfigMap of the cluster's own.
    assert!(seen == OBJECTS || seen == OBJECTS + 1, "{seen}");

    for (path, status) in [
        (format!("{maps}/large"), 200),
        (format!("{maps}/absent"), 404),
        (format!("{maps}?resourceVersion=none"), 400),
        (format!("{maps}?limit=3&continue=none"), 400),
        (format!("{maps}?labelSelector=a%20in"), 400),
        (format!("{maps}?{exact}&labelSelector=number%3D3"), 200),
        (format!("{maps}?{exact}&fieldSelector=metadata.name%3Dobject-3"), 200),
        (format!("{maps}?resourceVersionMatch=Exact"), 422),
        (format!("{things}/object-1"), 200),
        (format!("{things}/object-1/status"), 404),
        ("api/v1/nodes".to_owned(), 403),
        ("api/v1/secrets?limit=1".to_owned(), 403),
        (format!("apis/{GROUP}"), 200),
        (format!("apis/{GROUP}/v1"), 200),
        (format!("apis/{GROUP}/v2"), 404),
        ("apis/apps/v1".to_owned(), 200),
        ("api/v1".to_owned(), 200),
        ("version".to_owned(), 200),
        ("openapi/v3/apis/apps/v1".to_owned(), 200),
    ] {
        same(&routes, &path, &[], status).await;
    }
    same(&routes, "api", &[("accept", DISCOVERY)], 200).await;

    let path = format!("openapi/v3/apis/{GROUP}/v1");
    let schema = same(&routes, &path, &[], 200).await;
    assert!(String::from_utf8(schema.body).unwrap().contains("How large it is."));
    let known = [("if-none-match", schema.headers["etag"].as_str())];
    same(&routes, &path, &known, 304).await;
    let accept = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
    same(&routes, &path, &[("accept", accept)], 200).await;

    // The events since then, from a watch that ends by itself.
    for (list, accept) in
        [(&maps, "application/json"), (&maps, TABLE), (&maps, PROTOBUF), (&things, TABLE)]
    {
        let path = format!("{list}?watch=true&resourceVersion={before}&timeoutSeconds=1");
        let accept =
            if accept == PROTOBUF { format!("{PROTOBUF};stream=watch") } else { accept.into() };
        let watched = same(&routes, &path, &[("accept", &accept)], 200).await;
        assert!(watched.body.len() > 1000, "{watched}");
    }
}

/// Creates objects that do not change.
async fn make_objects(route: &Route, maps: &str, things: &str) {
    for number in 0..OBJECTS {
        let (name, text) = match number {
            0 => ("large".to_owned(), "x".repeat(300_000)),
            _ => (format!("object-{number}"), "short".to_owned()),
        };
        let metadata = json!({"name": name, "labels": {"number": number.to_string()}});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
            "data": {"text": text}});
        let thing = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Thing",
            "metadata": metadata, "spec": {"size": number + 1}});
        for (list, object) in [(maps, map), (things, thing)] {
            let json = [("content-type", "application/json")];
            let body = object.to_string().into_bytes();
            let made = route.send(http::Method::POST, list, &json, body).await;
            assert_eq!(made.status, 201, "{made}");
        }
    }
}
