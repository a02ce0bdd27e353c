//! Tests of `whoami`, `sessions`, `logout --all`, `users`, `suspend`, `resume` and `status`.

use std::{collections::HashMap, ffi::OsString, fs, io};

use kubectl_tenant::{Clock, Env, Input, Keyring, Messages, World};
use serde_json::json;

use crate::{
    stub_broker::{self, Account},
    stub_server::{StubServer, json_response, problem},
    support::{Home, run},
};

const CURRENT: &str = "20000000-0000-4000-8000-000000000000";
const OTHER: &str = "20000000-0000-4000-8000-000000000001";

fn signed_in(more: &[&str]) -> (Home, StubServer) {
    stub_broker::sign_in(stub_broker::auto_confirming(), more)
}

/// The calls that change something, with their bodies.
fn changes(broker: &StubServer) -> Vec<(String, String)> {
    let all = broker.requests().into_iter();
    all.filter(|request| request.method != "GET" && request.path.starts_with("/api/"))
        .map(|request| (format!("{} {}", request.method, request.path), request.body))
        .collect()
}

#[test]
fn whoami_shows_user_broker_and_session_end() {
    let (home, broker) = signed_in(&["--profile", "work"]);
    let text = home.run(&["whoami"]).stdout;
    let first = format!("{} (user) at {} (profile work)", Account(1).email(), broker.url);
    let workspace = format!("Workspace tenant-{} in internal-cluster", Account(1).user());
    for line in [&first, "Session until 2100-01-01T00:00:00Z, kept in a file", &workspace] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    let document = home.run(&["whoami", "-o", "json"]).document();
    assert_eq!((&document["profile"], &document["storage"]), (&"work".into(), &"file".into()));
    assert!(document.get("tenants").is_none(), "a broker without tenants: {document}");
    let yaml = home.run(&["whoami", "-o", "yaml"]).stdout;
    assert!(yaml.contains("profile: work\n") && yaml.contains("storage: file\n"), "{yaml}");
}

#[test]
fn sessions_are_listed_and_revoked() {
    let (home, broker) = signed_in(&[]);
    let table = home.run(&["sessions"]).stdout;
    assert!(table.lines().nth(1).unwrap().starts_with(&format!("*         {CURRENT}")), "{table}");
    let list = home.run(&["sessions", "list", "-o", "json"]).document();
    assert_eq!(list["items"][1]["id"], OTHER);
    let output = home.run(&["sessions", "revoke", OTHER]);
    assert_eq!((output.code, output.stdout.as_str()), (0, ""), "{output:?}");
    assert!(output.stderr.ends_with("kubectl tenant credentials revoke ID\n"), "{output:?}");
    let output = home.run(&["sessions", "revoke", "--all", "--others"]);
    assert!(output.stderr.contains("2 sessions ended"), "{output:?}");
    assert!(home.session_path().exists());
    let expected = [
        format!("DELETE /api/v1/me/sessions/{OTHER}"),
        "DELETE /api/v1/me/sessions?keep_current=true".to_owned(),
    ];
    assert_eq!(changes(&broker).into_iter().map(|it| it.0).collect::<Vec<_>>(), expected);
    // Revoking the session of this machine also signs out here.
    let output = home.run(&["sessions", "revoke", CURRENT]);
    assert!(output.code == 0 && output.stderr.contains("Signed out"), "{output:?}");
    assert!(!home.session_path().exists());
}

#[test]
fn logout_all_revokes_every_session_or_reports_the_failure() {
    for command in [&["logout", "--all"][..], &["sessions", "revoke", "--all"]] {
        let (home, broker) = signed_in(&[]);
        let output = home.run(command);
        assert_eq!((output.code, output.stdout.as_str()), (0, ""), "{output:?}");
        let expected = "DELETE /api/v1/me/sessions?keep_current=false".to_owned();
        assert_eq!(changes(&broker), [(expected, String::new())]);
        assert!(!home.session_path().exists());
        let output = home.run(&["logout", "--all"]);
        assert!(output.code == 0 && output.stderr.contains("Nobody was signed in"), "{output:?}");
    }
    let broker = StubServer::start(|_, _| problem(503, "database_unavailable"));
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    let output = home.run(&["logout", "--all", "--broker", &broker.url]);
    assert!(output.failed(4).contains("nothing was ended or deleted"), "{output:?}");
    assert!(home.session_path().exists());
}

/// Without a refresh token the access token revokes the session, as long as it lives.
#[test]
fn logout_revokes_a_session_without_a_stored_refresh_token() {
    let (home, broker) = signed_in(&["--storage", "none"]);
    let output = home.run(&["logout"]);
    assert!(output.code == 0 && !output.stderr.contains("warning"), "{output:?}");
    let expected = format!("DELETE /api/v1/me/sessions/{CURRENT}");
    assert_eq!(changes(&broker), [(expected, String::new())]);
    assert!(!home.session_path().exists());
}

#[test]
fn administrators_manage_users() {
    let (home, broker) = signed_in(&[]);
    let table = home.run(&["users"]).stdout;
    assert!(table.contains(&Account(1).email()) && table.contains("suspended"), "{table}");
    let list = home.run(&["users", "list", "-o", "json"]).document();
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    let id = Account(3).user();
    let output = home.run(&["users", "suspend", &id, "--reason", "left", "-o", "json"]);
    assert_eq!(output.document()["status"], "suspended");
    assert_eq!(home.run(&["users", "resume", &id, "-o", "json"]).document()["status"], "active");
    let address = ["--email", "new@example.com", "--reason", "married"];
    let output = home.run(&[&["users", "rename", &id][..], &address].concat());
    assert!(output.stdout.contains(&id), "{output:?}");
    // The loss of the address has to be confirmed.
    let output = home.run(&["users", "rename", &id]);
    assert!(output.failed(2).contains("confirm with --yes"), "{output:?}");
    assert_eq!(home.run(&["users", "rename", &id, "--yes"]).code, 0);
    let output = home.run(&["users", "groups", &id]);
    assert_eq!(output.stdout, "GROUP\ndev\nops\n", "{output:?}");
    home.run(&["users", "groups", &id, "--set", "ops", "--set", "dev", "--reason", "moved"]);
    let output = home.run(&["users", "groups", &id, "--none", "-o", "json"]);
    assert_eq!(output.document()["groups"], json!(["dev", "ops"]), "what the broker answers");
    let renamed = r#"{"email":"new@example.com","reason":"married"}"#;
    let groups = r#"{"groups":["ops","dev"],"reason":"moved"}"#;
    let expected = [
        (format!("POST /api/v1/users/{id}/suspend"), r#"{"reason":"left"}"#.to_owned()),
        (format!("POST /api/v1/users/{id}/resume"), "{}".to_owned()),
        (format!("POST /api/v1/users/{id}/email"), renamed.to_owned()),
        (format!("POST /api/v1/users/{id}/email"), "{}".to_owned()),
        (format!("POST /api/v1/users/{id}/groups"), groups.to_owned()),
        (format!("POST /api/v1/users/{id}/groups"), r#"{"groups":[]}"#.to_owned()),
    ];
    assert_eq!(changes(&broker), expected);
    let table = home.run(&["workspaces", "--all"]).stdout;
    assert!(table.starts_with("NAMESPACE") && table.contains("OWNER"), "{table}");
    assert!(table.contains(&Account(1).email()), "{table}");
    let own = home.run(&["workspaces"]).stdout;
    assert!(!own.contains("OWNER"), "{own}");
}

/// Runs the command of a person at a terminal who types this line. Returns the exit code.
fn at_terminal(home: &Home, args: &[&str], line: &'static str) -> u8 {
    let mut world = World {
        env: Env::Fixed(HashMap::from([("HOME".into(), home.path("").into())])),
        clock: Clock::System,
        entropy: |_| Err(io::Error::other("no entropy is needed here")),
        stdin: Input::from(line.as_bytes()),
        stdin_is_terminal: || true,
        stdout: Box::new(io::sink()),
        stderr: Messages::to(io::sink()),
        browser: |_, _| panic!("a browser was opened"),
        in_container: || false,
        keyring: Keyring::None,
        parent: || None,
    };
    let args: Vec<OsString> = ["kubectl-tenant"].iter().chain(args).map(OsString::from).collect();
    kubectl_tenant::run(&args, &mut world)
}

#[test]
fn the_loss_of_an_address_is_confirmed_with_the_address() {
    let (home, broker) = signed_in(&[]);
    let address = Account(3).email();
    for answer in ["\n", "y\n", "dev1@example.com\n"] {
        assert_eq!(at_terminal(&home, &["users", "rename", &address], answer), 0);
        assert_eq!(changes(&broker), [], "{answer:?}");
    }
    let answer = "dev3@example.com\n";
    assert_eq!(at_terminal(&home, &["users", "rename", &address], answer), 0);
    let path = format!("POST /api/v1/users/{}/email", Account(3).user());
    assert_eq!(changes(&broker), [(path, "{}".to_owned())]);
    // A new address needs no confirmation.
    let rename = ["users", "rename", &address, "--email", "new@example.com"];
    assert_eq!(at_terminal(&home, &rename, ""), 0);
    assert_eq!(changes(&broker).len(), 2);
}

/// A broker whose cluster stays unreachable for this many status requests.
fn slow_cluster(questions: usize) -> (Home, StubServer) {
    let asked_for_it = std::sync::atomic::AtomicUsize::new(0);
    let broker = StubServer::start(move |request, _| {
        let steps = |results: [&str; 3]| -> Vec<serde_json::Value> {
            ["record", "label_namespace", "finish"]
                .iter()
                .zip(results)
                .map(|(step, result)| json!({"step": step, "result": result, "duration_ms": 1.5}))
                .collect()
        };
        let id = Account(1).workspace();
        let open = ["label_namespace", "finish"];
        match request.path.strip_prefix(&format!("/api/v1/workspaces/{id}")) {
            Some("/suspend" | "/resume") if questions == 0 => {
                let status =
                    if request.path.ends_with("suspend") { "suspended" } else { "provisioned" };
                let steps = steps(["done"; 3]);
                json_response(200, &json!({"id": id, "status": status, "steps": steps}))
            }
            Some("/suspend") => {
                let steps = steps(["done", "open", "open"]);
                json_response(202, &json!({"id": id, "status": "suspending", "steps": steps}))
            }
            Some("") => {
                let before = asked_for_it.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let mut body = Account(1).as_workspace();
                if before < questions {
                    body["status"] = "suspending".into();
                    body["unfinished"] = json!({
                        "open_steps": open, "attempts": 1, "next_attempt_at": "2026-01-01T00:00:00Z",
                    });
                } else {
                    body["status"] = "suspended".into();
                }
                json_response(200, &body)
            }
            _ => stub_broker::respond_confirmed(request, Account(1)),
        }
    });
    stub_broker::sign_in(broker, &[])
}

#[test]
fn the_resumption_of_an_active_workspace_says_that_it_was_active() {
    let id = Account(1).workspace();
    let path = format!("/api/v1/workspaces/{id}/resume");
    let answer = json!({"id": id, "status": "provisioned", "steps": []});
    let broker = StubServer::start(move |request, _| {
        if request.path == path {
            json_response(200, &answer)
        } else {
            stub_broker::respond_confirmed(request, Account(1))
        }
    });
    let (home, _broker) = stub_broker::sign_in(broker, &[]);
    let output = home.run(&["resume", &id]);
    assert_eq!((output.code, output.stdout.as_str()), (0, ""), "{output:?}");
    assert!(output.stderr.contains("was active already"), "{output:?}");
}

#[test]
fn suspend_reports_done_and_open_steps() {
    let id = Account(1).workspace();
    let (home, broker) = slow_cluster(0);
    let output = home.run(&["suspend", &id, "--reason", "leaked"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stdout.starts_with("STEP") && !output.stdout.contains("open"), "{output:?}");
    let namespace = format!("tenant-{}", Account(1).user());
    let told = format!("Workspace {namespace} of {} is suspended:", Account(1).email());
    assert!(output.stderr.contains(&told), "{output:?}");
    // The namespace names the workspace, too; then it is resumed.
    let output = home.run(&["resume", &namespace, "-o", "json"]);
    assert_eq!(output.document()["status"], "provisioned");
    let unknown = home.run(&["resume", "tenant-x"]);
    assert!(unknown.failed(5).contains("not found: none"), "{unknown:?}");
    let expected = [
        (format!("POST /api/v1/workspaces/{id}/suspend"), r#"{"reason":"leaked"}"#.to_owned()),
        (format!("POST /api/v1/workspaces/{id}/resume"), "{}".to_owned()),
    ];
    assert_eq!(changes(&broker), expected);

    // The cluster recovers while the plugin waits.
    let (home, _broker) = slow_cluster(1);
    let output = home.run(&["suspend", &id]);
    assert_eq!(output.code, 0, "{output:?}");
    for line in ["these steps are open: label_namespace, finish", "continues", "is suspended:"] {
        assert!(output.stderr.contains(line), "{line} is not in {output:?}");
    }
    // The cluster does not recover in time.
    let (home, _broker) = slow_cluster(usize::MAX);
    let output = home.run(&["suspend", &id, "--wait", "0"]);
    // The steps are printed all the same, because they are what happened.
    assert_eq!(output.code, 4, "{output:?}");
    assert!(output.stdout.contains("label_namespace   open"), "{output:?}");
    let told = "is suspending, not suspended; open: label_namespace, finish";
    assert!(output.stderr.contains(&format!("error: the workspace {told}")), "{output:?}");
}

#[test]
fn status_shows_the_storage() {
    let (home, broker) = signed_in(&[]);
    let document = home.run(&["status", "-o", "json"]).document();
    assert_eq!(document["profiles"][0]["session"]["storage"], "file");
    // The environment variable filters like the flag.
    for (variable, count) in [(broker.url.as_str(), 1), ("https://other.example", 0)] {
        let output =
            run(home.command(&["status", "-o", "json"]).env("TENANT_BROKER_URL", variable));
        assert_eq!(output.document()["profiles"].as_array().unwrap().len(), count);
    }
    let text = fs::read_to_string(home.session_path()).unwrap();
    assert!(text.contains(r#""storage":"file""#), "{text}");
}
