//! alice, bob and joe: with client certificates at the API server, and signed in at the company's
//! provider through the gateway.

use integration::kubectl::Kubectl;
use integration::oidc_provider::OidcProvider;
use integration::world::World;

use super::super::provider::{self, SERVER_PATH};
use super::super::reconcile::PRODUCTION;

/// The people of the document, with what they are called in Tenants.
pub(super) struct People {
    pub(super) alice: Kubectl,
    pub(super) bob: Kubectl,
    pub(super) joe: Kubectl,
    /// What follows a person's name.
    domain: &'static str,
    /// Whether they work through the gateway.
    pub(super) is_gateway: bool,
}

impl People {
    /// The name of the `User`.
    pub(super) fn user(&self, name: &str) -> String {
        format!("{name}{}", self.domain)
    }

    /// The path of the objects of a kind in the namespace `solar-production`. `kubectl get --raw`
    /// sends it to the host of the server's URL, without the URL's path.
    pub(super) fn path_of(&self, kind: &str) -> String {
        let server = if self.is_gateway { SERVER_PATH } else { "" };
        format!("{server}/apis/{}", kind.replace("NAMESPACE", PRODUCTION))
    }

    /// People with client certificates: alice's has "/CN=alice/O=projectcapsule.dev".
    pub(super) fn with_certificates(world: &World) -> Self {
        let person = |name: &str, group: &str| {
            let file = world.cluster().kubeconfig_for(name, Some(group), world.folder()).unwrap();
            world.kubectl_with(&file).unwrap()
        };
        Self {
            alice: person("alice", "projectcapsule.dev"),
            bob: person("bob", "solar-users"),
            joe: person("joe", "projectcapsule.dev"),
            domain: "",
            is_gateway: false,
        }
    }

    /// People who sign in at the provider.
    pub(super) async fn of_provider(world: &World, at: &OidcProvider) -> Self {
        provider::register_broker(world, at).await;
        let person = async |name: &str, groups: &[&str]| {
            provider::set_groups(at, name, groups).await;
            let session = provider::sign_in(world, at, name).await;
            provider::kubectl(world, name, &session.access_token)
        };
        Self {
            alice: person("alice", &[]).await,
            bob: person("bob", &["solar-users"]).await,
            joe: person("joe", &[]).await,
            domain: "@example.com",
            is_gateway: true,
        }
    }
}
