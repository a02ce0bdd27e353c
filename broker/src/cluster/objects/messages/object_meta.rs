//! Metadata of objects in Protobuf, without `managedFields`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use prost::Message;

/// `meta/v1.ObjectMeta`.
#[derive(Message)]
pub(super) struct ObjectMetaMessage {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) name: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) generate_name: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) namespace: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) uid: Vec<u8>,
    #[prost(bytes = "vec", tag = "6")]
    pub(super) resource_version: Vec<u8>,
    #[prost(int64, tag = "7")]
    pub(super) generation: i64,
    #[prost(message, optional, tag = "8")]
    pub(super) creation_timestamp: Option<TimeMessage>,
    #[prost(message, optional, tag = "9")]
    pub(super) deletion_timestamp: Option<TimeMessage>,
    #[prost(int64, optional, tag = "10")]
    pub(super) deletion_grace_period_seconds: Option<i64>,
    #[prost(message, repeated, tag = "11")]
    pub(super) labels: Vec<EntryMessage>,
    #[prost(message, repeated, tag = "12")]
    pub(super) annotations: Vec<EntryMessage>,
    #[prost(message, repeated, tag = "13")]
    pub(super) owner_references: Vec<OwnerReferenceMessage>,
    #[prost(bytes = "vec", repeated, tag = "14")]
    pub(super) finalizers: Vec<Vec<u8>>,
}

/// An entry of a map.
#[derive(Message)]
pub(super) struct EntryMessage {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
}

/// `meta/v1.Time`.
#[derive(Message)]
pub(super) struct TimeMessage {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

/// `meta/v1.OwnerReference`.
#[derive(Message)]
pub(super) struct OwnerReferenceMessage {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) kind: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) name: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub(super) uid: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) api_version: Vec<u8>,
    #[prost(bool, optional, tag = "6")]
    pub(super) controller: Option<bool>,
    #[prost(bool, optional, tag = "7")]
    pub(super) block_owner_deletion: Option<bool>,
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

pub(super) fn text(bytes: Vec<u8>) -> String {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    String::from_utf8(bytes).unwrap_or_else(|error| lossy(error.as_bytes()))
}

/// Go writes an empty string for a missing one.
pub(super) fn non_empty_text(bytes: Vec<u8>) -> Option<String> {
    (!bytes.is_empty()).then(|| text(bytes))
}

pub(super) fn non_empty<T>(items: Vec<T>) -> Option<Vec<T>> {
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
