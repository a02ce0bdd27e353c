//! Parity of the gateway: requests of particular clients get the same responses directly and
//! through the gateway.
//!
//! This is the short form of `cargo acceptance conformance` for every test run: the requests that
//! its specs send, without the nine minutes that building them takes.

mod reads;
mod route;
mod writes;

use std::time::Duration;

use integration::person::Person;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::json;

use self::route::Route;

/// The API group of a custom resource.
const GROUP: &str = "same.example.com";

/// Creates a person with a workspace, and both routes to it.
async fn routes(world: &World) -> (Person, [Route; 2]) {
    let person = world.person("alice").await.unwrap();
    let session = person.sign_in().await.unwrap();
    let api = world.anonymous_api().unwrap().with_token(session.access_token.clone());
    let (workspace, _) = api.init("premium").await.unwrap();
    let credential = api.credential(workspace.id).await.unwrap();
    let authority = world.cluster().authority().certificate();
    let base = format!("clusters/{}/", workspace.cluster);
    let gateway = world.broker().public_url().unwrap().join(&base).unwrap();
    let direct = Route::new(world.cluster().url(), authority, credential.token.into());
    let through = Route::new(&gateway, authority, session.access_token);
    (person, [direct, through])
}

/// Creates the custom resource, and waits until tenants may use it and its schema is published.
async fn make_resource(world: &World, person: &Person, direct: &Route) {
    let schema = json!({"type": "object", "properties": {
        "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer", "minimum": 1, "description": "How large it is."},
            "colour": {"type": "string", "default": "blue"},
        }},
    }});
    let resource = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "additionalPrinterColumns":
                    [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
            }],
        },
    });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "things",
            "labels": {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}},
        "rules": [{"apiGroups": [GROUP], "resources": ["things", "things/status"], "verbs": ["*"]}],
    });
    let admin = world.admin_kubectl().unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [resource, role]});
    // Server-side apply, because two tests may create it concurrently.
    let apply = ["apply", "--server-side", "-f", "-"];
    admin.run_with_input(apply, list.to_string()).await.unwrap().success().unwrap();
    let paths = [
        format!("apis/{GROUP}/v1/namespaces/{}/things", person.namespace()),
        format!("openapi/v3/apis/{GROUP}/v1"),
    ];
    for path in paths {
        probe::until(&path, Duration::from_secs(30), || async {
            let answer = direct.get(&path, &[]).await;
            Ok(match answer.status {
                200 => Probe::Ready(()),
                other => Probe::NotYet(format!("status {other}")),
            })
        })
        .await
        .unwrap();
    }
}
