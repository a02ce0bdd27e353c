//! Tests of `version`, and of what the plugin says if it and the broker do not work together.

use serde_json::json;

use crate::{
    stub_broker::{self, Account},
    stub_server::{StubResponse, StubServer, json_response, problem},
    support::{CommandOutput, Home, run},
};

const OWN: &str = env!("CARGO_PKG_VERSION");
/// Headers of a broker of the same version, of a much newer one and of a much older one.
const SAME: &str = concat!(
    "tenant-broker-version: ",
    env!("CARGO_PKG_VERSION"),
    "\r\ntenant-min-plugin-version: 0.0.1\r\n"
);
const NEWER: &str = "tenant-broker-version: 99.1.0\r\ntenant-min-plugin-version: 99.0.0\r\n";
const OLDER: &str = "tenant-broker-version: 0.0.9\r\ntenant-min-plugin-version: 0.0.1\r\n";

/// A home with a session at a broker whose responses have these headers.
fn signed_in(
    headers: &'static str,
    respond: impl Fn(&str) -> Option<StubResponse> + Send + Sync + 'static,
) -> (Home, StubServer) {
    let broker = StubServer::start(move |request, _| {
        let response = respond(&request.path).unwrap_or_else(|| stub_broker::respond(request));
        StubResponse::WithHeaders(headers, Box::new(response))
    });
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    (home, broker)
}

fn command(home: &Home, args: &[&str]) -> CommandOutput {
    run(home.command(args).env("TENANT_BROKER_URL", &home.broker))
}

#[test]
fn version_shows_plugin_and_broker() {
    let (home, broker) = signed_in(SAME, |_| None);
    let output = command(&home, &["version"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    let line = format!("broker {OWN} at {}, supports kubectl-tenant from 0.0.1 on\n", broker.url);
    assert!(output.stdout.ends_with(&line), "{output:?}");
    let document = command(&home, &["version", "-o", "json"]).document();
    assert_eq!(document["version"], OWN);
    assert_eq!(document["min_broker_version"], tenant_shared::MIN_BROKER_VERSION);
    let expected = json!({
        "url": broker.url, "version": OWN, "min_plugin_version": "0.0.1", "compatible": true,
    });
    assert_eq!(document["broker"], expected);
    for request in broker.requests() {
        assert_eq!(request.user_agent, format!("kubectl-tenant/{OWN}"));
    }
}

#[test]
fn the_broker_is_asked_only_if_there_is_a_session() {
    let (home, broker) = signed_in(SAME, |_| None);
    let output = command(&home, &["version", "--client", "-o", "json"]);
    assert!(output.document()["broker"].is_null());
    assert_eq!(output.stderr, "");
    std::fs::remove_file(home.session_path()).unwrap();
    let output = command(&home, &["version", "-o", "json"]);
    assert!(output.document()["broker"].is_null());
    assert!(output.stderr.contains("not shown: not signed in at"), "{output:?}");
    assert_eq!(broker.requests().len(), 0);
    let nowhere = Home::new("https://broker.example.com");
    let output = run(&mut nowhere.command(&["version"]));
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stderr.contains("not shown: no broker is known"), "{output:?}");
    let output = run(&mut nowhere.command(&["version", "--profile", "nobody"]));
    assert!(output.code == 2 && output.stderr.contains("there is no profile"), "{output:?}");
}

#[test]
fn a_broker_without_versions_is_no_failure() {
    let (home, broker) = signed_in("", |_| None);
    let output = command(&home, &["version"]);
    let line = format!("broker at {}, which does not say its version\n", broker.url);
    assert!(output.code == 0 && output.stdout.ends_with(&line), "{output:?}");
    let document = command(&home, &["version", "-o", "json"]).document();
    assert_eq!(
        document["broker"],
        json!({"url": broker.url, "version": null, "min_plugin_version": null, "compatible": null})
    );
}

#[test]
fn the_own_version_is_shown_even_if_the_broker_fails() {
    let (home, _broker) = signed_in("", |_| Some(problem(503, "storage_unavailable")));
    let output = command(&home, &["version"]);
    assert_eq!(output.code, 4, "{output:?}");
    assert!(output.stdout.starts_with(&format!("kubectl-tenant {OWN}")), "{output:?}");
    assert!(output.stderr.contains("cannot answer now"), "{output:?}");
}

#[test]
fn a_command_that_works_warns_once_of_versions_that_do_not() {
    for (headers, advice) in [
        (NEWER, "which supports 99.0.0 and later: update kubectl-tenant"),
        (OLDER, "ask an administrator to update the broker"),
    ] {
        let (home, broker) = signed_in(headers, |_| None);
        // Three requests.
        let output = command(&home, &["whoami"]);
        assert_eq!((output.code, output.stderr.lines().count()), (0, 1), "{output:?}");
        assert!(output.stderr.starts_with("warning: "), "{output:?}");
        assert!(output.stderr.trim_end().ends_with(advice), "{output:?}");
        assert_eq!(broker.requests().len(), 3);
        let output = command(&home, &["version"]);
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
        assert!(output.stdout.trim_end().ends_with(advice), "{output:?}");
        let document = command(&home, &["version", "-o", "json"]).document();
        assert_eq!(document["broker"]["compatible"], false);
        assert!(document["broker"]["advice"].as_str().unwrap().ends_with(advice), "{document}");
        // kubectl and its user see no warning, neither from the broker nor from the cache.
        for _ in 0..2 {
            let output = run(&mut home.get_token_of(&Account(1).workspace()));
            assert_eq!((output.token(), output.stderr.as_str()), ("k8s-1".to_owned(), ""));
        }
    }
}

#[test]
fn a_failure_says_what_to_update() {
    let (home, _broker) = signed_in(NEWER, |_| Some(problem(400, "invalid_request")));
    for args in [&["whoami"][..], &["workspaces"]] {
        let output = command(&home, args);
        assert!(output.failed(5).contains("hint: kubectl-tenant "), "{output:?}");
        assert!(output.stderr.contains("and later: update kubectl-tenant\n"), "{output:?}");
    }
    let output = run(&mut home.get_token());
    assert!(output.failed(5).contains("update kubectl-tenant"), "{output:?}");

    let (home, _broker) = signed_in(NEWER, |_| Some(problem(404, "not_found")));
    let output = command(&home, &["workspaces"]);
    // Advice is added to the hint of the refusal.
    let hint = "hint: list your workspaces: kubectl tenant workspaces; kubectl-tenant ";
    assert!(output.failed(5).contains(hint), "{output:?}");
    assert!(output.stderr.contains("; kubectl-tenant "), "{output:?}");

    let (home, _broker) = signed_in(OLDER, |_| Some(json_response(200, &json!({"odd": 1}))));
    let output = command(&home, &["whoami"]);
    assert!(output.failed(4).contains("cannot be read"), "{output:?}");
    assert!(output.stderr.contains("ask an administrator to update the broker"), "{output:?}");

    let (home, _broker) = signed_in("", |_| Some(json_response(200, &json!({"odd": 1}))));
    let output = command(&home, &["whoami"]);
    let hint =
        "hint: the broker and kubectl-tenant may be of different versions: kubectl tenant version";
    assert!(output.failed(4).contains(hint), "{output:?}");
}
