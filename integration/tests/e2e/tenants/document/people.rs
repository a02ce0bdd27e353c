//! alice, bob and joe: with client certificates at the API server, and signed in at the company's
//! provider through the gateway.

use integration::browser::Browser;
use integration::kubeconfig;
use integration::kubectl::Kubectl;
use integration::oidc::Issuer;
use integration::oidc_provider::OidcProvider;
use integration::world::World;
use secrecy::SecretString;
use serde_json::json;
use url::Url;

use super::super::reconcile::PRODUCTION;

/// The path of the cluster at the gateway.
const SERVER_PATH: &str = "/clusters/internal-cluster";
const CLIENT: &str = "broker";
const SECRET: &str = "a secret of the tests";
/// The connector of the provider.
const CONNECTOR: &str = "corp";

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
    pub(super) async fn of_provider(world: &World, provider: &OidcProvider) -> Self {
        let broker = world.broker().public_url().unwrap();
        provider
            .clients(json!([{
                "client_id": CLIENT,
                "client_secret": SECRET,
                "redirect_uris": [broker.join(&format!("login/callback/{CONNECTOR}")).unwrap()],
            }]))
            .await
            .unwrap();
        let person = async |name: &str, groups: &[&str]| {
            let claims = json!({
                "email": format!("{name}@example.com"), "email_verified": true,
                "preferred_username": name, "groups": groups,
            });
            provider.person(name, claims).await.unwrap();
            let token = sign_in(world, provider, name).await;
            let file = world.folder().join(format!("{name}-gateway.kubeconfig"));
            let gateway = broker.join(SERVER_PATH).unwrap();
            let authority = world.cluster().authority().certificate();
            kubeconfig::write_for_bearer(&file, &gateway, authority, &token).unwrap();
            world.kubectl_with(&file).unwrap()
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

/// Settings of the connector to a provider, by name.
pub(super) fn settings(provider: &OidcProvider) -> [(String, &str); 4] {
    [
        ("issuer", provider.issuer()),
        ("client_id", CLIENT),
        ("client_secret", SECRET),
        ("scopes", "openid email profile groups offline_access"),
    ]
    .map(|(key, value)| (format!("connectors.{CONNECTOR}.{key}"), value))
}

/// Signs a person in at the provider, and returns the access token.
async fn sign_in(world: &World, provider: &OidcProvider, name: &str) -> SecretString {
    let authority = world.cluster().authority().certificate();
    let broker = world.broker().public_url().unwrap();
    let issuer = Issuer::discover(&broker, Some(authority)).await.unwrap();
    let request = issuer.begin().unwrap();
    let browser = Browser::new(Some(authority)).unwrap().stopping_at(request.redirect_uri.clone());
    let page = browser.open(request.url.clone()).await.unwrap();
    let handle = page.url.query_pairs().find(|(key, _)| key == "request").unwrap().1;
    let mut start: Url = broker.join(&format!("login/with/{CONNECTOR}")).unwrap();
    start.query_pairs_mut().append_pair("request", &handle);
    let page = provider.sign_in(&browser, start, name).await.unwrap();
    issuer.redeem(&request, &page.url).await.unwrap().access_token
}
