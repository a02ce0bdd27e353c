//! Names are looked up at the broker, and lists are read page by page.

use serde_json::json;

use crate::{
    answers::{Answer, Answers, json_answer, problem},
    canned::{self, Account},
    support::{Home, Said, run},
};

/// Somebody signed in at a broker that answers so where it does not answer as ever.
fn signed_in(
    answer: impl Fn(&str, &str) -> Option<Answer> + Send + Sync + 'static,
) -> (Home, Answers) {
    let broker = Answers::start(move |asked, _| {
        answer(&asked.method, &asked.path).unwrap_or_else(|| canned::confirmed(asked, Account(1)))
    });
    let home = Home::new(&broker.url);
    let said = say(&home, &["login", "--device", "--broker", &broker.url]);
    assert_eq!(said.code, 0, "{said:?}");
    (home, broker)
}

fn say(home: &Home, args: &[&str]) -> Said {
    run(home.command(args).env("KUBECONFIG", home.path("config")))
}

fn suspended(path: &str) -> Option<Answer> {
    path.ends_with("/suspend").then(|| {
        json_answer(200, &json!({"id": Account(1).workspace(), "status": "suspended", "steps": []}))
    })
}

/// What was asked since the sign-in.
fn asked_after_login(broker: &Answers) -> Vec<String> {
    let all = broker.all().into_iter().map(|it| format!("{} {}", it.method, it.path));
    let all: Vec<String> = all.collect();
    let end = all.iter().rposition(|it| it.contains("credentials/kubeconfig")).unwrap();
    all[end + 1..].to_vec()
}

#[test]
fn the_kill_switch_is_one_question_and_one_call() {
    for name in [
        format!("tenant-{}", Account(1).user()),
        Account(1).workspace(),
        Account(1).user(),
        Account(1).email(),
        Account(1).email().to_uppercase(),
    ] {
        let (home, broker) = signed_in(|_, path| suspended(path));
        let said = say(&home, &["suspend", &name]);
        assert_eq!(said.code, 0, "{said:?}");
        let asked = asked_after_login(&broker);
        assert_eq!(asked.len(), 2, "{asked:?}");
        assert!(asked[0].starts_with("GET /api/v1/workspaces/lookup?name="), "{asked:?}");
        let suspend = format!("POST /api/v1/workspaces/{}/suspend", Account(1).workspace());
        assert_eq!(asked[1], suspend);
    }
}

#[test]
fn a_name_that_means_nothing_or_two_things_says_what_to_type() {
    let (home, broker) = signed_in(|_, path| suspended(path));
    for name in ["tenant-x", "x@example.com"] {
        let said = say(&home, &["suspend", name]);
        assert!(said.failed(5).contains("not found: none"), "{said:?}");
    }
    for malformed in ["a b", "Tenant", "", &"x".repeat(300)] {
        let said = say(&home, &["suspend", malformed]);
        assert!(said.failed(2).contains("write a namespace (tenant-…)"), "{said:?}");
    }
    assert_eq!(asked_after_login(&broker).len(), 2, "what is no name costs no request");

    let (home, broker) = signed_in(|_, path| {
        let two = json!({"items": [Account(1).as_workspace(), Account(2).as_workspace()]});
        path.contains("/lookup").then(|| json_answer(200, &two)).or_else(|| suspended(path))
    });
    let said = say(&home, &["suspend", &Account(1).email()]);
    assert!(said.failed(5).contains("dev1@example.com has 2 workspaces"), "{said:?}");
    let namespaces = format!("tenant-{}, tenant-{}", Account(1).user(), Account(2).user());
    assert!(said.stderr.contains(&namespaces), "{said:?}");
    assert_eq!(asked_after_login(&broker).len(), 1, "nothing was suspended");
}

/// An older broker takes `lookup` for an identifier, which it is not.
#[test]
fn at_an_older_broker_an_identifier_works_and_nothing_else_is_hit() {
    let older = |_: &str, path: &str| {
        let lookup = path.contains("/lookup");
        lookup.then(|| problem(400, "invalid_request")).or_else(|| suspended(path))
    };
    let (home, broker) = signed_in(older);
    let said = say(&home, &["suspend", &Account(1).workspace()]);
    assert_eq!(said.code, 0, "{said:?}");
    let said = say(&home, &["suspend", &format!("tenant-{}", Account(1).user())]);
    assert!(said.failed(5).contains("invalid_request"), "{said:?}");
    assert_eq!(asked_after_login(&broker).len(), 3);
}

#[test]
fn people_are_found_by_address() {
    let (home, broker) = signed_in(|_, _| None);
    let (id, email) = (Account(3).user(), Account(3).email());
    for command in [
        &["users", "suspend", &email][..],
        &["users", "resume", &email],
        &["sessions", "--user", &email],
        &["sessions", "revoke", "--all", "--user", &email],
    ] {
        let said = say(&home, command);
        assert_eq!(said.code, 0, "{said:?}");
    }
    let asked = asked_after_login(&broker);
    let lookup = "GET /api/v1/users/lookup?name=dev3%40example.com".to_owned();
    let expected = [
        lookup.clone(),
        format!("POST /api/v1/users/{id}/suspend"),
        lookup.clone(),
        format!("POST /api/v1/users/{id}/resume"),
        lookup.clone(),
        format!("GET /api/v1/users/{id}/sessions?limit=500"),
        lookup,
        format!("DELETE /api/v1/users/{id}/sessions"),
    ];
    assert_eq!(asked, expected);
    let said = say(&home, &["sessions", "revoke", &id, "--user", &email]);
    assert!(said.stderr.contains("2 sessions ended"), "{said:?}");
    let said = say(&home, &["users", "suspend", "nobody@example.com"]);
    assert!(said.failed(5).contains("not found"), "{said:?}");
}

#[test]
fn a_list_goes_on_over_pages_and_says_where_it_stopped() {
    let (home, broker) = signed_in(|_, path| {
        path.starts_with("/api/v1/workspaces?limit").then(|| {
            let limit: usize =
                path.split(['=', '&']).nth(1).and_then(|text| text.parse().ok()).unwrap();
            let items = vec![Account(1).as_workspace(); limit.min(500)];
            json_answer(200, &json!({"items": items, "next_cursor": "c/d"}))
        })
    });
    let said = say(&home, &["workspaces", "--all", "--limit", "1200", "-o", "json"]);
    assert_eq!(said.document()["items"].as_array().unwrap().len(), 1200);
    assert_eq!(said.document()["next_cursor"], "c/d");
    assert!(said.stderr.contains("stopped after 1200; there are more"), "{said:?}");
    let asked = asked_after_login(&broker);
    let list = "GET /api/v1/workspaces?limit";
    let expected = [
        format!("{list}=500&all=true"),
        format!("{list}=500&all=true&cursor=c%2Fd"),
        format!("{list}=200&all=true&cursor=c%2Fd"),
    ];
    assert_eq!(asked, expected);
    let said = say(&home, &["workspaces", "--limit", "1"]);
    assert!(said.stderr.contains("stopped after 1; there are more: --limit NUMBER"), "{said:?}");
}
