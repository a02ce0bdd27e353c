//! Where the long-lived secret is: in a file, nowhere, or in a real keyring.

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
    answers::{Answers, Asked, json_answer},
    canned::{self, Account},
    support::{CANARY, CLUSTER, Home, Said, run},
};

/// A broker that renews, too: the successor of a refresh token has a letter more.
fn broker() -> Answers {
    Answers::start(|asked, _| {
        let parameter = |name: &str| {
            url::form_urlencoded::parse(asked.body.as_bytes())
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.into_owned())
        };
        match (asked.path.as_str(), parameter("refresh_token")) {
            ("/oauth2/token", None) => canned::signed_in(asked, Account(1)),
            ("/oauth2/token", Some(token)) => json_answer(
                200,
                &json!({
                    "access_token": Account(1).access(), "token_type": "Bearer",
                    "expires_in": 900, "refresh_token": format!("{token}x"),
                }),
            ),
            _ => canned::answer(asked),
        }
    })
}

/// What it was asked to renew or to revoke with.
fn used(broker: &Answers, path: &str) -> Vec<String> {
    let read = |asked: &Asked| {
        url::form_urlencoded::parse(asked.body.as_bytes())
            .find(|(key, _)| key == "refresh_token" || key == "token")
            .map(|(_, value)| value.into_owned())
    };
    broker.all().iter().filter(|asked| asked.path == path).filter_map(read).collect()
}

fn login(home: &Home, more: &[&str], environment: &[(&str, &str)]) -> Said {
    let args = [&["login", "--device", "--broker", &home.broker], more].concat();
    run(home.command(&args).envs(environment.iter().copied()))
}

fn session(home: &Home) -> Value {
    serde_json::from_str(&fs::read_to_string(home.session_path()).unwrap()).unwrap()
}

/// The access token has run out.
fn age(home: &Home) {
    let mut session = session(home);
    session["access_expires_at"] = json!(0);
    fs::write(home.session_path(), session.to_string()).unwrap();
}

fn get_token(home: &Home, environment: &[(&str, &str)]) -> Said {
    let mut command = home.command(&["get-token", "--force", "--broker", &home.broker]);
    command.args(["--cluster", CLUSTER, "--workspace", &Account(1).workspace()]);
    run(command.envs(environment.iter().copied()))
}

#[test]
fn without_a_keyring_it_is_a_file_and_that_is_said_once() {
    let broker = broker();
    let home = Home::new(&broker.url);
    let said = login(&home, &[], &[]);
    assert!(said.code == 0 && said.stderr.contains("There is no keyring here"), "{said:?}");
    assert_eq!(session(&home)["storage"], "file");
    assert_eq!(session(&home)["refresh_token"], Account(1).refresh());
    let said = login(&home, &[], &[]);
    assert!(said.code == 0 && !said.stderr.contains("keyring"), "{said:?}");
    // Nobody has to be told what they asked for.
    let other = Home::new(&broker.url);
    let said = login(&other, &["--storage", "file"], &[]);
    assert!(said.code == 0 && !said.stderr.contains("keyring"), "{said:?}");
}

#[test]
fn nothing_is_kept_if_nothing_is_to_be_kept() {
    let broker = broker();
    let home = Home::new(&broker.url);
    let said = login(&home, &["--storage", "none"], &[]);
    assert!(said.stderr.contains("Nothing long-lived is kept"), "{said:?}");
    assert_eq!(session(&home)["storage"], "none");
    assert!(session(&home)["refresh_token"].is_null());
    assert_eq!(get_token(&home, &[]).token(), "k8s-1");
    age(&home);
    assert!(get_token(&home, &[]).failed(3).contains("--storage none keeps nothing"));
    // It is remembered, and the variable overrides it.
    assert_eq!(login(&home, &[], &[]).code, 0);
    assert_eq!(session(&home)["storage"], "none");
    assert_eq!(login(&home, &[], &[("TENANT_STORAGE", "file")]).code, 0);
    assert_eq!(session(&home)["storage"], "file");
    assert!(login(&home, &[], &[("TENANT_STORAGE", "disk")]).failed(2).contains("TENANT_STORAGE"));
}

#[test]
fn a_keyring_that_was_asked_for_has_no_substitute() {
    let broker = broker();
    let home = Home::new(&broker.url);
    let nowhere = [("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus")];
    let said = login(&home, &["--storage", "keyring"], &nowhere);
    assert!(said.failed(1).contains("the keyring cannot be used"), "{said:?}");
    // Before anybody typed a password.
    assert_eq!(broker.all().len(), 0);
}

/// A bus that takes the connection and then says nothing.
#[test]
fn a_keyring_that_hangs_hangs_nobody() {
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
    let said = login(&home, &[], &[("DBUS_SESSION_BUS_ADDRESS", &bus)]);
    assert!(said.code == 0 && said.stderr.contains("did not answer within 2 s"), "{said:?}");
    assert_eq!(session(&home)["storage"], "file");
    assert!(connections.try_recv().is_ok(), "nobody asked the keyring");
}

/// A message bus and a keyring of the test's own.
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
fn a_real_keyring_keeps_the_secret_and_the_file_does_not() {
    let broker = broker();
    let home = Home::new(&broker.url);
    let desktop = Desktop::start(&home.path(""));
    let bus = [("DBUS_SESSION_BUS_ADDRESS", desktop.address.as_str())];
    let said = login(&home, &[], &bus);
    assert!(said.code == 0 && !said.stderr.contains("eyring"), "{said:?}");
    assert_eq!(session(&home)["storage"], "keyring");
    let secret = format!("refresh-{CANARY}");
    let is_in_file = || fs::read_to_string(home.session_path()).unwrap().contains(&secret);
    assert!(!is_in_file());
    // Renewed twice, each time with the one before.
    for _ in 0..2 {
        age(&home);
        assert_eq!(get_token(&home, &bus).token(), "k8s-1");
        assert!(!is_in_file());
    }
    let first = Account(1).refresh();
    assert_eq!(used(&broker, "/oauth2/token"), [first.clone(), format!("{first}x")]);
    // Without the keyring there is an end, and it says which; a hit needs none.
    age(&home);
    assert!(get_token(&home, &[]).failed(1).contains("the session is in the keyring"));
    // A second account has an entry of its own.
    let other = ["--profile", "other", "--no-use"];
    assert_eq!(login(&home, &other, &bus).code, 0);
    let said = run(home.command(&["logout", "--broker", &broker.url]).envs(bus));
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!said.stderr.contains("warning"), "{said:?}");
    assert_eq!(used(&broker, "/oauth2/revoke"), [format!("{first}xx")]);
    // A file in its place empties the keyring.
    let file = ["--profile", "other", "--no-use", "--storage", "file"];
    assert_eq!(login(&home, &file, &bus).code, 0);
    assert_eq!(used(&broker, "/oauth2/revoke").last(), Some(&first));
}
