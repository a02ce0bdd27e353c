//! RoleBindings as the API server encodes them in Protobuf, with all their fields but
//! `managedFields`. An update without those leaves them as they are.

use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use prost::Message;

use super::object_meta::{ObjectMetaMessage, non_empty, non_empty_text, text};

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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{
        super::object_meta::{EntryMessage, OwnerReferenceMessage, TimeMessage},
        *,
    };

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
