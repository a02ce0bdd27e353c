//! RoleBindings as the API server encodes them in Protobuf, with all their fields but
//! `managedFields`. An update without those leaves them as they are.
//!
//! The API server accepts strings that are not UTF-8 in Protobuf. They are read as in JSON, where it
//! replaces each wrong byte by U+FFFD.

use jiff::Timestamp;
use k8s_openapi::{
    api::rbac::v1::{RoleBinding, RoleRef, Subject},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
};
use prost::Message;

/// `rbac/v1.RoleBinding`.
#[derive(Message)]
pub(in crate::cluster) struct RoleBindingMessage {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMetaMessage>,
    #[prost(message, repeated, tag = "2")]
    subjects: Vec<SubjectMessage>,
    #[prost(message, optional, tag = "3")]
    role_ref: Option<RoleRefMessage>,
}

/// `meta/v1.ObjectMeta`.
#[derive(Message)]
struct ObjectMetaMessage {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    generate_name: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    namespace: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    uid: Vec<u8>,
    #[prost(bytes = "vec", tag = "6")]
    resource_version: Vec<u8>,
    #[prost(int64, tag = "7")]
    generation: i64,
    #[prost(message, optional, tag = "8")]
    creation_timestamp: Option<TimeMessage>,
    #[prost(message, optional, tag = "9")]
    deletion_timestamp: Option<TimeMessage>,
    #[prost(int64, optional, tag = "10")]
    deletion_grace_period_seconds: Option<i64>,
    #[prost(message, repeated, tag = "11")]
    labels: Vec<EntryMessage>,
    #[prost(message, repeated, tag = "12")]
    annotations: Vec<EntryMessage>,
    #[prost(message, repeated, tag = "13")]
    owner_references: Vec<OwnerReferenceMessage>,
    #[prost(bytes = "vec", repeated, tag = "14")]
    finalizers: Vec<Vec<u8>>,
}

/// An entry of a map.
#[derive(Message)]
struct EntryMessage {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `meta/v1.Time`.
#[derive(Message)]
struct TimeMessage {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// `meta/v1.OwnerReference`.
#[derive(Message)]
struct OwnerReferenceMessage {
    #[prost(bytes = "vec", tag = "1")]
    kind: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    name: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    uid: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    api_version: Vec<u8>,
    #[prost(bool, optional, tag = "6")]
    controller: Option<bool>,
    #[prost(bool, optional, tag = "7")]
    block_owner_deletion: Option<bool>,
}

/// `rbac/v1.Subject`.
#[derive(Message)]
struct SubjectMessage {
    #[prost(bytes = "vec", tag = "1")]
    kind: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    api_group: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    name: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    namespace: Vec<u8>,
}

/// `rbac/v1.RoleRef`.
#[derive(Message)]
struct RoleRefMessage {
    #[prost(bytes = "vec", tag = "1")]
    api_group: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    kind: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    name: Vec<u8>,
}

impl From<RoleBindingMessage> for RoleBinding {
    fn from(message: RoleBindingMessage) -> Self {
        let RoleRefMessage { api_group, kind, name } = message.role_ref.unwrap_or_default();
        Self {
            metadata: message.metadata.unwrap_or_default().into(),
            role_ref: RoleRef { api_group: text(api_group), kind: text(kind), name: text(name) },
            subjects: non_empty(message.subjects.into_iter().map(Subject::from).collect()),
        }
    }
}

impl From<SubjectMessage> for Subject {
    fn from(message: SubjectMessage) -> Self {
        Self {
            kind: text(message.kind),
            api_group: non_empty_text(message.api_group),
            name: text(message.name),
            namespace: non_empty_text(message.namespace),
        }
    }
}

impl From<ObjectMetaMessage> for ObjectMeta {
    fn from(message: ObjectMetaMessage) -> Self {
        let owners = message.owner_references.into_iter().map(OwnerReference::from).collect();
        Self {
            name: non_empty_text(message.name),
            generate_name: non_empty_text(message.generate_name),
            namespace: non_empty_text(message.namespace),
            uid: non_empty_text(message.uid),
            resource_version: non_empty_text(message.resource_version),
            generation: Some(message.generation).filter(|generation| *generation != 0),
            creation_timestamp: message.creation_timestamp.as_ref().and_then(time),
            deletion_timestamp: message.deletion_timestamp.as_ref().and_then(time),
            deletion_grace_period_seconds: message.deletion_grace_period_seconds,
            labels: entries(message.labels),
            annotations: entries(message.annotations),
            owner_references: non_empty(owners),
            finalizers: non_empty(message.finalizers.into_iter().map(text).collect()),
            ..Self::default()
        }
    }
}

impl From<OwnerReferenceMessage> for OwnerReference {
    fn from(message: OwnerReferenceMessage) -> Self {
        Self {
            kind: text(message.kind),
            name: text(message.name),
            uid: text(message.uid),
            api_version: text(message.api_version),
            controller: message.controller,
            block_owner_deletion: message.block_owner_deletion,
        }
    }
}

fn text(bytes: Vec<u8>) -> String {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    String::from_utf8(bytes).unwrap_or_else(|error| lossy(error.as_bytes()))
}

/// Go writes an empty string for a missing one.
fn non_empty_text(bytes: Vec<u8>) -> Option<String> {
    (!bytes.is_empty()).then(|| text(bytes))
}

fn non_empty<T>(items: Vec<T>) -> Option<Vec<T>> {
    (!items.is_empty()).then_some(items)
}

fn entries<T: FromIterator<(String, String)>>(messages: Vec<EntryMessage>) -> Option<T> {
    let entry = |entry: EntryMessage| (text(entry.key), text(entry.value));
    (!messages.is_empty()).then(|| messages.into_iter().map(entry).collect())
}

/// A time; `None` for an empty message, which Go writes for its zero time.
fn time(message: &TimeMessage) -> Option<Time> {
    let is_zero = message.seconds == 0 && message.nanos == 0;
    let time = Timestamp::new(message.seconds, message.nanos).ok()?;
    (!is_zero).then_some(Time(time))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        text.as_bytes().to_vec()
    }

    fn entry(key: &str, value: &str) -> EntryMessage {
        EntryMessage { key: bytes(key), value: bytes(value) }
    }

    fn read(message: &RoleBindingMessage) -> Value {
        let message = RoleBindingMessage::decode(&*message.encode_to_vec()).unwrap();
        serde_json::to_value(RoleBinding::from(message)).unwrap()
    }

    #[test]
    fn all_fields_are_read() {
        let owner = OwnerReferenceMessage {
            kind: bytes("ConfigMap"),
            name: bytes("parent"),
            uid: bytes("u-2"),
            api_version: bytes("v1"),
            controller: Some(false),
            block_owner_deletion: Some(true),
        };
        let metadata = ObjectMetaMessage {
            name: bytes("tenant-solar-admin"),
            generate_name: bytes("tenant-"),
            namespace: bytes("solar-a"),
            uid: bytes("u-1"),
            resource_version: bytes("42"),
            generation: 3,
            creation_timestamp: Some(TimeMessage { seconds: 1_767_323_045, nanos: 0 }),
            deletion_timestamp: Some(TimeMessage { seconds: 1_767_323_046, nanos: 0 }),
            deletion_grace_period_seconds: Some(0),
            labels: vec![entry("b", "1"), entry("a", "")],
            annotations: vec![entry("note", "x")],
            owner_references: vec![owner],
            finalizers: vec![bytes("example.com/hold")],
        };
        let subject = |kind: &str, group: &str, namespace: &str| SubjectMessage {
            kind: bytes(kind),
            api_group: bytes(group),
            name: bytes("alice"),
            namespace: bytes(namespace),
        };
        let rbac = "rbac.authorization.k8s.io";
        let message = RoleBindingMessage {
            metadata: Some(metadata),
            subjects: vec![subject("User", rbac, ""), subject("ServiceAccount", "", "solar-a")],
            role_ref: Some(RoleRefMessage {
                api_group: bytes(rbac),
                kind: bytes("ClusterRole"),
                name: bytes("admin"),
            }),
        };
        let expected = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {
                "name": "tenant-solar-admin", "generateName": "tenant-", "namespace": "solar-a",
                "uid": "u-1", "resourceVersion": "42", "generation": 3,
                "creationTimestamp": "2026-01-02T03:04:05Z",
                "deletionTimestamp": "2026-01-02T03:04:06Z",
                "deletionGracePeriodSeconds": 0,
                "labels": {"a": "", "b": "1"},
                "annotations": {"note": "x"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "parent",
                    "uid": "u-2", "controller": false, "blockOwnerDeletion": true}],
                "finalizers": ["example.com/hold"],
            },
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "admin"},
            "subjects": [
                {"kind": "User", "apiGroup": rbac, "name": "alice"},
                {"kind": "ServiceAccount", "name": "alice", "namespace": "solar-a"},
            ],
        });
        assert_eq!(read(&message), expected);
    }

    #[test]
    fn what_is_missing_or_empty_is_left_out() {
        let zero = Some(TimeMessage { seconds: 0, nanos: 0 });
        let metadata = ObjectMetaMessage { creation_timestamp: zero, ..Default::default() };
        let message = RoleBindingMessage { metadata: Some(metadata), ..Default::default() };
        for message in [message, RoleBindingMessage::default()] {
            let read = read(&message);
            assert_eq!(read["metadata"], json!({}));
            assert_eq!(read.get("subjects"), None);
        }
    }

    /// Whoever may write a RoleBinding could otherwise keep a tenant from being reconciled.
    #[test]
    fn strings_that_are_not_utf_8_are_read_as_in_json() {
        let metadata = ObjectMetaMessage { name: b"a\xff".to_vec(), ..Default::default() };
        let message = RoleBindingMessage { metadata: Some(metadata), ..Default::default() };
        assert_eq!(read(&message)["metadata"]["name"], "a\u{fffd}");
    }
}
