//! Tests of workload identity: an OIDC token replaces the sign-in.

use std::{fs, path::Path, process::Command};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::json;

use crate::{
    stub_broker::{self, Account, oauth_error},
    stub_server::{RecordedRequest, StubServer, json_response, problem},
    support::{CANARY, CLUSTER, Home, run},
};

/// A token as a CI provider issues it; nothing here verifies it.
fn jwt(subject: &str, number: u32) -> String {
    let claims = json!({"iss": "https://ci.example", "sub": subject, "jti": number});
    format!("e30.{}.{CANARY}", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

fn parameter(request: &RecordedRequest, name: &str) -> Option<String> {
    url::form_urlencoded::parse(request.body.as_bytes())
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.into_owned())
}

/// A broker that accepts every token.
fn broker() -> StubServer {
    StubServer::start(|request, _| match request.path.as_str() {
        "/oauth2/token" => json_response(
            200,
            &json!({
                "access_token": Account(1).access(), "token_type": "Bearer", "expires_in": 300,
                "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
            }),
        ),
        _ => stub_broker::respond(request),
    })
}

fn exchanges(broker: &StubServer) -> Vec<RecordedRequest> {
    broker.requests().into_iter().filter(|request| request.path == "/oauth2/token").collect()
}

fn get_token(home: &Home, file: &Path) -> Command {
    let mut command = home.command(&["get-token"]);
    command.arg(format!("--broker={}", home.broker)).arg(format!("--cluster={CLUSTER}"));
    command.arg(format!("--workspace={}", Account(1).workspace()));
    command.env("TENANT_ID_TOKEN_FILE", file);
    command
}

#[test]
fn a_token_in_a_file_is_exchanged_and_the_result_is_cached() {
    let broker = broker();
    let home = Home::new(&broker.url);
    let file = home.path("token");
    fs::write(&file, jwt("build", 1) + "\n").unwrap();
    assert_eq!(run(&mut get_token(&home, &file)).token(), "k8s-1");
    let request = exchanges(&broker).remove(0);
    for (name, value) in [
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("subject_token", &jwt("build", 1)),
        ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
        ("audience", &Account(1).workspace()),
        ("client_id", "kubectl-tenant"),
    ] {
        assert_eq!(parameter(&request, name).as_deref(), Some(value), "{name}");
    }
    // The next token of the same workload: the cache is used.
    fs::write(&file, jwt("build", 2)).unwrap();
    assert_eq!(run(&mut get_token(&home, &file)).token(), "k8s-1");
    assert_eq!(exchanges(&broker).len(), 1);
    // Another workload on the same disk: the file is read again, and the cache is not shared.
    fs::write(&file, jwt("deploy", 1)).unwrap();
    assert_eq!(run(&mut get_token(&home, &file)).token(), "k8s-1");
    assert_eq!(parameter(&exchanges(&broker)[1], "subject_token"), Some(jwt("deploy", 1)));
    // Expired tokens are deleted when the next workload gets one, and only then.
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
    // A call without an OIDC token does not get a workload's token.
    let output = run(get_token(&home, &file).env_remove("TENANT_ID_TOKEN_FILE"));
    output.failed(3);
    assert!(!home.path(".local/state/kubectl-tenant/sessions").exists());
}

#[test]
fn a_file_precedes_a_variable() {
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
    // It takes precedence over a person's session.
    home.forge_session(9, 600);
    let output = run(command.env("TENANT_ID_TOKEN", jwt("third", 1)));
    assert_eq!(output.token(), "k8s-1");
    assert_eq!(exchanges(&broker).len(), 3);
}

#[test]
fn a_refusal_never_leads_to_a_sign_in() {
    let interactive = "{\"kind\":\"ExecCredential\",\"apiVersion\":\
        \"client.authentication.k8s.io/v1\",\"spec\":{\"interactive\":true}}";
    for (refuse, words) in [
        (0, "does not accept the OIDC token of this machine"),
        (1, "rejects the access token that it issued for the OIDC token"),
    ] {
        let broker = StubServer::start(move |request, _| match (request.path.as_str(), refuse) {
            ("/oauth2/token", 0) => oauth_error("invalid_target"),
            ("/oauth2/token", _) => {
                json_response(200, &json!({"access_token": "a", "token_type": "Bearer"}))
            }
            (path, _) if path.starts_with("/api/") => problem(401, "unauthenticated"),
            _ => stub_broker::respond(request),
        });
        let home = Home::new(&broker.url);
        let file = home.path("token");
        fs::write(&file, jwt("build", 1)).unwrap();
        let mut command = get_token(&home, &file);
        command.env("TENANT_AUTO_LOGIN", "1").env("KUBERNETES_EXEC_INFO", interactive);
        let output = run(&mut command);
        assert!(output.failed(5).contains(words), "{output:?}");
        assert!(!output.stderr.contains("kubectl tenant login"), "{output:?}");
    }
    let home = Home::new("https://broker.example.com");
    let output = run(&mut get_token(&home, &home.path("none")));
    assert!(output.failed(1).contains("cannot read the OIDC token"), "{output:?}");
    let mut command = get_token(&home, &home.path("none"));
    let output = run(command.env_remove("TENANT_ID_TOKEN_FILE").env("TENANT_ID_TOKEN", CANARY));
    assert!(output.failed(2).contains("TENANT_ID_TOKEN holds no OIDC token"), "{output:?}");
}

#[test]
fn a_workload_needs_no_login_for_its_kubeconfig() {
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
        let output = run(&mut command);
        assert!(output.failed(2).contains("TENANT_WORKSPACE"), "{output:?}");
        let output = run(command.env("TENANT_WORKSPACE", "tenant-x"));
        assert_eq!((output.code, output.stdout.as_str()), (0, ""), "{output:?}");
        let text = fs::read_to_string(&config).unwrap();
        assert!(text.contains("current-context: tenant-context"), "{text}");
        assert_eq!(
            parameter(exchanges(&broker).last().unwrap(), "audience").as_deref(),
            Some("tenant-x")
        );
        let output = run(command.arg("--device"));
        output.failed(2);
    }
}
