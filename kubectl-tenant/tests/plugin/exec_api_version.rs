//! Tests of the version of the exec credential protocol in the kubeconfig.

use std::fs;

use serde_json::Value;

use crate::{
    stub_broker,
    stub_server::StubServer,
    support::{EXEC_INFO, Home, run},
};

/// The version in the user entry of this name.
fn version(home: &Home, user: &str) -> String {
    let text = fs::read_to_string(home.path("config")).unwrap();
    let document: Value = serde_norway::from_str(&text).unwrap();
    let users = document["users"].as_array().unwrap();
    let entry = users.iter().find(|entry| entry["name"] == user).unwrap();
    let version = entry["user"]["exec"]["apiVersion"].as_str().unwrap();
    version.strip_prefix("client.authentication.k8s.io/").unwrap().to_owned()
}

fn succeed(home: &Home, args: &[&str]) {
    let output = home.run(args);
    assert_eq!(output.code, 0, "{args:?}: {output:?}");
}

#[test]
fn the_chosen_version_is_written_and_remembered() {
    let one_person = stub_broker::Account(1);
    let broker =
        StubServer::start(move |request, _| stub_broker::respond_confirmed(request, one_person));
    let home = Home::new(&broker.url);
    let login = ["login", "--device", "--broker", &broker.url];
    let user = "sa-tenant-admin";
    succeed(&home, &login);
    assert_eq!(version(&home, user), "v1");
    succeed(&home, &[&login[..], &["--exec-api-version", "v1beta1"]].concat());
    assert_eq!(version(&home, user), "v1beta1");
    // Later calls need no flag.
    for again in [&["kubeconfig", "--use"][..], &login] {
        fs::remove_file(home.path("config")).unwrap();
        succeed(&home, again);
        assert_eq!(version(&home, user), "v1beta1", "{again:?}");
    }
    // Another account has a choice of its own.
    succeed(&home, &[&login[..], &["--profile", "work"]].concat());
    assert_eq!((version(&home, "work"), version(&home, user)), ("v1".into(), "v1beta1".into()));
    // A dry run stores nothing.
    let flag = ["kubeconfig", "--broker", &broker.url, "--exec-api-version", "v1"];
    succeed(&home, &[&flag[..], &["--dry-run"]].concat());
    succeed(&home, &["kubeconfig", "--broker", &broker.url]);
    assert_eq!(version(&home, user), "v1beta1");
    succeed(&home, &flag);
    succeed(&home, &["kubeconfig", "--broker", &broker.url]);
    assert_eq!(version(&home, user), "v1");
}

/// The documents for both versions, from the broker and from the cache. client-go refuses one of
/// another version than the kubeconfig's.
#[test]
fn both_documents_of_get_token_are_exact() {
    let broker = stub_broker::auto_confirming();
    let (home, _broker) = stub_broker::sign_in(broker, &[]);
    let workspace = stub_broker::Account(1).workspace();
    for (round, flags) in [("from the broker", &["--force"][..]), ("from the cache", &[])] {
        for version in ["v1", "v1beta1"] {
            let info = EXEC_INFO.replace("k8s.io/v1\"", &format!("k8s.io/{version}\""));
            let mut command = home.get_token_of(&workspace);
            let output = run(command.args(flags).env("KUBERNETES_EXEC_INFO", info));
            let document = output.document();
            let until = document["status"]["expirationTimestamp"].as_str().unwrap();
            let expected = format!(
                "{{\"apiVersion\":\"client.authentication.k8s.io/{version}\",\
                 \"kind\":\"ExecCredential\",\
                 \"status\":{{\"expirationTimestamp\":\"{until}\",\"token\":\"k8s-1\"}}}}\n"
            );
            assert_eq!(output.stdout, expected, "{round}, {version}");
        }
    }
}
