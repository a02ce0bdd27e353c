//! Tests of the parser, with objects as clients send them.

use http::HeaderValue;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{cluster::PROTOBUF_MAGIC, tenant::LAST_APPLIED_ANNOTATION};

const SUFFIX: [u8; SUFFIX_BYTES] = [0, 26, 27, 1, 255];

fn read_json(metadata: &Value) -> Result<NewNamespace, NamespaceRefusal> {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
    parse(Format::Json, object.to_string().as_bytes(), SUFFIX)
}

fn protobuf(kind: &str, metadata: MetadataMessage) -> Result<NewNamespace, NamespaceRefusal> {
    let type_meta = TypeMeta { api_version: "v1".to_owned(), kind: kind.to_owned() };
    let namespace = NamespaceMessage { metadata: Some(metadata), spec: None };
    let envelope = ProtobufEnvelope { type_meta: Some(type_meta), raw: namespace.encode_to_vec() };
    let body = [PROTOBUF_MAGIC, &envelope.encode_to_vec()].concat();
    parse(Format::Protobuf, &body, SUFFIX)
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn name_labels_and_annotations_are_read() {
    let expected = NewNamespace {
        name: "solar-a".to_owned(),
        tenant: Some("solar".to_owned()),
        labels: map(&[("team", "a")]),
        annotations: map(&[("note", "b"), (LAST_APPLIED_ANNOTATION, "{}")]),
    };
    let labels = [
        ("team", "a"),
        ("tenant-broker.io/tenant", "solar"),
        ("kubernetes.io/metadata.name", "solar-a"),
    ];
    let annotations = [("note", "b"), (LAST_APPLIED_ANNOTATION, "{}")];
    let read = read_json(&json!({
        "name": "solar-a", "generateName": "x-", "creationTimestamp": null, "uid": "u",
        "labels": map(&labels), "annotations": map(&annotations),
    }));
    assert_eq!(read, Ok(expected.clone()));
    let metadata = MetadataMessage {
        name: "solar-a".to_owned(),
        labels: map(&labels),
        annotations: map(&annotations),
        ..MetadataMessage::default()
    };
    assert_eq!(protobuf("Namespace", metadata), Ok(expected));
}

/// As client-go encodes the namespace of `kubectl create namespace solar-a`.
#[test]
fn a_namespace_of_client_go_is_read() {
    let written = b"k8s\0\n\x0f\n\x02v1\x12\tNamespace\x12\x1f\n\x17\n\x07solar-a\x12\0\x1a\0\"\0\
        *\x002\08\0B\0\x12\0\x1a\x02\n\0\x1a\0\"\0";
    let read = parse(Format::Protobuf, written, SUFFIX);
    assert_eq!(read, Ok(NewNamespace { name: "solar-a".to_owned(), ..NewNamespace::default() }));
}

#[test]
fn a_label_with_another_name_is_left_to_the_check_of_labels() {
    let read =
        read_json(&json!({"name": "a", "labels": {"kubernetes.io/metadata.name": "b"}})).unwrap();
    assert_eq!(read.labels, map(&[("kubernetes.io/metadata.name", "b")]));
}

#[test]
fn a_name_is_generated_from_the_alphabet_of_the_api_server() {
    let read = read_json(&json!({"generateName": "solar-"})).unwrap();
    assert_eq!(read.name, "solar-b9bcq");
    let read = read_json(&json!({"generateName": "x".repeat(70)})).unwrap();
    assert_eq!(read.name.len(), 63);
    let metadata =
        MetadataMessage { generate_name: "solar-".to_owned(), ..MetadataMessage::default() };
    assert_eq!(protobuf("Namespace", metadata).unwrap().name, "solar-b9bcq");
}

#[test]
fn what_is_not_carried_out_is_refused() {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"});
    for metadata in [
        json!({}),
        json!({"name": "a", "finalizers": ["example.com/x"]}),
        json!({"name": "a", "ownerReferences": [owner]}),
    ] {
        let refused = read_json(&metadata).unwrap_err().response("r-1");
        assert_eq!(refused.status(), 422, "{metadata}");
    }
    for metadata in [
        MetadataMessage::default(),
        MetadataMessage {
            name: "a".to_owned(),
            finalizers: vec!["x".to_owned()],
            ..MetadataMessage::default()
        },
        MetadataMessage {
            name: "a".to_owned(),
            owner_references: vec![Vec::new()],
            ..MetadataMessage::default()
        },
    ] {
        assert_eq!(protobuf("Namespace", metadata).unwrap_err().response("r-1").status(), 422);
    }
    let exported = |finalizer: &str| {
        let object = json!({"metadata": {"name": "a"}, "spec": {"finalizers": [finalizer]}});
        parse(Format::Json, object.to_string().as_bytes(), SUFFIX)
    };
    assert!(exported("kubernetes").is_ok());
    assert!(exported("example.com/x").is_err());
}

#[test]
fn other_objects_and_formats_are_refused() {
    for body in [
        &b""[..],
        b"[]",
        b"{",
        b"apiVersion: v1",
        br#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}"#,
        br#"{"apiVersion": "v2", "kind": "Namespace", "metadata": {"name": "a"}}"#,
        br#"{"metadata": {"name": 1}}"#,
    ] {
        let refused = parse(Format::Json, body, SUFFIX).unwrap_err().response("r-1");
        assert_eq!(refused.status(), 400, "{}", String::from_utf8_lossy(body));
        assert!(parse(Format::Protobuf, body, SUFFIX).is_err());
    }
    assert!(protobuf("Pod", MetadataMessage::default()).is_err());
}

#[test]
fn the_content_type_names_the_format() {
    for (value, expected) in [
        ("application/json", Some(Format::Json)),
        ("application/json; charset=utf-8", Some(Format::Json)),
        ("application/vnd.kubernetes.protobuf", Some(Format::Protobuf)),
        ("application/yaml", None),
        ("application/apply-patch+yaml", Some(Format::Apply)),
        ("application/cbor", None),
        ("", None),
    ] {
        let value = HeaderValue::from_static(value);
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, value)]);
        assert_eq!(Format::of_request(&headers), expected, "{headers:?}");
    }
    assert_eq!(Format::of_request(&HeaderMap::new()), Some(Format::Json));
}

proptest! {
    #[test]
    fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..120), text in ".{0,80}") {
        let _ = parse(Format::Json, text.as_bytes(), SUFFIX);
        let _ = parse(Format::Protobuf, &bytes, SUFFIX);
        let _ = parse(Format::Protobuf, &[PROTOBUF_MAGIC, &bytes].concat(), SUFFIX);
        let envelope = ProtobufEnvelope { type_meta: None, raw: bytes };
        let _ = parse(Format::Protobuf, &[PROTOBUF_MAGIC, &envelope.encode_to_vec()].concat(), SUFFIX);
    }
}
