//! No plaintext secret at rest, in logs at any level, in metrics, or in files that others can read.

use std::path::{Path, PathBuf};

use integration::world::World;
use secrecy::ExposeSecret as _;
use serde_json::Value;

/// Returns all files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.is_file() {
            found.push(path);
        }
    }
    found
}

async fn nothing_leaks(world: World) {
    let alice = world.person("alice").await.unwrap();
    let bob = world.person("bob").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    bob.login(&[]).await.unwrap().success().unwrap();
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
    let session = alice.sign_in().await.unwrap();
    let session = alice.issuer().await.unwrap().refresh(&session.refresh_token).await.unwrap();
    let api = world.anonymous_api().unwrap().with_token(session.access_token.clone());
    let id = api.workspaces(false).await.unwrap().items[0].id;
    let credential = api.credential(id).await.unwrap();
    let document: Value = serde_norway::from_str(&api.kubeconfig("static").await.unwrap()).unwrap();
    let in_document = document["users"][0]["user"]["token"].as_str().unwrap().to_owned();
    let metrics = world.broker().metrics().await.unwrap();

    let cached = files(&alice.home().join(".cache/kubectl-tenant/tokens"));
    let cached: Value =
        serde_json::from_str(std::fs::read_to_string(&cached[0]).unwrap().lines().next().unwrap())
            .unwrap();
    let secrets = [
        ("Kubernetes token", credential.token.clone()),
        ("Kubernetes token in the kubeconfig", in_document),
        ("Kubernetes token in the plugin's cache", cached["token"].as_str().unwrap().to_owned()),
        ("password", alice.password().to_owned()),
        ("access token", session.access_token.expose_secret().to_owned()),
        ("refresh token", session.refresh_token.expose_secret().to_owned()),
    ];
    // The person's own machine may keep secrets; everything else must not.
    let own = alice.home();
    let mut searched = 0;
    let searched_folders = [world.folder(), world.cluster().folder()];
    for file in searched_folders.into_iter().flat_map(files) {
        if file.starts_with(own) {
            continue;
        }
        let Ok(bytes) = std::fs::read(&file) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        searched += 1;
        for (name, secret) in &secrets {
            assert!(!text.contains(secret.as_str()), "{} has the {name}", file.display());
            // Nor the unsigned part of a token, which cannot forge anything but reveals much.
            if let Some((head, _)) = secret.rsplit_once('.') {
                assert!(!text.contains(head), "{} has most of the {name}", file.display());
            }
        }
    }
    assert!(searched > 10, "only {searched} files were searched");
    for (name, secret) in &secrets {
        assert!(!metrics.contains(secret.as_str()), "the metrics have the {name}");
    }
    assert!(world.broker().log().unwrap().contains("TRACE"), "the log is at trace level");
    assert!(metrics.contains("tenant_broker_actions_total"), "{metrics}");
}

#[tokio::test]
async fn nothing_that_is_written_holds_a_secret_on_sqlite() {
    nothing_leaks(World::builder().own_control_plane().start().await.unwrap()).await;
}

#[tokio::test]
async fn nothing_that_is_written_holds_a_secret_on_postgres() {
    nothing_leaks(World::builder().own_control_plane().postgres().start().await.unwrap()).await;
}
