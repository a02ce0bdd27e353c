//! RoleBindings in Protobuf, with strings that need not be UTF-8 (API concepts, "Kubernetes Protobuf
//! encoding"). The API server accepts such strings, and JSON cannot have them.

use anyhow::Result;

use crate::http_client::http_client;
use crate::world::World;

const GROUP: &str = "rbac.authorization.k8s.io";

/// A subject of a RoleBinding.
#[derive(Clone, Copy, Debug)]
pub struct RawSubject<'a> {
    pub kind: &'a str,
    pub name: &'a [u8],
    /// Empty unless it is a ServiceAccount.
    pub namespace: &'a str,
}

/// Creates a RoleBinding of the ClusterRole `view` with this token, directly at the API server. Returns
/// the status and the body of the response.
///
/// # Errors
/// The API server does not respond.
pub async fn create(
    world: &World,
    token: &str,
    (namespace, name): (&str, &[u8]),
    subject: RawSubject<'_>,
) -> Result<(u16, String)> {
    let path = format!("/apis/{GROUP}/v1/namespaces/{namespace}/rolebindings");
    let url = world.cluster().url().join(&path)?;
    let http = http_client(Some(world.cluster().authority().certificate()))?;
    let request = http
        .post(url)
        .bearer_auth(token)
        .header("content-type", "application/vnd.kubernetes.protobuf")
        .header("accept", "application/json")
        .body(encode(name, subject));
    let response = request.send().await?;
    Ok((response.status().as_u16(), response.text().await?))
}

fn encode(name: &[u8], subject: RawSubject<'_>) -> Vec<u8> {
    let group = if subject.kind == "ServiceAccount" { "" } else { GROUP };
    let subject = [
        field(1, subject.kind.as_bytes()),
        field(2, group.as_bytes()),
        field(3, subject.name),
        field(4, subject.namespace.as_bytes()),
    ];
    let role = [field(1, GROUP.as_bytes()), field(2, b"ClusterRole"), field(3, b"view")];
    let binding =
        [field(1, &field(1, name)), field(2, &subject.concat()), field(3, &role.concat())];
    let version = format!("{GROUP}/v1");
    let kind = [field(1, version.as_bytes()), field(2, b"RoleBinding")];
    let envelope = [field(1, &kind.concat()), field(2, &binding.concat())];
    [b"k8s\0".to_vec(), envelope.concat()].concat()
}

/// A field of Protobuf with bytes (wire type 2).
fn field(tag: u32, value: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    prost::encoding::encode_key(tag, prost::encoding::WireType::LengthDelimited, &mut field);
    prost::encoding::encode_varint(value.len() as u64, &mut field);
    field.extend(value);
    field
}
