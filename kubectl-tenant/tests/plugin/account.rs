//! Who is signed in and where, and ending that.

use std::fs;

use serde_json::json;

use crate::{
    answers::{Answers, json_answer, problem},
    canned::{self, Account},
    support::{Home, Said, run},
};

const CURRENT: &str = "20000000-0000-4000-8000-000000000000";
const OTHER: &str = "20000000-0000-4000-8000-000000000001";

fn signed_in(more: &[&str]) -> (Home, Answers) {
    let broker = canned::quick();
    let home = Home::new(&broker.url);
    let said = say(&home, &[&["login", "--device", "--broker", &broker.url], more].concat());
    assert_eq!(said.code, 0, "{said:?}");
    (home, broker)
}

fn say(home: &Home, args: &[&str]) -> Said {
    run(home.command(args).env("KUBECONFIG", home.path("config")))
}

/// The calls that change something, and their bodies.
fn changes(broker: &Answers) -> Vec<(String, String)> {
    let all = broker.all().into_iter();
    all.filter(|asked| asked.method != "GET" && asked.path.starts_with("/api/"))
        .map(|asked| (format!("{} {}", asked.method, asked.path), asked.body))
        .collect()
}

#[test]
fn whoami_says_who_where_and_until_when() {
    let (home, broker) = signed_in(&["--profile", "work"]);
    let text = say(&home, &["whoami"]).stdout;
    let first = format!("{} (user) at {} (profile work)", Account(1).email(), broker.url);
    let workspace = format!("Workspace tenant-{} in internal-cluster", Account(1).user());
    for line in [&first, "Session until 2100-01-01T00:00:00Z, kept in a file", &workspace] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    let document = say(&home, &["whoami", "-o", "json"]).document();
    assert_eq!((&document["profile"], &document["storage"]), (&"work".into(), &"file".into()));
    let yaml = say(&home, &["whoami", "-o", "yaml"]).stdout;
    assert!(yaml.contains("profile: work\n") && yaml.contains("storage: file\n"), "{yaml}");
}

#[test]
fn sessions_are_listed_and_ended() {
    let (home, broker) = signed_in(&[]);
    let table = say(&home, &["sessions"]).stdout;
    assert!(table.lines().nth(1).unwrap().starts_with(&format!("*         {CURRENT}")), "{table}");
    let list = say(&home, &["sessions", "list", "-o", "json"]).document();
    assert_eq!(list["items"][1]["id"], OTHER);
    let said = say(&home, &["sessions", "revoke", OTHER]);
    assert_eq!((said.code, said.stdout.as_str()), (0, ""), "{said:?}");
    let said = say(&home, &["sessions", "revoke", "--all", "--others"]);
    assert!(said.stderr.contains("2 sessions ended"), "{said:?}");
    assert!(home.session_path().exists());
    let expected = [
        format!("DELETE /api/v1/me/sessions/{OTHER}"),
        "DELETE /api/v1/me/sessions?keep_current=true".to_owned(),
    ];
    assert_eq!(changes(&broker).into_iter().map(|it| it.0).collect::<Vec<_>>(), expected);
    // Whoever ends the session of this machine is signed out here.
    let said = say(&home, &["sessions", "revoke", CURRENT]);
    assert!(said.code == 0 && said.stderr.contains("Signed out"), "{said:?}");
    assert!(!home.session_path().exists());
}

#[test]
fn logout_all_ends_everything_or_says_that_it_did_not() {
    for command in [&["logout", "--all"][..], &["sessions", "revoke", "--all"]] {
        let (home, broker) = signed_in(&[]);
        let said = say(&home, command);
        assert_eq!((said.code, said.stdout.as_str()), (0, ""), "{said:?}");
        let expected = "DELETE /api/v1/me/sessions?keep_current=false".to_owned();
        assert_eq!(changes(&broker), [(expected, String::new())]);
        assert!(!home.session_path().exists());
        let said = say(&home, &["logout", "--all"]);
        assert!(said.code == 0 && said.stderr.contains("Nobody was signed in"), "{said:?}");
    }
    let broker = Answers::start(|_, _| problem(503, "database_unavailable"));
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    let said = say(&home, &["logout", "--all", "--broker", &broker.url]);
    assert!(said.failed(4).contains("nothing was ended or deleted"), "{said:?}");
    assert!(home.session_path().exists());
}

/// Without a refresh token the access token ends the session, as long as it lives.
#[test]
fn what_is_not_kept_is_ended_all_the_same() {
    let (home, broker) = signed_in(&["--storage", "none"]);
    let said = say(&home, &["logout"]);
    assert!(said.code == 0 && !said.stderr.contains("warning"), "{said:?}");
    let expected = format!("DELETE /api/v1/me/sessions/{CURRENT}");
    assert_eq!(changes(&broker), [(expected, String::new())]);
    assert!(!home.session_path().exists());
}

#[test]
fn administrators_see_everybody() {
    let (home, broker) = signed_in(&[]);
    let table = say(&home, &["users"]).stdout;
    assert!(table.contains(&Account(1).email()) && table.contains("suspended"), "{table}");
    let list = say(&home, &["users", "list", "-o", "json"]).document();
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    let id = Account(3).user();
    let said = say(&home, &["users", "suspend", &id, "--reason", "left", "-o", "json"]);
    assert_eq!(said.document()["status"], "suspended");
    assert_eq!(say(&home, &["users", "resume", &id, "-o", "json"]).document()["status"], "active");
    let address = ["--email", "new@example.com", "--reason", "married"];
    let said = say(&home, &[&["users", "rename", &id][..], &address].concat());
    assert!(said.stdout.contains(&id), "{said:?}");
    say(&home, &["users", "rename", &id]);
    let renamed = r#"{"email":"new@example.com","reason":"married"}"#;
    let expected = [
        (format!("POST /api/v1/users/{id}/suspend"), r#"{"reason":"left"}"#.to_owned()),
        (format!("POST /api/v1/users/{id}/resume"), "{}".to_owned()),
        (format!("POST /api/v1/users/{id}/email"), renamed.to_owned()),
        (format!("POST /api/v1/users/{id}/email"), "{}".to_owned()),
    ];
    assert_eq!(changes(&broker), expected);
    let table = say(&home, &["workspaces", "--all"]).stdout;
    assert!(table.starts_with("NAMESPACE") && table.contains("OWNER"), "{table}");
    assert!(table.contains(&Account(1).email()), "{table}");
    let own = say(&home, &["workspaces"]).stdout;
    assert!(!own.contains("OWNER"), "{own}");
}

/// A broker whose cluster does not answer for so many questions.
fn slow_cluster(questions: usize) -> (Home, Answers) {
    let asked_for_it = std::sync::atomic::AtomicUsize::new(0);
    let broker = Answers::start(move |asked, _| {
        let steps = |results: [&str; 3]| -> Vec<serde_json::Value> {
            ["record", "label_namespace", "finish"]
                .iter()
                .zip(results)
                .map(|(step, result)| json!({"step": step, "result": result, "duration_ms": 1.5}))
                .collect()
        };
        let id = Account(1).workspace();
        let open = ["label_namespace", "finish"];
        match asked.path.strip_prefix(&format!("/api/v1/workspaces/{id}")) {
            Some("/suspend" | "/resume") if questions == 0 => {
                let status =
                    if asked.path.ends_with("suspend") { "suspended" } else { "provisioned" };
                let steps = steps(["done"; 3]);
                json_answer(200, &json!({"id": id, "status": status, "steps": steps}))
            }
            Some("/suspend") => {
                let steps = steps(["done", "open", "open"]);
                json_answer(202, &json!({"id": id, "status": "suspending", "steps": steps}))
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
                json_answer(200, &body)
            }
            _ => canned::confirmed(asked, Account(1)),
        }
    });
    let home = Home::new(&broker.url);
    let said = say(&home, &["login", "--device", "--broker", &broker.url]);
    assert_eq!(said.code, 0, "{said:?}");
    (home, broker)
}

#[test]
fn the_kill_switch_says_what_is_done_and_what_is_open() {
    let id = Account(1).workspace();
    let (home, broker) = slow_cluster(0);
    let said = say(&home, &["suspend", &id, "--reason", "leaked"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stdout.starts_with("STEP") && !said.stdout.contains("open"), "{said:?}");
    assert!(said.stderr.contains(&format!("Workspace {id} is suspended")), "{said:?}");
    // By its namespace, and back.
    let namespace = format!("tenant-{}", Account(1).user());
    let said = say(&home, &["resume", &namespace, "-o", "json"]);
    assert_eq!(said.document()["status"], "provisioned");
    let unknown = say(&home, &["resume", "tenant-x"]);
    assert!(unknown.failed(5).contains("not found: none"), "{unknown:?}");
    let expected = [
        (format!("POST /api/v1/workspaces/{id}/suspend"), r#"{"reason":"leaked"}"#.to_owned()),
        (format!("POST /api/v1/workspaces/{id}/resume"), "{}".to_owned()),
    ];
    assert_eq!(changes(&broker), expected);

    // The cluster comes back while the plugin waits.
    let (home, _broker) = slow_cluster(1);
    let said = say(&home, &["suspend", &id]);
    assert_eq!(said.code, 0, "{said:?}");
    for line in ["these steps are open: label_namespace, finish", "goes on", "is suspended:"] {
        assert!(said.stderr.contains(line), "{line} is not in {said:?}");
    }
    // It does not come back in time.
    let (home, _broker) = slow_cluster(usize::MAX);
    let said = say(&home, &["suspend", &id, "--wait", "0"]);
    // The steps are shown all the same, for they are what happened.
    assert_eq!(said.code, 4, "{said:?}");
    assert!(said.stdout.contains("label_namespace   open"), "{said:?}");
    let told = "is suspending, not suspended; open: label_namespace, finish";
    assert!(said.stderr.contains(&format!("error: the workspace {told}")), "{said:?}");
}

#[test]
fn status_says_where_the_session_is_kept() {
    let (home, broker) = signed_in(&[]);
    let document = say(&home, &["status", "-o", "json"]).document();
    assert_eq!(document["profiles"][0]["session"]["storage"], "file");
    // The variable chooses as the flag does.
    for (variable, count) in [(broker.url.as_str(), 1), ("https://other.example", 0)] {
        let said = run(home.command(&["status", "-o", "json"]).env("TENANT_BROKER_URL", variable));
        assert_eq!(said.document()["profiles"].as_array().unwrap().len(), count);
    }
    let text = fs::read_to_string(home.session_path()).unwrap();
    assert!(text.contains(r#""storage":"file""#), "{text}");
}
