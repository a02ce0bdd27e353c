//! Tests of name lookups at the broker and of paginated lists.

use serde_json::json;

use crate::{
    stub_broker::{self, Account},
    stub_server::{StubResponse, StubServer, json_response, problem},
    support::Home,
};

/// Signs in at a broker that responds with `respond` where that returns something.
fn signed_in(
    respond: impl Fn(&str, &str) -> Option<StubResponse> + Send + Sync + 'static,
) -> (Home, StubServer) {
    let broker = StubServer::start(move |request, _| {
        respond(&request.method, &request.path)
            .unwrap_or_else(|| stub_broker::respond_confirmed(request, Account(1)))
    });
    stub_broker::sign_in(broker, &[])
}

fn suspended(path: &str) -> Option<StubResponse> {
    path.ends_with("/suspend").then(|| {
        json_response(
            200,
            &json!({"id": Account(1).workspace(), "status": "suspended", "steps": []}),
        )
    })
}

/// The requests since the sign-in.
fn requests_after_login(broker: &StubServer) -> Vec<String> {
    let all = broker.requests().into_iter().map(|it| format!("{} {}", it.method, it.path));
    let all: Vec<String> = all.collect();
    let end = all.iter().rposition(|it| it.contains("credentials/kubeconfig")).unwrap();
    all[end + 1..].to_vec()
}

#[test]
fn suspend_needs_one_lookup_and_one_call() {
    for name in [
        format!("tenant-{}", Account(1).user()),
        Account(1).workspace(),
        Account(1).user(),
        Account(1).email(),
        Account(1).email().to_uppercase(),
    ] {
        let (home, broker) = signed_in(|_, path| suspended(path));
        let output = home.run(&["suspend", &name]);
        assert_eq!(output.code, 0, "{output:?}");
        let requests = requests_after_login(&broker);
        assert_eq!(requests.len(), 2, "{requests:?}");
        assert!(requests[0].starts_with("GET /api/v1/workspaces/lookup?name="), "{requests:?}");
        let suspend = format!("POST /api/v1/workspaces/{}/suspend", Account(1).workspace());
        assert_eq!(requests[1], suspend);
    }
}

#[test]
fn unknown_and_ambiguous_names_are_errors_with_hints() {
    let (home, broker) = signed_in(|_, path| suspended(path));
    for name in ["tenant-x", "x@example.com"] {
        let output = home.run(&["suspend", name]);
        assert!(output.failed(5).contains("not found: none"), "{output:?}");
    }
    for malformed in ["a b", "Tenant", "", &"x".repeat(300)] {
        let output = home.run(&["suspend", malformed]);
        assert!(output.failed(2).contains("write a namespace (tenant-…)"), "{output:?}");
    }
    assert_eq!(requests_after_login(&broker).len(), 2, "an invalid name costs no request");

    let (home, broker) = signed_in(|_, path| {
        let two = json!({"items": [Account(1).as_workspace(), Account(2).as_workspace()]});
        path.contains("/lookup").then(|| json_response(200, &two)).or_else(|| suspended(path))
    });
    let output = home.run(&["suspend", &Account(1).email()]);
    assert!(output.failed(5).contains("dev1@example.com has 2 workspaces"), "{output:?}");
    let namespaces = format!("tenant-{}, tenant-{}", Account(1).user(), Account(2).user());
    assert!(output.stderr.contains(&namespaces), "{output:?}");
    assert_eq!(requests_after_login(&broker).len(), 1, "nothing was suspended");
}

/// All members of a tenant share its home, so that its name means no membership.
#[test]
fn memberships_are_named_by_their_identifiers() {
    const MEMBERSHIP: &str = "30000000-0000-4000-8000-000000000000";
    let email = Account(1).email();
    let namespace = format!("tenant-{}", Account(1).user());
    let (home, broker) = signed_in(|_, path| {
        let mut membership = Account(1).as_workspace();
        membership["id"] = MEMBERSHIP.into();
        membership["namespace"] = "tenant-solar".into();
        membership["tenant"] = "solar".into();
        let is_one = path.ends_with(&format!("lookup?name={MEMBERSHIP}"));
        let items =
            if is_one { vec![membership] } else { vec![Account(1).as_workspace(), membership] };
        let found = || json_response(200, &json!({ "items": items }));
        path.contains("/lookup").then(found).or_else(|| suspended(path))
    });
    let names = format!("name one of them: {namespace}, {MEMBERSHIP} (member of tenant solar)");
    let suspend = format!("; the person with everything: kubectl tenant users suspend {email}\n");
    let resume =
        format!("; to let the person sign in again: kubectl tenant users resume {email}\n");
    for (args, end) in [
        (&["suspend", &email][..], &*suspend),
        (&["resume", &email], &*resume),
        (&["usage", &email], "\n"),
        (&["audit", &email], "\n"),
        (&["credentials", "list", &email], "\n"),
    ] {
        let output = home.run(args);
        assert!(output.failed(5).ends_with(&format!("hint: {names}{end}")), "{args:?}: {output:?}");
    }
    assert_eq!(requests_after_login(&broker).len(), 5, "nothing else was asked");
    let output = home.run(&["suspend", MEMBERSHIP]);
    let told = format!("The membership of {email} in tenant solar is suspended:");
    assert!(output.code == 0 && output.stderr.contains(&told), "{output:?}");
    // The text after the resumption of a person works as it is printed.
    let (home, _broker) = signed_in(|_, path| {
        let mut workspace = Account(3).as_workspace();
        workspace["status"] = "suspended".into();
        path.contains("/workspaces/lookup")
            .then(|| json_response(200, &json!({"items": [workspace]})))
    });
    let output = home.run(&["users", "resume", &Account(3).email()]);
    let command = format!("to resume it: kubectl tenant resume tenant-{}\n", Account(3).user());
    assert!(output.code == 0 && output.stderr.ends_with(&command), "{output:?}");
}

/// An older broker takes the path segment `lookup` for an identifier and refuses it.
#[test]
fn an_older_broker_accepts_identifiers_only() {
    let older = |_: &str, path: &str| {
        let lookup = path.contains("/lookup");
        lookup.then(|| problem(400, "invalid_request")).or_else(|| suspended(path))
    };
    let (home, broker) = signed_in(older);
    let output = home.run(&["suspend", &Account(1).workspace()]);
    assert_eq!(output.code, 0, "{output:?}");
    let output = home.run(&["suspend", &format!("tenant-{}", Account(1).user())]);
    assert!(output.failed(5).contains("invalid_request"), "{output:?}");
    assert_eq!(requests_after_login(&broker).len(), 3);
}

#[test]
fn users_are_found_by_address() {
    let (home, broker) = signed_in(|_, _| None);
    let (id, email) = (Account(3).user(), Account(3).email());
    for command in [
        &["users", "suspend", &email][..],
        &["users", "resume", &email],
        &["sessions", "--user", &email],
        &["sessions", "revoke", "--all", "--user", &email],
    ] {
        let output = home.run(command);
        assert_eq!(output.code, 0, "{output:?}");
    }
    let requests = requests_after_login(&broker);
    let lookup = "GET /api/v1/users/lookup?name=dev3%40example.com".to_owned();
    // For the names of their workspaces.
    let workspaces = format!("GET /api/v1/workspaces/lookup?name={id}");
    let expected = [
        lookup.clone(),
        format!("POST /api/v1/users/{id}/suspend"),
        workspaces.clone(),
        lookup.clone(),
        format!("POST /api/v1/users/{id}/resume"),
        workspaces,
        lookup.clone(),
        format!("GET /api/v1/users/{id}/sessions?limit=500"),
        lookup,
        format!("DELETE /api/v1/users/{id}/sessions"),
    ];
    assert_eq!(requests, expected);
    let output = home.run(&["sessions", "revoke", &id, "--user", &email]);
    assert!(output.stderr.contains("2 sessions ended"), "{output:?}");
    let command = format!("kubectl tenant credentials revoke ID --workspace {email}\n");
    assert!(output.stderr.ends_with(&command), "{output:?}");
    let output = home.run(&["users", "suspend", "nobody@example.com"]);
    assert!(output.failed(5).contains("not found"), "{output:?}");
}

#[test]
fn lists_are_paginated_and_truncation_is_reported() {
    let (home, broker) = signed_in(|_, path| {
        path.starts_with("/api/v1/workspaces?limit").then(|| {
            let limit: usize =
                path.split(['=', '&']).nth(1).and_then(|text| text.parse().ok()).unwrap();
            let items = vec![Account(1).as_workspace(); limit.min(500)];
            json_response(200, &json!({"items": items, "next_cursor": "c/d"}))
        })
    });
    let output = home.run(&["workspaces", "--all", "--limit", "1200", "-o", "json"]);
    assert_eq!(output.document()["items"].as_array().unwrap().len(), 1200);
    assert_eq!(output.document()["next_cursor"], "c/d");
    assert!(output.stderr.contains("stopped after 1200; there are more"), "{output:?}");
    let requests = requests_after_login(&broker);
    let list = "GET /api/v1/workspaces?limit";
    let expected = [
        format!("{list}=500&all=true"),
        format!("{list}=500&all=true&cursor=c%2Fd"),
        format!("{list}=200&all=true&cursor=c%2Fd"),
    ];
    assert_eq!(requests, expected);
    let output = home.run(&["workspaces", "--limit", "1"]);
    assert!(
        output.stderr.contains("stopped after 1; there are more: --limit NUMBER"),
        "{output:?}"
    );
}
