//! A company's OpenID provider, and people who sign in at the broker with it.

use integration::browser::Browser;
use integration::kubeconfig;
use integration::kubectl::Kubectl;
use integration::oidc::{Issuer, TokenResponse};
use integration::oidc_provider::OidcProvider;
use integration::world::World;
use secrecy::SecretString;
use serde_json::json;
use url::Url;

/// The path of the cluster at the gateway.
pub(super) const SERVER_PATH: &str = "/clusters/internal-cluster";
const CLIENT: &str = "broker";
const SECRET: &str = "a secret of the tests";
/// The connector of the provider.
const CONNECTOR: &str = "corp";

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

/// Makes the broker a client of the provider.
pub(super) async fn register_broker(world: &World, provider: &OidcProvider) {
    let broker = world.broker().public_url().unwrap();
    let callback = broker.join(&format!("login/callback/{CONNECTOR}")).unwrap();
    let client = json!({
        "client_id": CLIENT, "client_secret": SECRET, "redirect_uris": [callback],
    });
    provider.clients(json!([client])).await.unwrap();
}

/// Creates a person at the provider, or changes their groups.
pub(super) async fn set_groups(provider: &OidcProvider, name: &str, groups: &[&str]) {
    let claims = json!({
        "email": format!("{name}@example.com"), "email_verified": true,
        "preferred_username": name, "groups": groups,
    });
    provider.person(name, claims).await.unwrap();
}

/// The broker, as it describes itself to programs that sign people in.
pub(super) async fn issuer(world: &World) -> Issuer {
    let authority = world.cluster().authority().certificate();
    Issuer::discover(&world.broker().public_url().unwrap(), Some(authority)).await.unwrap()
}

/// Signs a person in at the provider.
pub(super) async fn sign_in(world: &World, provider: &OidcProvider, name: &str) -> TokenResponse {
    let issuer = issuer(world).await;
    let request = issuer.begin().unwrap();
    let browser = Browser::new(Some(world.cluster().authority().certificate())).unwrap();
    let browser = browser.stopping_at(request.redirect_uri.clone());
    let page = browser.open(request.url.clone()).await.unwrap();
    let handle = page.url.query_pairs().find(|(key, _)| key == "request").unwrap().1;
    let broker = world.broker().public_url().unwrap();
    let mut start: Url = broker.join(&format!("login/with/{CONNECTOR}")).unwrap();
    start.query_pairs_mut().append_pair("request", &handle);
    let page = provider.sign_in(&browser, start, name).await.unwrap();
    issuer.redeem(&request, &page.url).await.unwrap()
}

/// kubectl at the gateway with an access token, in a kubeconfig of this name.
pub(super) fn kubectl(world: &World, name: &str, token: &SecretString) -> Kubectl {
    let file = world.folder().join(format!("{name}-gateway.kubeconfig"));
    let gateway = world.broker().public_url().unwrap().join(SERVER_PATH).unwrap();
    let authority = world.cluster().authority().certificate();
    kubeconfig::write_for_bearer(&file, &gateway, authority, token).unwrap();
    world.kubectl_with(&file).unwrap()
}
