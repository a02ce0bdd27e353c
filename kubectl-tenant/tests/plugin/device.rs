//! The sign-in on another device, over the wire.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::{
    answers::{Answer, Answers, json_answer, problem},
    canned::{self, Account, USER_CODE, oauth_error, signed_in},
    support::{Home, Said, run},
};

/// What the token endpoint says to one question after the other; the last one for ever.
fn broker(polls: &'static [&'static str]) -> Answers {
    let count = AtomicUsize::new(0);
    Answers::start(move |asked, _| {
        if asked.path != "/oauth2/token" {
            return canned::answer(asked);
        }
        let number = count.fetch_add(1, Ordering::SeqCst).min(polls.len() - 1);
        match polls[number] {
            "done" => signed_in(asked, Account(1)),
            "outage" => problem(503, "database_unavailable"),
            "page" => Answer::Given(200, "text/html", "<html>".to_owned()),
            code => oauth_error(code),
        }
    })
}

fn login(home: &Home, more: &[&str]) -> Said {
    let args = [&["login", "--broker", &home.broker, "-o", "json"], more].concat();
    run(&mut home.command(&args))
}

#[test]
fn a_code_is_shown_and_asked_about_until_it_is_confirmed() {
    let broker = broker(&["authorization_pending", "done"]);
    let home = Home::new(&broker.url);
    let said = login(&home, &["--device"]);
    let document = said.document();
    assert_eq!(document["email"], Account(1).email());
    let page = format!("{}/device", broker.url);
    assert!(said.stderr.contains(&format!("open       {page}\n")), "{said:?}");
    assert!(said.stderr.contains(&format!("enter      {USER_CODE}\n")), "{said:?}");
    assert!(said.stderr.contains(&format!("{page}?user_code={USER_CODE}")), "{said:?}");
    let text = std::fs::read_to_string(home.session_path()).unwrap();
    let session: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(session["refresh_token"], Account(1).refresh());
    let asked = broker.all();
    let begun = asked.iter().find(|asked| asked.path.ends_with("device_authorization")).unwrap();
    assert!(begun.body.contains("client_id=kubectl-tenant"), "{begun:?}");
    assert!(begun.body.contains("scope=openid+email+offline_access"), "{begun:?}");
    assert_eq!(broker.asked("/oauth2/token"), 2);
}

#[test]
fn an_outage_while_waiting_is_no_end() {
    let broker = broker(&["outage", "done"]);
    let home = Home::new(&broker.url);
    let said = login(&home, &["--device"]);
    assert_eq!(said.document()["email"], Account(1).email());
    assert!(said.stderr.contains("still waiting"), "{said:?}");
}

#[test]
fn every_end_has_its_words() {
    for (poll, code, words) in [
        ("access_denied", 5, "the sign-in was refused on the broker's page"),
        ("expired_token", 1, "the code expired"),
        ("invalid_client", 5, "invalid_client"),
    ] {
        let broker = broker(Box::leak(Box::new([poll])));
        let home = Home::new(&broker.url);
        let said = login(&home, &["--device"]);
        assert_eq!((said.code, said.stdout.as_str()), (code, ""), "{said:?}");
        assert!(said.stderr.contains(words), "{said:?}");
        assert!(!home.session_path().exists());
    }
}

#[test]
fn an_ssh_session_is_a_reason_by_itself() {
    let broker = broker(&["done"]);
    let home = Home::new(&broker.url);
    let args = ["login", "--broker", &home.broker];
    let said = run(home.command(&args).env_remove("BROWSER").env("SSH_CONNECTION", "1 2 3 4"));
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stderr.starts_with("This is an SSH session"), "{said:?}");
}

#[test]
fn an_issuer_without_the_grant_gets_a_pasted_code() {
    let broker = Answers::start(|asked, _| match asked.path.as_str() {
        "/.well-known/openid-configuration" => {
            let mut document = canned::discovery(asked);
            document.as_object_mut().unwrap().remove("device_authorization_endpoint");
            json_answer(200, &document)
        }
        _ => canned::answer(asked),
    });
    let home = Home::new(&broker.url);
    let said = login(&home, &["--device"]);
    // Nobody types one here.
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stderr.contains("offers no sign-in on another device"), "{said:?}");
    assert!(said.stderr.contains("Paste the code here"), "{said:?}");
}

#[test]
fn an_address_in_clear_is_not_shown() {
    let broker = Answers::start(|asked, _| match asked.path.as_str() {
        "/oauth2/device_authorization" => {
            let Answer::Given(status, kind, body) = canned::answer(asked) else { unreachable!() };
            Answer::Given(status, kind, body.replace("http://127.0.0.1", "http://10.0.0.1"))
        }
        _ => canned::answer(asked),
    });
    let home = Home::new(&broker.url);
    let said = login(&home, &["--device"]);
    assert!(said.failed(4).contains("its page has no safe address"), "{said:?}");
    assert!(!said.stderr.contains("10.0.0.1"), "{said:?}");
}

/// Ctrl-C ends the wait with a word, and nothing is left behind.
#[test]
fn waiting_can_be_stopped() {
    use std::io::{BufRead, BufReader};
    let broker = broker(&["authorization_pending"]);
    let home = Home::new(&broker.url);
    let mut child = home.command(&["login", "--device", "--broker", &home.broker]).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("Waiting") {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "it ended by itself");
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    line.clear();
    stderr.read_line(&mut line).unwrap();
    assert_eq!(line, "error: the sign-in was cancelled\n");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(!home.session_path().exists());
}
