//! Tests of the storage of the refresh token: in a file, nowhere, or in a real keyring.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixListener,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
};

use serde_json::{Value, json};

use crate::{
    stub_broker::{self, Account},
    stub_server::{RecordedRequest, StubServer, json_response},
    support::{CANARY, CLUSTER, CommandOutput, Home, run},
};

/// A broker that also rotates refresh tokens: the new one is the old one with an `x` appended.
fn broker() -> StubServer {
    StubServer::start(|request, _| {
        let parameter = |name: &str| {
            url::form_urlencoded::parse(request.body.as_bytes())
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.into_owned())
        };
        match (request.path.as_str(), parameter("refresh_token")) {
            ("/oauth2/token", None) => stub_broker::signed_in(request, Account(1)),
            ("/oauth2/token", Some(token)) => json_response(
                200,
                &json!({
                    "access_token": Account(1).access(), "token_type": "Bearer",
                    "expires_in": 900, "refresh_token": format!("{token}x"),
                }),
            ),
            _ => stub_broker::respond(request),
        }
    })
}

/// The tokens that a request to this path renewed or revoked.
fn used(broker: &StubServer, path: &str) -> Vec<String> {
    let read = |request: &RecordedRequest| {
        url::form_urlencoded::parse(request.body.as_bytes())
            .find(|(key, _)| key == "refresh_token" || key == "token")
            .map(|(_, value)| value.into_owned())
    };
    broker.requests().iter().filter(|request| request.path == path).filter_map(read).collect()
}

fn login(home: &Home, more: &[&str], environment: &[(&str, &str)]) -> CommandOutput {
    let args = [&["login", "--device", "--broker", &home.broker], more].concat();
    run(home.command(&args).envs(environment.iter().copied()))
}

fn session(home: &Home) -> Value {
    serde_json::from_str(&fs::read_to_string(home.session_path()).unwrap()).unwrap()
}

/// Makes the access token expire.
fn age(home: &Home) {
    let mut session = session(home);
    session["access_expires_at"] = json!(0);
    fs::write(home.session_path(), session.to_string()).unwrap();
}

fn get_token(home: &Home, environment: &[(&str, &str)]) -> CommandOutput {
    let mut command = home.command(&["get-token", "--force", "--broker", &home.broker]);
    command.args(["--cluster", CLUSTER, "--workspace", &Account(1).workspace()]);
    run(command.envs(environment.iter().copied()))
}

#[test]
fn without_a_keyring_a_file_is_used_and_reported_once() {
    let broker = broker();
    let home = Home::new(&broker.url);
    let output = login(&home, &[], &[]);
    assert!(output.code == 0 && output.stderr.contains("There is no keyring here"), "{output:?}");
    assert_eq!(session(&home)["storage"], "file");
    assert_eq!(session(&home)["refresh_token"], Account(1).refresh());
    let output = login(&home, &[], &[]);
    assert!(output.code == 0 && !output.stderr.contains("keyring"), "{output:?}");
    // An explicit choice needs no message.
    let other = Home::new(&broker.url);
    let output = login(&other, &["--storage", "file"], &[]);
    assert!(output.code == 0 && !output.stderr.contains("keyring"), "{output:?}");
}

#[test]
fn storage_none_stores_no_refresh_token() {
    let broker = broker();
    let home = Home::new(&broker.url);
    let output = login(&home, &["--storage", "none"], &[]);
    assert!(output.stderr.contains("Nothing long-lived is kept"), "{output:?}");
    assert_eq!(session(&home)["storage"], "none");
    assert!(session(&home)["refresh_token"].is_null());
    assert_eq!(get_token(&home, &[]).token(), "k8s-1");
    age(&home);
    assert!(get_token(&home, &[]).failed(3).contains("--storage none keeps nothing"));
    // The choice is stored, and the environment variable overrides it.
    assert_eq!(login(&home, &[], &[]).code, 0);
    assert_eq!(session(&home)["storage"], "none");
    assert_eq!(login(&home, &[], &[("TENANT_STORAGE", "file")]).code, 0);
    assert_eq!(session(&home)["storage"], "file");
    assert!(login(&home, &[], &[("TENANT_STORAGE", "disk")]).failed(2).contains("TENANT_STORAGE"));
}

#[test]
fn an_explicit_keyring_has_no_fallback() {
    let broker = broker();
    let home = Home::new(&broker.url);
    let nowhere = [("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus")];
    let output = login(&home, &["--storage", "keyring"], &nowhere);
    assert!(output.failed(1).contains("the keyring cannot be used"), "{output:?}");
    // Before anybody typed a password.
    assert_eq!(broker.requests().len(), 0);
}

/// A message bus that accepts the connection and never responds.
#[test]
fn a_keyring_that_hangs_times_out() {
    let broker = broker();
    let home = Home::new(&broker.url);
    let path = home.path("bus");
    let listener = UnixListener::bind(&path).unwrap();
    let (sender, connections) = mpsc::channel();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let _ = sender.send(stream);
        }
    });
    let bus = format!("unix:path={}", path.display());
    let output = login(&home, &[], &[("DBUS_SESSION_BUS_ADDRESS", &bus)]);
    assert!(output.code == 0 && output.stderr.contains("did not answer within 2 s"), "{output:?}");
    assert_eq!(session(&home)["storage"], "file");
    assert!(connections.try_recv().is_ok(), "the keyring was not called");
}

/// A message bus and a keyring daemon of this test.
struct Desktop {
    bus: Child,
    keyring: Child,
    address: String,
}

impl Desktop {
    fn start(home: &Path) -> Self {
        let missing = "is missing: apt-get install dbus gnome-keyring";
        let mut bus = Command::new("dbus-daemon")
            .args(["--session", "--nofork", "--nopidfile", "--print-address"])
            .args(["--address", &format!("unix:path={}", home.join("bus").display())])
            .env("HOME", home)
            .env("XDG_DATA_DIRS", home)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("dbus-daemon {missing} ({error})"));
        let mut address = String::new();
        BufReader::new(bus.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let address = address.trim().to_owned();
        let runtime = home.join("run");
        fs::create_dir_all(&runtime).unwrap();
        let mut keyring = Command::new("gnome-keyring-daemon")
            .args(["--foreground", "--unlock", "--components=secrets"])
            .envs([("HOME", home), ("XDG_RUNTIME_DIR", &runtime)])
            .env("DBUS_SESSION_BUS_ADDRESS", &address)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("gnome-keyring-daemon {missing} ({error})"));
        keyring.stdin.take().unwrap().write_all(b"password").unwrap();
        let mut desktop = Self { bus, keyring, address };
        while !desktop.has_keyring() {
            let ended = desktop.keyring.try_wait().unwrap();
            assert!(ended.is_none(), "gnome-keyring-daemon ended: {ended:?}");
        }
        desktop
    }

    fn has_keyring(&self) -> bool {
        let mut ask = Command::new("dbus-send");
        ask.args(["--session", "--print-reply", "--dest=org.freedesktop.DBus", "/"]);
        ask.args(["org.freedesktop.DBus.NameHasOwner", "string:org.freedesktop.secrets"]);
        let output = ask.env("DBUS_SESSION_BUS_ADDRESS", &self.address).output();
        let output = output.expect("dbus-send is missing: apt-get install dbus");
        String::from_utf8_lossy(&output.stdout).contains("true")
    }
}

impl Drop for Desktop {
    fn drop(&mut self) {
        for child in [&mut self.keyring, &mut self.bus] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
#[ignore = "needs a real keyring: apt-get install dbus gnome-keyring; docs/kubectl-tenant.md"]
fn a_real_keyring_stores_the_secret_and_the_file_does_not() {
    let broker = broker();
    let home = Home::new(&broker.url);
    let desktop = Desktop::start(&home.path(""));
    let bus = [("DBUS_SESSION_BUS_ADDRESS", desktop.address.as_str())];
    let output = login(&home, &[], &bus);
    assert!(output.code == 0 && !output.stderr.contains("eyring"), "{output:?}");
    assert_eq!(session(&home)["storage"], "keyring");
    let secret = format!("refresh-{CANARY}");
    let is_in_file = || fs::read_to_string(home.session_path()).unwrap().contains(&secret);
    assert!(!is_in_file());
    // Renewed twice, each time with the rotated refresh token.
    for _ in 0..2 {
        age(&home);
        assert_eq!(get_token(&home, &bus).token(), "k8s-1");
        assert!(!is_in_file());
    }
    let first = Account(1).refresh();
    assert_eq!(used(&broker, "/oauth2/token"), [first.clone(), format!("{first}x")]);
    // Without the keyring a renewal fails and names the keyring; a cache hit does not need it.
    age(&home);
    assert!(get_token(&home, &[]).failed(1).contains("the session is in the keyring"));
    // A second account has its own entry.
    let other = ["--profile", "other", "--no-use"];
    assert_eq!(login(&home, &other, &bus).code, 0);
    let output = run(home.command(&["logout", "--broker", &broker.url]).envs(bus));
    assert_eq!(output.code, 0, "{output:?}");
    assert!(!output.stderr.contains("warning"), "{output:?}");
    assert_eq!(used(&broker, "/oauth2/revoke"), [format!("{first}xx")]);
    // Storage in a file deletes the entry in the keyring.
    let file = ["--profile", "other", "--no-use", "--storage", "file"];
    assert_eq!(login(&home, &file, &bus).code, 0);
    assert_eq!(used(&broker, "/oauth2/revoke").last(), Some(&first));
}
