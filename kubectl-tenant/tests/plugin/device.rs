//! Tests of the device grant against a stub of the issuer.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::{
    stub_broker::{self, Account, USER_CODE, oauth_error, signed_in},
    stub_server::{StubResponse, StubServer, json_response, problem},
    support::{CommandOutput, Home, run},
};

/// A broker whose token endpoint responds to the polls in this order, and repeats the last
/// response.
fn broker(polls: &'static [&'static str]) -> StubServer {
    let count = AtomicUsize::new(0);
    StubServer::start(move |request, _| {
        if request.path != "/oauth2/token" {
            return stub_broker::respond(request);
        }
        let number = count.fetch_add(1, Ordering::SeqCst).min(polls.len() - 1);
        match polls[number] {
            "done" => signed_in(request, Account(1)),
            "outage" => problem(503, "database_unavailable"),
            "page" => StubResponse::Http(200, "text/html", "<html>".to_owned()),
            code => oauth_error(code),
        }
    })
}

fn login(home: &Home, more: &[&str]) -> CommandOutput {
    let args = [&["login", "--broker", &home.broker, "-o", "json"], more].concat();
    run(&mut home.command(&args))
}

#[test]
fn a_code_is_shown_and_polled_until_it_is_confirmed() {
    let broker = broker(&["authorization_pending", "done"]);
    let home = Home::new(&broker.url);
    let output = login(&home, &["--device"]);
    let document = output.document();
    assert_eq!(document["email"], Account(1).email());
    let page = format!("{}/device", broker.url);
    assert!(output.stderr.contains("Sign in in a browser on this machine:\n"), "{output:?}");
    assert!(output.stderr.contains(&format!("open       {page}\n")), "{output:?}");
    assert!(output.stderr.contains(&format!("enter      {USER_CODE}\n")), "{output:?}");
    assert!(output.stderr.contains(&format!("{page}?user_code={USER_CODE}")), "{output:?}");
    let text = std::fs::read_to_string(home.session_path()).unwrap();
    let session: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(session["refresh_token"], Account(1).refresh());
    let requests = broker.requests();
    let begun =
        requests.iter().find(|request| request.path.ends_with("device_authorization")).unwrap();
    assert!(begun.body.contains("client_id=kubectl-tenant"), "{begun:?}");
    assert!(begun.body.contains("scope=openid+email+offline_access"), "{begun:?}");
    assert_eq!(broker.request_count("/oauth2/token"), 2);
}

#[test]
fn an_outage_while_polling_is_not_fatal() {
    let broker = broker(&["outage", "done"]);
    let home = Home::new(&broker.url);
    let output = login(&home, &["--device"]);
    assert_eq!(output.document()["email"], Account(1).email());
    assert!(output.stderr.contains("still waiting"), "{output:?}");
}

#[test]
fn every_refusal_has_its_message() {
    for (poll, code, words) in [
        ("access_denied", 5, "the sign-in was refused on the broker's page"),
        ("expired_token", 1, "kubectl tenant login --device --broker http://127.0.0.1:"),
        ("invalid_client", 5, "invalid_client"),
    ] {
        let broker = broker(Box::leak(Box::new([poll])));
        let home = Home::new(&broker.url);
        let output = login(&home, &["--device"]);
        assert_eq!((output.code, output.stdout.as_str()), (code, ""), "{output:?}");
        assert!(output.stderr.contains(words), "{output:?}");
        assert!(!home.session_path().exists());
    }
}

#[test]
fn an_ssh_session_selects_the_device_grant() {
    let broker = broker(&["done"]);
    let home = Home::new(&broker.url);
    let args = ["login", "--broker", &home.broker];
    let output = run(home.command(&args).env_remove("BROWSER").env("SSH_CONNECTION", "1 2 3 4"));
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stderr.starts_with("This is an SSH session"), "{output:?}");
}

#[test]
fn without_the_device_grant_a_code_is_pasted() {
    let broker = StubServer::start(|request, _| match request.path.as_str() {
        "/.well-known/openid-configuration" => {
            let mut document = stub_broker::discovery(request);
            document.as_object_mut().unwrap().remove("device_authorization_endpoint");
            json_response(200, &document)
        }
        _ => stub_broker::respond(request),
    });
    let home = Home::new(&broker.url);
    let output = login(&home, &["--device"]);
    // There is no input here, so no code is pasted.
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("offers no sign-in on another device"), "{output:?}");
    assert!(output.stderr.contains("Paste the code here"), "{output:?}");
}

#[test]
fn an_unencrypted_verification_uri_is_not_shown() {
    let broker = StubServer::start(|request, _| match request.path.as_str() {
        "/oauth2/device_authorization" => {
            let StubResponse::Http(status, kind, body) = stub_broker::respond(request) else {
                unreachable!()
            };
            StubResponse::Http(status, kind, body.replace("http://127.0.0.1", "http://10.0.0.1"))
        }
        _ => stub_broker::respond(request),
    });
    let home = Home::new(&broker.url);
    let output = login(&home, &["--device"]);
    assert!(output.failed(4).contains("its page has no safe address"), "{output:?}");
    assert!(!output.stderr.contains("10.0.0.1"), "{output:?}");
}

/// Ctrl-C cancels the sign-in with a message, and nothing is stored.
#[test]
fn a_sign_in_can_be_cancelled() {
    use std::io::{BufRead, BufReader};
    let broker = broker(&["authorization_pending"]);
    let home = Home::new(&broker.url);
    let mut child = home.command(&["login", "--device", "--broker", &home.broker]).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("Waiting") {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "the program ended by itself");
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    line.clear();
    stderr.read_line(&mut line).unwrap();
    assert_eq!(line, "error: the sign-in was cancelled\n");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(!home.session_path().exists());
}
