//! Objects and lists of the Kubernetes API in Protobuf (API concepts, "Kubernetes Protobuf encoding").
//! Messages declare only the fields that the broker reads.

use prost::Message;

/// The media type in `Accept`.
pub(in crate::cluster) const PROTOBUF: http::HeaderValue =
    http::HeaderValue::from_static("application/vnd.kubernetes.protobuf");
/// The media type in `Accept` of lists of which only the metadata is read.
pub(in crate::cluster) const PROTOBUF_METADATA: http::HeaderValue = http::HeaderValue::from_static(
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
);
/// The prefix of every object.
pub(crate) const PROTOBUF_MAGIC: &[u8] = b"k8s\0";

/// The envelope of an object (`runtime.Unknown`).
#[derive(Message)]
pub(crate) struct ProtobufEnvelope {
    #[prost(message, optional, tag = "1")]
    pub(crate) type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) raw: Vec<u8>,
}

/// The kind of an object (`runtime.TypeMeta`).
#[derive(Message)]
pub(crate) struct TypeMeta {
    #[prost(string, tag = "1")]
    pub(crate) api_version: String,
    #[prost(string, tag = "2")]
    pub(crate) kind: String,
}

/// A list of any kind, also a `PartialObjectMetadataList`: all have these fields.
#[derive(Message)]
pub(in crate::cluster) struct ProtobufList<T: Message + Default + std::fmt::Debug> {
    #[prost(message, optional, tag = "1")]
    pub(in crate::cluster) metadata: Option<ListMeta>,
    #[prost(message, repeated, tag = "2")]
    pub(in crate::cluster) items: Vec<T>,
}

/// `meta/v1.ListMeta`.
#[derive(Message)]
pub(in crate::cluster) struct ListMeta {
    #[prost(string, tag = "3")]
    pub(in crate::cluster) continue_token: String,
}

/// `meta/v1.Status`.
#[derive(Message)]
pub(in crate::cluster) struct StatusMessage {
    #[prost(string, tag = "3")]
    pub(in crate::cluster) message: String,
    #[prost(string, tag = "4")]
    pub(in crate::cluster) reason: String,
}

impl ProtobufEnvelope {
    /// Decodes the envelope of an object; `None` if it is none.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        Self::decode(bytes.strip_prefix(PROTOBUF_MAGIC)?).ok()
    }
}
