//! Files that change while the issuer runs: signing keys and the client secret at a provider.

use integration::{authority::signing_key, mounted_secret::MountedSecret};
use serde_json::{Value, json};
use tenant_broker::issuer::connector::ClientSecret;

use crate::{
    upstream::{CLIENT_ID, CLIENT_SECRET, ProviderWorld},
    world::{On, World, on_both_engines},
};

on_both_engines!(
    a_signing_key_that_is_added_to_the_file_signs_and_the_others_stay_published,
    sessions_of_a_provider_survive_a_new_signing_key_until_the_old_one_is_removed,
    a_new_client_secret_is_used_for_the_next_sign_in,
);

/// A counter of changed files.
fn reloads(file: &str, outcome: &str, count: u32) -> String {
    let labels = format!("{{file=\"{file}\",outcome=\"{outcome}\"}}");
    format!("tenant_broker_file_reloads_total{labels} {count}\n")
}

/// Identifiers of the published keys, the signing one first.
async fn published(world: &World) -> Vec<String> {
    let response = world.http.get(world.at("/oauth2/jwks")).send().await.unwrap();
    let set: Value = response.json().await.unwrap();
    let keys = set["keys"].as_array().unwrap().iter();
    keys.map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
}

/// Identifier of the key that signed a token.
fn kid(token: &str) -> String {
    jsonwebtoken::decode_header(token).unwrap().kid.unwrap()
}

async fn a_signing_key_that_is_added_to_the_file_signs_and_the_others_stay_published(on: On) {
    const FILES: &str = "issuer.signing_key_files";
    let world = World::start(on).await;
    let before = world.sign_in().await;
    let [old_kid] = <[String; 1]>::try_from(published(&world).await).unwrap();
    let file = world.folder.path().join("issuer-key.pem");
    let old = std::fs::read_to_string(&file).unwrap();
    let new = signing_key().unwrap().0;

    std::fs::write(&file, format!("{old}{}", &new[..new.len() / 2])).unwrap();
    assert!(world.reload_files().await.contains(&reloads(FILES, "refused", 1)));
    assert_eq!(published(&world).await, [old_kid.as_str()]);
    assert_eq!(kid(&world.sign_in().await.id), old_kid);

    // Published first, and then it signs.
    std::fs::write(&file, format!("{old}{new}")).unwrap();
    assert!(world.reload_files().await.contains(&reloads(FILES, "ok", 1)));
    let kids = published(&world).await;
    assert_eq!((kids.len(), &kids[0]), (2, &old_kid));
    assert_eq!(kid(&world.sign_in().await.id), old_kid);
    std::fs::write(&file, format!("{new}{old}")).unwrap();
    let metrics = world.reload_files().await;
    assert!(metrics.contains(&reloads(FILES, "ok", 2)) && metrics.contains("signing_keys 2\n"));
    let new_kid = &kids[1];
    assert_eq!(published(&world).await, [new_kid.as_str(), &old_kid]);
    assert_eq!(kid(&world.sign_in().await.id), *new_kid);
    assert_eq!(kid(&world.refresh(&before.refresh).await.tokens().id), *new_kid);

    std::fs::write(&file, &new).unwrap();
    assert!(world.reload_files().await.contains("signing_keys 1\n"));
    assert_eq!(published(&world).await, [new_kid.as_str()]);
}

async fn sessions_of_a_provider_survive_a_new_signing_key_until_the_old_one_is_removed(on: On) {
    let fixture = ProviderWorld::start(on).await;
    let world = &fixture.world;
    fixture.person("bob", &["dev"]).await;
    let (ada, bob) = (fixture.sign_in("ada").await, fixture.sign_in("bob").await);
    let file = world.folder.path().join("issuer-key.pem");
    let old = std::fs::read_to_string(&file).unwrap();
    let new = signing_key().unwrap().0;

    std::fs::write(&file, format!("{new}{old}")).unwrap();
    world.reload_files().await;
    world.advance_seconds(900);
    // The provider's refresh token opens with the old key; the next one is sealed with the new key.
    let ada = world.refresh(&ada.refresh).await.tokens();
    std::fs::write(&file, &new).unwrap();
    world.reload_files().await;
    world.advance_seconds(900);
    world.refresh(&ada.refresh).await.tokens();
    world.refresh(&bob.refresh).await.refused(400, "invalid_grant");
    let reasons = fixture.audit("ProviderLogout").await;
    assert!(reasons[0].contains("issuer.signing_key_files"), "{reasons:?}");
}

async fn a_new_client_secret_is_used_for_the_next_sign_in(on: On) {
    const FILE: &str = "connectors.corp.client_secret_file";
    const NEW_SECRET: &str = "another secret of the tests";
    let folder = tempfile::tempdir().unwrap();
    let content = format!("{CLIENT_SECRET}\n");
    let secret = folder.path().join("secret");
    let mounted = MountedSecret::new(&secret, &[("secret", &*content)]).unwrap();
    let file = ClientSecret::File(mounted.path("secret"));
    let fixture = ProviderWorld::with(on, |connector| connector.client_secret = Some(file)).await;
    fixture.sign_in("ada").await;

    let clients = json!([{
        "client_id": CLIENT_ID, "client_secret": NEW_SECRET,
        "redirect_uris": [fixture.world.at("/login/callback/corp")],
    }]);
    fixture.provider.clients(clients).await.unwrap();
    assert_eq!(fixture.sign_in_page("ada").await.status, 503);
    mounted.replace(&[("secret", "\n")]).unwrap();
    assert!(fixture.world.reload_files().await.contains(&reloads(FILE, "refused", 1)));
    assert_eq!(fixture.sign_in_page("ada").await.status, 503);
    mounted.replace(&[("secret", NEW_SECRET)]).unwrap();
    assert!(fixture.world.reload_files().await.contains(&reloads(FILE, "ok", 1)));
    fixture.sign_in("ada").await;
}
