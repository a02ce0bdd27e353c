//! Objects of the Kubernetes API in Protobuf (API concepts, "Kubernetes Protobuf encoding"). Messages
//! declare only the fields that the gateway reads.

use prost::Message;

/// The prefix of every object.
pub(super) const MAGIC: &[u8] = b"k8s\0";

/// The envelope of an object (`runtime.Unknown`).
#[derive(Message)]
pub(super) struct Envelope {
    #[prost(message, optional, tag = "1")]
    pub(super) type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) raw: Vec<u8>,
}

/// The kind of an object (`runtime.TypeMeta`).
#[derive(Message)]
pub(super) struct TypeMeta {
    #[prost(string, tag = "1")]
    pub(super) api_version: String,
    #[prost(string, tag = "2")]
    pub(super) kind: String,
}

/// Decodes the envelope of an object; `None` if it is none.
pub(super) fn envelope(bytes: &[u8]) -> Option<Envelope> {
    Envelope::decode(bytes.strip_prefix(MAGIC)?).ok()
}
