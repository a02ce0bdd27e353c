//! A RoleBinding whose name is not UTF-8. The API server accepts it in Protobuf, and replaces its bytes
//! in JSON, so a suspension would see it and could not delete it.

use integration::probe::{self, Probe};
use integration::raw_role_binding::{self, RawSubject};
use integration::world::World;

use crate::RIGHTS_TIMEOUT;

#[tokio::test]
async fn a_role_binding_that_a_suspension_could_not_delete_is_refused() {
    let world = World::builder().start().await.unwrap();
    let mallory = world.person("mallory").await.unwrap();
    let session = mallory.sign_in().await.unwrap();
    let api = world.anonymous_api().unwrap().with_token(session.access_token.clone());
    let (workspace, _) = api.init("basic").await.unwrap();
    let credential = api.credential(workspace.id).await.unwrap();
    let namespace = mallory.namespace();
    let account = RawSubject { kind: "ServiceAccount", name: b"default", namespace: &namespace };
    let create = async |name: &[u8]| {
        let place = (namespace.as_str(), name);
        raw_role_binding::create(&world, &credential.token, place, account).await.unwrap()
    };
    // RBAC follows the new bindings after a moment.
    probe::until("a printable name", RIGHTS_TIMEOUT, || async {
        let (status, text) = create(b"system:printable name").await;
        Ok(if status == 201 { Probe::Ready(()) } else { Probe::NotYet(text) })
    })
    .await
    .unwrap();
    for name in [&b"\xff"[..], b"a\xffb", "\u{fffd}".as_bytes(), "\u{202e}".as_bytes(), b"a\nb"] {
        let (status, text) = create(name).await;
        assert_eq!(status, 403, "{name:?}: {text}");
        assert!(text.contains("printable ASCII characters only"), "{name:?}: {text}");
    }
}
