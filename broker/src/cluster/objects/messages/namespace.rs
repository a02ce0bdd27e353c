//! Namespaces as the API server encodes them in Protobuf, with their metadata and phase.

use k8s_openapi::api::core::v1::{Namespace, NamespaceStatus};
use prost::Message;

use super::object_meta::{ObjectMetaMessage, non_empty_text};

/// The fields of a `v1.Namespace` that are read.
#[derive(Message)]
pub(in crate::cluster) struct NamespaceMessage {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMetaMessage>,
    #[prost(message, optional, tag = "3")]
    status: Option<NamespaceStatusMessage>,
}

/// The fields of a `v1.NamespaceStatus` that are read.
#[derive(Message)]
struct NamespaceStatusMessage {
    #[prost(bytes = "vec", tag = "1")]
    phase: Vec<u8>,
}

impl From<NamespaceMessage> for Namespace {
    fn from(message: NamespaceMessage) -> Self {
        let phase = message.status.and_then(|status| non_empty_text(status.phase));
        Self {
            metadata: message.metadata.unwrap_or_default().into(),
            spec: None,
            status: Some(NamespaceStatus { phase, ..NamespaceStatus::default() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metadata_and_phase_are_read() {
        let metadata = ObjectMetaMessage { name: b"solar-a".to_vec(), ..Default::default() };
        let status = NamespaceStatusMessage { phase: b"Terminating".to_vec() };
        let message = NamespaceMessage { metadata: Some(metadata), status: Some(status) };
        let message = NamespaceMessage::decode(&*message.encode_to_vec()).unwrap();
        let expected = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "solar-a"}, "status": {"phase": "Terminating"}});
        assert_eq!(serde_json::to_value(Namespace::from(message)).unwrap(), expected);
        let empty = Namespace::from(NamespaceMessage::default());
        assert_eq!(empty.status.unwrap().phase, None);
    }
}
