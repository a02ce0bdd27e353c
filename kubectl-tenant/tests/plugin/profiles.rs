//! Tests of several accounts and brokers, which must never share sessions, tokens or entries.

use std::fs;

use serde_json::Value;

use crate::{
    stub_broker::{self, Account},
    stub_server::StubServer,
    support::{CLUSTER, CommandOutput, Home, run},
};

fn login(home: &Home, broker: &str, profile: &[&str]) -> CommandOutput {
    let args = [&["login", "--device", "--broker", broker, "-o", "json"], profile].concat();
    let output = home.run(&args);
    assert_eq!(output.code, 0, "{output:?}");
    output
}

fn kubeconfig(home: &Home) -> Value {
    let text = fs::read_to_string(home.path("config")).unwrap();
    serde_norway::from_str(&text).unwrap()
}

/// The arguments with which kubectl runs the plugin for a user entry.
fn arguments(home: &Home, user: &str) -> Vec<String> {
    let document = kubeconfig(home);
    let users = document["users"].as_array().unwrap();
    let entry = users.iter().find(|entry| entry["name"] == user).unwrap();
    let arguments = entry["user"]["exec"]["args"].as_array().unwrap();
    arguments.iter().map(|argument| argument.as_str().unwrap().to_owned()).collect()
}

fn two_accounts() -> (Home, StubServer) {
    let broker = stub_broker::auto_confirming();
    let home = Home::new(&broker.url);
    login(&home, &broker.url, &[]);
    login(&home, &broker.url, &["--profile", "work"]);
    (home, broker)
}

#[test]
fn two_accounts_at_one_broker_do_not_mix() {
    let (home, broker) = two_accounts();
    // The entries of the second account have its name, so those of the first one are unchanged.
    assert_eq!(kubeconfig(&home)["current-context"], "work");
    let (first, second) = (arguments(&home, "sa-tenant-admin"), arguments(&home, "work"));
    assert!(!first.iter().any(|argument| argument.contains("profile")), "{first:?}");
    assert_eq!(second.last().unwrap(), "--profile=work");
    for (arguments, token) in [(&first, "k8s-1"), (&second, "k8s-2")] {
        // The environment does not change which account a kubeconfig means.
        for profile in ["work", "other", ""] {
            let output = run(home.command(&[]).args(arguments).env("TENANT_PROFILE", profile));
            assert_eq!(output.token(), token);
        }
    }
    // Not even for the same workspace.
    let workspace = format!("--workspace={}", Account(1).workspace());
    let cluster = format!("--cluster={CLUSTER}");
    let args = ["get-token", "--profile=work", &workspace, &cluster];
    let output = home.run(&[&args[..], &["--broker", &home.broker]].concat());
    assert!(output.failed(5).contains("gave a token for workspace"), "{output:?}");
    let requests: Vec<String> = broker
        .requests()
        .into_iter()
        .filter(|request| request.path.ends_with("/credentials"))
        .map(|request| request.bearer)
        .collect();
    assert_eq!(requests, [Account(1).access(), Account(2).access(), Account(2).access()]);
}

#[test]
fn the_current_account_is_chosen_and_shown() {
    let (home, broker) = two_accounts();
    let email = |args: &[&str], variable: &str| {
        let args = [&["whoami", "-o", "json"], args].concat();
        let output = run(home.command(&args).env("TENANT_PROFILE", variable));
        output.document()["email"].as_str().unwrap().to_owned()
    };
    assert_eq!(email(&[], ""), Account(2).email());
    assert_eq!(email(&["--profile", &broker.url], ""), Account(1).email());
    assert_eq!(email(&[], &broker.url), Account(1).email());
    assert_eq!(email(&["--broker", &broker.url], "work"), Account(1).email());
    let list = home.run(&["profiles", "-o", "json"]).document();
    assert_eq!(list["items"][0]["email"], Account(1).email());
    assert_eq!(list["items"][0]["current"], false);
    assert_eq!(list["items"][1]["name"], "work");
    assert_eq!(list["items"][1]["current"], true);
    let output = home.run(&["profiles", "use", &broker.url]);
    assert_eq!((output.code, output.stdout.as_str()), (0, ""), "{output:?}");
    assert_eq!(email(&[], ""), Account(1).email());
    let table = home.run(&["profiles"]).stdout;
    assert!(table.lines().nth(1).unwrap().starts_with("*  "), "{table}");
    for words in [&["whoami", "--profile", "w"][..], &["profiles", "use", "w"]] {
        let output = home.run(&[&["__complete"], words].concat());
        assert_eq!(output.stdout, "work\n:4\n", "{words:?}");
    }
    assert!(home.run(&["profiles", "use", "nobody"]).failed(2).contains("no profile"));
    assert!(home.run(&["whoami", "--profile", "nobody"]).failed(2).contains("no profile"));
}

#[test]
fn signing_out_of_one_account_leaves_the_other() {
    let (home, broker) = two_accounts();
    for user in ["sa-tenant-admin", "work"] {
        assert_eq!(run(home.command(&[]).args(arguments(&home, user))).code, 0);
    }
    assert_eq!(home.run(&["logout", "--profile", "work"]).code, 0);
    let revoked =
        broker.requests().into_iter().find(|request| request.path == "/oauth2/revoke").unwrap();
    assert!(revoked.body.contains(&Account(2).refresh()), "{revoked:?}");
    let output = run(home.command(&[]).args(arguments(&home, "work")));
    let line = format!("run: kubectl tenant login --broker {} --profile work", broker.url);
    assert!(output.failed(3).contains(&line), "{output:?}");
    assert_eq!(run(home.command(&[]).args(arguments(&home, "sa-tenant-admin"))).token(), "k8s-1");
    let status = home.run(&["status"]).stdout;
    assert!(status.contains("(profile work) (current)\n  Not signed in"), "{status}");
    assert!(status.contains(&Account(1).email()), "{status}");
}

/// Another person does not silently take over an account, nor its contexts in the kubeconfig.
#[test]
fn the_session_of_another_person_is_not_replaced() {
    let broker = stub_broker::auto_confirming();
    let home = Home::new(&broker.url);
    login(&home, &broker.url, &["--profile", "operator"]);
    let (config, url) = (kubeconfig(&home), &broker.url);
    let output = home.run(&["login", "--device"]);
    assert_eq!((output.code, output.stdout.as_str()), (1, ""), "{output:?}");
    let error = format!(
        "error: you signed in as another person, but {url} (profile operator) has the session of \
         {}; nothing was replaced\n",
        Account(1).email()
    );
    assert!(output.stderr.contains(&error), "{output:?}");
    for command in [
        format!("kubectl tenant login --broker {url} --profile NAME; "),
        format!("kubectl tenant logout --broker {url} --profile operator\n"),
    ] {
        assert!(output.stderr.contains(&command), "{command}: {output:?}");
    }
    assert_eq!(kubeconfig(&home), config);
    assert_eq!(home.run(&["whoami", "-o", "json"]).document()["email"], Account(1).email());
    // The new session, which nobody could use, has ended, and only that one.
    let revoked: Vec<String> = broker
        .requests()
        .into_iter()
        .filter(|request| request.path == "/oauth2/revoke")
        .map(|request| request.body)
        .collect();
    let [revoked] = revoked.as_slice() else { panic!("{revoked:?}") };
    assert!(revoked.contains(&Account(2).refresh()), "{revoked}");
    // After a sign-out the account is free.
    assert_eq!(home.run(&["logout"]).code, 0);
    let output = home.run(&["login", "--device", "-o", "json"]);
    assert_eq!(output.document()["email"], Account(3).email());
    // So it is after the end of the session.
    let key = crate::support::key(&[url, "operator"]);
    let path = home.path(&format!(".local/state/kubectl-tenant/sessions/{key}.json"));
    let mut session: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    session["session_expires_at"] = "2020-01-01T00:00:00Z".into();
    fs::write(&path, session.to_string()).unwrap();
    let output = home.run(&["login", "--device", "-o", "json"]);
    assert_eq!(output.document()["email"], Account(4).email());
}

/// A conflict in the kubeconfig is found before anybody signs in.
#[test]
fn foreign_entries_are_found_before_the_sign_in() {
    let broker = stub_broker::auto_confirming();
    let home = Home::new(&broker.url);
    let foreign =
        "apiVersion: v1\nkind: Config\ncontexts:\n- name: tenant-context\n  context: {}\n";
    fs::write(home.path("config"), foreign).unwrap();
    let args = ["login", "--device", "--broker", &broker.url];
    let output = home.run(&args);
    assert!(output.failed(1).contains("was not created by kubectl-tenant"), "{output:?}");
    let command = format!("kubectl tenant login --context NAME --broker {}\n", broker.url);
    assert!(output.stderr.contains(&command), "{output:?}");
    assert_eq!(broker.requests().len(), 0);
    // Another name avoids the conflict; the broker's own names still conflict.
    login(&home, &broker.url, &["--context", "mine"]);
    let output = home.run(&["kubeconfig", "--context", "tenant-context"]);
    let hint = "kubectl tenant kubeconfig --use --context NAME";
    assert!(output.failed(1).contains(hint), "{output:?}");
    fs::write(home.path("config"), "a: [").unwrap();
    assert!(home.run(&args).failed(1).contains("is not a YAML document"));
}

#[test]
fn version_1_files_still_work() {
    let broker = stub_broker::auto_confirming();
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    home.forge_token("cached", 1, 3600);
    let profiles = home.path(".config/kubectl-tenant/profiles.json");
    fs::create_dir_all(profiles.parent().unwrap()).unwrap();
    let url = &broker.url;
    let text =
        format!(r#"{{"version":1,"default":"{url}","brokers":{{"{url}":{{"context":"mine"}}}}}}"#);
    fs::write(&profiles, text).unwrap();
    assert_eq!(run(&mut home.get_token()).token(), "cached");
    assert_eq!(home.run(&["whoami", "-o", "json"]).document()["email"], Account(1).email());
    login(&home, url, &["--profile", "work"]);
    assert_eq!(run(&mut home.get_token()).token(), "cached");
    let list = home.run(&["profiles", "list", "-o", "json"]).document();
    assert_eq!(list["items"][0]["context"], "mine");
    assert_eq!(list["items"][0]["signed_in"], true);
}
