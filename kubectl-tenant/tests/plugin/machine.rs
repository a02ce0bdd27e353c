//! Machines: an OIDC token in the place of a sign-in.

use std::{fs, path::Path, process::Command};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::json;

use crate::{
    answers::{Answers, Asked, json_answer, problem},
    canned::{self, Account, oauth_error},
    support::{CANARY, CLUSTER, Home, run},
};

/// A token as a CI provider gives it: nobody here verifies it.
fn jwt(subject: &str, number: u32) -> String {
    let claims = json!({"iss": "https://ci.example", "sub": subject, "jti": number});
    format!("e30.{}.{CANARY}", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

fn parameter(asked: &Asked, name: &str) -> Option<String> {
    url::form_urlencoded::parse(asked.body.as_bytes())
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.into_owned())
}

/// A broker that takes every token.
fn broker() -> Answers {
    Answers::start(|asked, _| match asked.path.as_str() {
        "/oauth2/token" => json_answer(
            200,
            &json!({
                "access_token": Account(1).access(), "token_type": "Bearer", "expires_in": 300,
                "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
            }),
        ),
        _ => canned::answer(asked),
    })
}

fn exchanges(broker: &Answers) -> Vec<Asked> {
    broker.all().into_iter().filter(|asked| asked.path == "/oauth2/token").collect()
}

fn get_token(home: &Home, file: &Path) -> Command {
    let mut command = home.command(&["get-token"]);
    command.arg(format!("--broker={}", home.broker)).arg(format!("--cluster={CLUSTER}"));
    command.arg(format!("--workspace={}", Account(1).workspace()));
    command.env("TENANT_ID_TOKEN_FILE", file);
    command
}

#[test]
fn a_token_in_a_file_is_exchanged_and_what_it_brings_is_cached() {
    let broker = broker();
    let home = Home::new(&broker.url);
    let file = home.path("token");
    fs::write(&file, jwt("build", 1) + "\n").unwrap();
    assert_eq!(run(&mut get_token(&home, &file)).token(), "k8s-1");
    let asked = exchanges(&broker).remove(0);
    for (name, value) in [
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("subject_token", &jwt("build", 1)),
        ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
        ("audience", &Account(1).workspace()),
        ("client_id", "kubectl-tenant"),
    ] {
        assert_eq!(parameter(&asked, name).as_deref(), Some(value), "{name}");
    }
    // The same machine with its next token: nobody is asked.
    fs::write(&file, jwt("build", 2)).unwrap();
    assert_eq!(run(&mut get_token(&home, &file)).token(), "k8s-1");
    assert_eq!(exchanges(&broker).len(), 1);
    // Another one on the same disk: the file is read anew, and the cache is not its own.
    fs::write(&file, jwt("deploy", 1)).unwrap();
    assert_eq!(run(&mut get_token(&home, &file)).token(), "k8s-1");
    assert_eq!(parameter(&exchanges(&broker)[1], "subject_token"), Some(jwt("deploy", 1)));
    // What has ended is cleared away by the next machine, and only then.
    let tokens = || fs::read_dir(home.path(".cache/kubectl-tenant/tokens")).unwrap().count();
    assert_eq!(tokens(), 2);
    for entry in fs::read_dir(home.path(".cache/kubectl-tenant/tokens")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let (document, table) = text.split_once('\n').unwrap();
        let mut facts: serde_json::Value = serde_json::from_str(document).unwrap();
        facts["expires_at"] = json!(0);
        fs::write(&path, format!("{facts}\n{table}")).unwrap();
    }
    fs::write(&file, jwt("release", 1)).unwrap();
    assert_eq!(run(&mut get_token(&home, &file)).token(), "k8s-1");
    assert_eq!(tokens(), 1);
    // And nobody who has no token at all gets what a machine got.
    let said = run(get_token(&home, &file).env_remove("TENANT_ID_TOKEN_FILE"));
    said.failed(3);
    assert!(!home.path(".local/state/kubectl-tenant/sessions").exists());
}

#[test]
fn a_token_in_a_variable_will_do_and_a_file_comes_first() {
    let broker = broker();
    let home = Home::new(&broker.url);
    let file = home.path("token");
    fs::write(&file, jwt("file", 1)).unwrap();
    let mut command = get_token(&home, &file);
    assert_eq!(run(command.env("TENANT_ID_TOKEN", jwt("variable", 1))).token(), "k8s-1");
    assert_eq!(run(command.env_remove("TENANT_ID_TOKEN_FILE")).token(), "k8s-1");
    let sent: Vec<_> =
        exchanges(&broker).iter().filter_map(|it| parameter(it, "subject_token")).collect();
    assert_eq!(sent, [jwt("file", 1), jwt("variable", 1)]);
    // Even where a person is signed in.
    home.forge_session(9, 600);
    let said = run(command.env("TENANT_ID_TOKEN", jwt("third", 1)));
    assert_eq!(said.token(), "k8s-1");
    assert_eq!(exchanges(&broker).len(), 3);
}

#[test]
fn a_refusal_is_the_end_and_never_a_sign_in() {
    let interactive = "{\"kind\":\"ExecCredential\",\"apiVersion\":\
        \"client.authentication.k8s.io/v1\",\"spec\":{\"interactive\":true}}";
    for (refuse, words) in [
        (0, "does not take the OIDC token of this machine"),
        (1, "does not take what it gave for the OIDC token"),
    ] {
        let broker = Answers::start(move |asked, _| match (asked.path.as_str(), refuse) {
            ("/oauth2/token", 0) => oauth_error("invalid_target"),
            ("/oauth2/token", _) => {
                json_answer(200, &json!({"access_token": "a", "token_type": "Bearer"}))
            }
            (path, _) if path.starts_with("/api/") => problem(401, "unauthenticated"),
            _ => canned::answer(asked),
        });
        let home = Home::new(&broker.url);
        let file = home.path("token");
        fs::write(&file, jwt("build", 1)).unwrap();
        let mut command = get_token(&home, &file);
        command.env("TENANT_AUTO_LOGIN", "1").env("KUBERNETES_EXEC_INFO", interactive);
        let said = run(&mut command);
        assert!(said.failed(5).contains(words), "{said:?}");
        assert!(!said.stderr.contains("kubectl tenant login"), "{said:?}");
    }
    let home = Home::new("https://broker.example.com");
    let said = run(&mut get_token(&home, &home.path("none")));
    assert!(said.failed(1).contains("cannot read the OIDC token"), "{said:?}");
    let mut command = get_token(&home, &home.path("none"));
    let said = run(command.env_remove("TENANT_ID_TOKEN_FILE").env("TENANT_ID_TOKEN", CANARY));
    assert!(said.failed(2).contains("TENANT_ID_TOKEN holds no OIDC token"), "{said:?}");
}

#[test]
fn the_kubeconfig_of_a_machine_needs_no_login() {
    let broker = broker();
    let home = Home::new(&broker.url);
    let file = home.path("token");
    fs::write(&file, jwt("build", 1)).unwrap();
    let config = home.path("config");
    for command in [&["kubeconfig", "--use"][..], &["login"]] {
        let _ = fs::remove_file(&config);
        let mut command = home.command(command);
        command.env("TENANT_BROKER_URL", &broker.url).env("KUBECONFIG", &config);
        command.env("TENANT_ID_TOKEN_FILE", &file);
        let said = run(&mut command);
        assert!(said.failed(2).contains("TENANT_WORKSPACE"), "{said:?}");
        let said = run(command.env("TENANT_WORKSPACE", "tenant-x"));
        assert_eq!((said.code, said.stdout.as_str()), (0, ""), "{said:?}");
        let text = fs::read_to_string(&config).unwrap();
        assert!(text.contains("current-context: tenant-context"), "{text}");
        assert_eq!(
            parameter(exchanges(&broker).last().unwrap(), "audience").as_deref(),
            Some("tenant-x")
        );
        let said = run(command.arg("--device"));
        said.failed(2);
    }
}
