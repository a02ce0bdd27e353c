//! Tests of the sign-in with a browser on this machine. The tests follow the redirect themselves.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    sync::{Arc, Mutex},
};

use url::Url;

use crate::{
    stub_broker::{self, Account},
    stub_server::{StubServer, problem},
    support::{CANARY, Home},
};

/// Nonce of the sign-in, which the broker puts into the ID token.
type SharedNonce = Arc<Mutex<String>>;

/// A broker at which account 2 signs in. Without `can_revoke` it revokes no session.
fn broker(can_revoke: bool) -> (StubServer, SharedNonce) {
    let nonce = SharedNonce::default();
    let requested = nonce.clone();
    let broker = StubServer::start(move |request, _| match request.path.as_str() {
        "/oauth2/token" => {
            let nonce = requested.lock().unwrap().clone();
            stub_broker::signed_in_with_nonce(request, Account(2), Some(nonce))
        }
        "/oauth2/revoke" if !can_revoke => problem(503, "database_unavailable"),
        _ => stub_broker::respond(request),
    });
    (broker, nonce)
}

/// Runs `login` and sends the redirect of the sign-in page. Returns the response that the browser
/// gets, and the rest of stderr.
fn login(home: &Home, nonce: &SharedNonce) -> (String, String) {
    let mut command = home.command(&["login", "--broker", &home.broker]);
    command.env("BROWSER", "true").env("KUBECONFIG", home.path("config"));
    let mut child = command.spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("/oauth2/authorize?") {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "the program ended by itself");
    }
    let page = Url::parse(line.trim()).unwrap();
    let parameter = |name: &str| {
        let found = page.query_pairs().find(|(key, _)| key == name);
        found.map(|(_, value)| value.into_owned()).unwrap()
    };
    *nonce.lock().unwrap() = parameter("nonce");
    let port = Url::parse(&parameter("redirect_uri")).unwrap().port().unwrap();
    let target = format!("/callback?code=c&state={}", parameter("state"));
    let mut browser = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(browser, "GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n").unwrap();
    let (mut response, mut rest) = (String::new(), String::new());
    browser.read_to_string(&mut response).unwrap();
    stderr.read_to_string(&mut rest).unwrap();
    child.wait().unwrap();
    assert!(!response.contains(CANARY) && !rest.contains(CANARY), "{response}\n{rest}");
    (response, rest)
}

#[test]
fn the_browser_shows_a_success() {
    let (broker, nonce) = broker(true);
    let home = Home::new(&broker.url);
    let (response, stderr) = login(&home, &nonce);
    let page = "<h1>Signed in</h1>";
    assert!(response.starts_with("HTTP/1.1 200"), "{response}\n{stderr}");
    assert!(response.contains(page), "{response}");
    assert!(home.session_path().exists());
    assert_eq!(broker.request_count("/oauth2/revoke"), 0);
}

/// The page shows the result of storing the session, not only of the exchange of the code.
#[test]
fn the_browser_shows_the_refusal_of_another_person() {
    for can_revoke in [true, false] {
        let (broker, nonce) = broker(can_revoke);
        let home = Home::new(&broker.url);
        home.forge_session(1, 600);
        let (response, stderr) = login(&home, &nonce);
        assert!(response.starts_with("HTTP/1.1 400"), "{response}\n{stderr}");
        assert!(response.contains("<h1>Not signed in</h1>"), "{response}");
        let refusal = "has the session of dev@example.com; nothing was replaced";
        assert!(response.contains(refusal), "{response}");
        assert!(stderr.contains("error: you signed in as another person"), "{stderr}");
        assert_eq!(broker.request_count("/oauth2/revoke"), 1);
        let warning = "warning: the new session could not be ended at the broker";
        assert_eq!(stderr.contains(warning), !can_revoke, "{stderr}");
        let page = format!("sign in at {}/account\n", broker.url);
        assert_eq!(stderr.contains(&page), !can_revoke, "{stderr}");
    }
}
