//! Deletion of objects that others may have made large. A megabyte of `managedFields` takes the API
//! server most of a second to encode in JSON, and about fifteen times as much memory when it is
//! parsed. In Protobuf both skip it as bytes.

use http::{Request, header};
use http_body_util::{BodyExt as _, Limited};
use kube::{Client, client::Body};
use prost::Message;

use crate::cluster::{
    ClusterError,
    pages::{PROTOBUF, refusal},
};

/// Bytes of a refusal that are read.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;

/// Finalizers of the API server for the other kinds of propagation. A deletion with background
/// propagation removes them, which costs it less than a patch of an object with many managers.
const REMOVED_BY_DELETION: [&[u8]; 2] = [b"foregroundDeletion", b"orphan"];

/// A `PartialObjectMetadata` of `meta/v1` in a list.
#[derive(Message)]
pub(in crate::cluster) struct ObjectIdentity {
    #[prost(message, optional, tag = "1")]
    metadata: Option<IdentityMetadata>,
}

/// The fields of a `meta/v1.ObjectMeta` that a deletion needs.
#[derive(Message)]
struct IdentityMetadata {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    uid: Vec<u8>,
    #[prost(message, optional, tag = "9")]
    deletion_timestamp: Option<()>,
    #[prost(bytes = "vec", repeated, tag = "14")]
    finalizers: Vec<Vec<u8>>,
}

impl ObjectIdentity {
    /// The name. The API server accepts bytes that are not UTF-8; they are read as in JSON.
    pub(in crate::cluster) fn name(&self) -> String {
        let name = self.metadata.as_ref().map(|metadata| String::from_utf8_lossy(&metadata.name));
        name.unwrap_or_default().into_owned()
    }

    pub(in crate::cluster) fn uid(&self) -> Option<&str> {
        let uid = self.metadata.as_ref().and_then(|it| std::str::from_utf8(&it.uid).ok());
        uid.filter(|uid| !uid.is_empty())
    }

    /// Whether the object is being deleted, and has finalizers that a deletion with background
    /// propagation does not remove.
    pub(in crate::cluster) fn is_held(&self) -> bool {
        let is_other = |it: &Vec<u8>| !REMOVED_BY_DELETION.contains(&it.as_slice());
        self.metadata
            .as_ref()
            .is_some_and(|it| it.deletion_timestamp.is_some() && it.finalizers.iter().any(is_other))
    }
}

/// Sends a request of which only the status counts. An object in the response is not read.
///
/// # Errors
/// The request failed.
pub(in crate::cluster) async fn send_for_status(
    client: &Client,
    mut request: Request<Vec<u8>>,
) -> Result<(), ClusterError> {
    request.headers_mut().insert(header::ACCEPT, PROTOBUF);
    let response = client.send(request.map(Body::from)).await?;
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let body = Limited::new(response.into_body(), MAX_REFUSAL_BYTES).collect().await;
    let body = body.map_err(kube::Error::Service)?.to_bytes();
    Err(kube::Error::Api(refusal(&body, status).boxed()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_held_if_it_is_being_deleted_and_has_finalizers() {
        let identity = |is_deleted: bool, finalizers: &[&str]| {
            let metadata = IdentityMetadata {
                name: b"a\xff".to_vec(),
                uid: b"u-1".to_vec(),
                deletion_timestamp: is_deleted.then_some(()),
                finalizers: finalizers.iter().map(|it| it.as_bytes().to_vec()).collect(),
            };
            let message = ObjectIdentity { metadata: Some(metadata) };
            ObjectIdentity::decode(&*message.encode_to_vec()).unwrap()
        };
        assert!(identity(true, &["example.com/hold"]).is_held());
        assert!(identity(true, &["orphan", "example.com/hold"]).is_held());
        assert!(!identity(true, &["foregroundDeletion"]).is_held());
        assert!(!identity(true, &[]).is_held());
        assert!(!identity(false, &["example.com/hold"]).is_held());
        let read = identity(false, &[]);
        assert_eq!((read.name().as_str(), read.uid()), ("a\u{fffd}", Some("u-1")));
        assert_eq!(ObjectIdentity::default().uid(), None);
    }
}
