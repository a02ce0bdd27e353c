//! A RoleBinding whose name is not UTF-8. The API server accepts it in Protobuf, and replaces its bytes
//! in JSON, so a suspension would see it and could not delete it.

use integration::http_client::http_client;
use integration::world::World;

/// A field of Protobuf with bytes (wire type 2).
fn field(tag: u8, value: &[u8]) -> Vec<u8> {
    let length = u8::try_from(value.len() & 0x7f).unwrap();
    let more = u8::try_from(value.len() >> 7).unwrap();
    let mut field = vec![tag << 3 | 2];
    if more == 0 {
        field.push(length);
    } else {
        field.extend([length | 0x80, more]);
    }
    field.extend(value);
    field
}

/// A RoleBinding with this name, of a ServiceAccount of the namespace, in Protobuf.
fn role_binding(name: &[u8], namespace: &str) -> Vec<u8> {
    let group = b"rbac.authorization.k8s.io";
    let metadata = field(1, name);
    let subject =
        [field(1, b"ServiceAccount"), field(3, b"default"), field(4, namespace.as_bytes())];
    let role = [field(1, group), field(2, b"ClusterRole"), field(3, b"view")];
    let binding = [field(1, &metadata), field(2, &subject.concat()), field(3, &role.concat())];
    let kind = [field(1, b"rbac.authorization.k8s.io/v1"), field(2, b"RoleBinding")];
    let envelope = [field(1, &kind.concat()), field(2, &binding.concat())];
    [b"k8s\0".to_vec(), envelope.concat()].concat()
}

#[tokio::test]
async fn a_role_binding_that_a_suspension_could_not_delete_is_refused() {
    let world = World::builder().start().await.unwrap();
    let mallory = world.person("mallory").await.unwrap();
    let session = mallory.sign_in().await.unwrap();
    let api = world.anonymous_api().unwrap().with_token(session.access_token.clone());
    let (workspace, _) = api.init("basic").await.unwrap();
    let credential = api.credential(workspace.id).await.unwrap();
    let namespace = mallory.namespace();
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
    let url = world.cluster().url().join(&path).unwrap();
    let http = http_client(Some(world.cluster().authority().certificate())).unwrap();
    let create = async |name: &[u8]| {
        let request = http.post(url.clone()).bearer_auth(&credential.token);
        let request = request.header("content-type", "application/vnd.kubernetes.protobuf");
        let request = request.header("accept", "application/json");
        let response = request.body(role_binding(name, &namespace)).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    let (status, text) = create(b"system:printable name").await;
    assert_eq!(status, 201, "{text}");
    for name in [&b"\xff"[..], b"a\xffb", "\u{fffd}".as_bytes(), "\u{202e}".as_bytes(), b"a\nb"] {
        let (status, text) = create(name).await;
        assert_eq!(status, 403, "{name:?}: {text}");
        assert!(text.contains("printable ASCII characters only"), "{name:?}: {text}");
    }
}
