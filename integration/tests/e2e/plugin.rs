//! The plugin with the real kubectl: completion, versions, older clients.

use std::time::Duration;

use integration::person::Person;
use integration::probe::{self, Probe};
use integration::world::World;

#[tokio::test]
async fn kubectl_completes_workspaces_users_and_credentials() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let admin = world.administrator("operator").await.unwrap();
    for person in [&alice, &admin] {
        person.login(&[]).await.unwrap().success().unwrap();
    }
    alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();

    // kubectl finds the program on PATH. The folder of the plugin belongs to all tests.
    let folder = world.folder().join("completion");
    std::fs::create_dir(&folder).unwrap();
    let install = ["tenant", "completion", "install", "--dir", folder.to_str().unwrap()];
    admin.kubectl().run(install).await.unwrap().success().unwrap();
    let ours = std::env::var_os("PATH").unwrap();
    let folders = [folder, world.binaries().folder().to_owned()];
    let path = std::env::join_paths(folders.into_iter().chain(std::env::split_paths(&ours)));
    let path = path.unwrap();
    let complete_once = async |person: &Person, words: &[&str]| -> Vec<String> {
        let kubectl = person.kubectl().clone().env("PATH", &path);
        let words = ["__complete", "tenant"].iter().chain(words);
        let finished = kubectl.run(words).await.unwrap().success().unwrap();
        let mut lines: Vec<String> = finished.stdout.lines().map(str::to_owned).collect();
        assert_eq!(lines.pop().as_deref(), Some(":4"), "{finished:?}");
        lines
    };
    // The plugin completes nothing if the broker takes longer than a second.
    let complete = async |person: &Person, words: &[&str]| {
        probe::until("candidates", Duration::from_mins(1), || async {
            let lines = complete_once(person, words).await;
            let is_empty = lines.is_empty();
            Ok(if is_empty { Probe::NotYet(words.join(" ")) } else { Probe::Ready(lines) })
        })
        .await
        .unwrap()
    };

    let provisioned = |names: &str, more: &str| format!("{names}\t{more}provisioned");
    let (email, namespace) = (alice.email(), alice.namespace());
    let own = complete(&alice, &["usage", ""]).await;
    assert_eq!(own, [provisioned(&namespace, "")]);
    let all = complete(&admin, &["suspend", ""]).await;
    assert!(all.contains(&provisioned(&namespace, &format!("{email}, "))), "{all:?}");
    assert!(all.contains(&provisioned(email, &format!("{namespace}, "))), "{all:?}");
    assert_eq!(complete(&admin, &["suspend", email]).await.len(), 1);
    let users = complete(&admin, &["users", "suspend", email]).await;
    assert_eq!(users, [format!("{email}\tuser, active")]);
    assert_eq!(complete_once(&alice, &["users", "suspend", ""]).await, Vec::<String>::new());
    let credentials = complete(&alice, &["credentials", "revoke", ""]).await;
    let [credential] = credentials.as_slice() else { panic!("{credentials:?}") };
    assert!(credential.contains(&format!("\texec, {email}, until ")), "{credential}");
    // kubectl without descriptions, as for shells that show none.
    let id = credential.split('\t').next().unwrap();
    let kubectl = alice.kubectl().clone().env("PATH", &path);
    let words = ["__completeNoDesc", "tenant", "credentials", "revoke", &id[..4]];
    let finished = kubectl.run(words).await.unwrap().success().unwrap();
    assert_eq!(finished.stdout, format!("{id}\n:4\n"));

    alice.kubectl().run(["tenant", "logout"]).await.unwrap().success().unwrap();
    assert_eq!(complete_once(&alice, &["usage", ""]).await, Vec::<String>::new());
}

#[tokio::test]
async fn kubectl_works_with_an_entry_for_older_clients() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&["--exec-api-version", "v1beta1"]).await.unwrap().success().unwrap();
    let config = alice.kubectl().json(["config", "view"]).await.unwrap();
    let exec = &config["users"][0]["user"]["exec"];
    assert_eq!(exec["apiVersion"], "client.authentication.k8s.io/v1beta1", "{config}");
    // kubectl refuses a document of another version than the entry's: of a new token, and of a
    // cached one.
    for _ in 0..2 {
        alice.kubectl().run(["get", "pods"]).await.unwrap().success().unwrap();
    }
}

#[tokio::test]
async fn plugin_and_broker_tell_their_versions() {
    let world = World::builder().start().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    let shown = alice.kubectl().json(["tenant", "version"]).await.unwrap();
    let broker = &shown["broker"];
    assert_eq!(broker["version"], env!("CARGO_PKG_VERSION"), "{shown}");
    assert_eq!(broker["min_plugin_version"], tenant_shared::MIN_PLUGIN_VERSION, "{shown}");
    assert_eq!(broker["compatible"], true, "{shown}");
}
