//! Tests that the text of a hostile broker or captive portal cannot control the terminal.

use std::{
    fs::File,
    io::Read,
    process::{Command, Stdio},
};

use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};
use serde_json::{Value, json};

use crate::{
    stub_server::{StubResponse, StubServer, json_response},
    support::{Home, WORKSPACE},
};

/// Sets the title, clears the screen, colours (C0 and C1), deletes, reverses text, hides.
const HOSTILE: &str = "bad\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{9d}0;x\u{9c}\u{7f}\u{8}\r\
    \u{85}\u{200b}\u{200f}\u{202e}\u{2066}\u{2028}\u{feff}\nhint: run evil";

/// Runs a command whose three streams are a pseudo-terminal, and returns what the terminal
/// received.
fn on_terminal(command: &mut Command) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = rustix::fs::open(&name, flags, Mode::empty()).unwrap();
    let stream = || Stdio::from(terminal.try_clone().unwrap());
    command.stdin(stream()).stdout(stream()).stderr(stream());
    let mut child = command.spawn().unwrap();
    // Reading ends when every process has closed the terminal.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    drop(terminal);
    let (mut master, mut shown, mut piece) = (File::from(master), Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = master.read(&mut piece) {
        shown.extend_from_slice(&piece[..length]);
    }
    child.wait().unwrap();
    String::from_utf8(shown).unwrap()
}

/// Asserts that nothing in the text controls the terminal, which writes CR LF for a line feed.
fn assert_harmless(shown: &str, what: &str) {
    let text = shown.replace("\r\n", "\n");
    let harmless = |it: char| {
        it == '\n'
            || !(it.is_control()
                || matches!(it, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                    | '\u{2060}'..='\u{206f}' | '\u{feff}'))
    };
    assert!(text.chars().all(harmless), "{what}: {text:?}");
    assert!(text.contains("bad"), "{what} does not show the broker's text: {text:?}");
    let forged = text.lines().any(|line| line.starts_with("hint: run evil"));
    assert!(!forged, "{what}: a line of the broker looks like one of the plugin: {text:?}");
}

fn workspace() -> Value {
    json!({
        "id": WORKSPACE, "namespace": HOSTILE, "status": "provisioned", "tier": HOSTILE,
        "quota": {"cpu": HOSTILE, "memory": HOSTILE}, "cluster": HOSTILE, "owner": WORKSPACE,
        "owner_email": HOSTILE, "created_at": "2026-01-01T00:00:00Z",
    })
}

fn role() -> Value {
    json!({"cluster_role": HOSTILE, "given_by": [HOSTILE]})
}

fn tenant() -> Value {
    json!({
        "name": HOSTILE, "api_group": HOSTILE, "state": HOSTILE, "is_owner": true,
        "roles": [role()], "namespace_count": 1,
        "conditions": [{"type": HOSTILE, "message": HOSTILE}],
    })
}

/// Valid responses with hostile text in them.
fn data(path: &str) -> StubResponse {
    let page = |item: Value| json_response(200, &json!({"items": [item], "next_cursor": HOSTILE}));
    match path {
        "/api/v1/me" => json_response(
            200,
            &json!({
                "id": WORKSPACE, "email": HOSTILE, "role": "user", "session_id": WORKSPACE,
                "session_expires_at": "2100-01-01T00:00:00Z",
                "provider": {"name": HOSTILE, "username": HOSTILE, "removal_seconds": 1},
            }),
        ),
        "/api/v1/workspaces" | "/api/v1/workspaces/lookup" => page(workspace()),
        "/api/v1/workspaces/credentials/kubeconfig" => {
            StubResponse::Http(200, "application/x-yaml", format!("# {HOSTILE}"))
        }
        "/api/v1/tenants" => page(tenant()),
        "/api/v1/tenants/solar" => json_response(200, &tenant()),
        "/api/v1/tenants/solar/members" => page(json!({
            "user": WORKSPACE, "email": HOSTILE, "workspace": WORKSPACE, "status": "provisioned",
            "is_owner": true, "roles": [role()],
        })),
        "/api/v1/tenants/solar/namespaces" => page(json!({
            "name": HOSTILE, "status": HOSTILE, "created_at": "2026-01-01T00:00:00Z",
        })),
        "/api/v1/tenants/solar/moves/legacy" => json_response(
            200,
            &json!({
                "namespace": HOSTILE, "namespace_uid": "u", "resource_version": "1",
                "from": HOSTILE, "to": HOSTILE, "labels": {HOSTILE: HOSTILE},
                "changes": [HOSTILE], "refusals": [HOSTILE],
            }),
        ),
        "/api/v1/tenants/solar/suspend" => json_response(
            200,
            &json!({
                "name": HOSTILE, "state": HOSTILE,
                "steps": [{"step": HOSTILE, "result": "open", "duration_ms": 1}],
            }),
        ),
        "/api/v1/me/sessions" => page(json!({
            "id": WORKSPACE, "client": HOSTILE, "created_at": "2026-01-01T00:00:00Z",
            "last_used_at": "2026-01-01T00:00:00Z", "expires_at": "2026-01-01T00:00:00Z",
            "ip_address": HOSTILE, "user_agent": HOSTILE, "current": true,
        })),
        "/api/v1/users" => page(json!({
            "id": WORKSPACE, "email": HOSTILE, "role": "user", "status": "active",
            "created_at": "2026-01-01T00:00:00Z",
        })),
        "/api/v1/audit-logs" => page(json!({
            "id": WORKSPACE, "created_at": "2026-01-01T00:00:00Z", "action": HOSTILE,
            "outcome": HOSTILE, "user_id": WORKSPACE, "user_email": HOSTILE, "reason": HOSTILE,
        })),
        _ => json_response(
            200,
            &json!({
                "id": WORKSPACE, "status": "suspended",
                "steps": [{"step": HOSTILE, "result": "open", "duration_ms": 1}],
            }),
        ),
    }
}

#[test]
fn hostile_data_cannot_control_the_terminal() {
    let broker = StubServer::start(|request, _| data(request.path.split('?').next().unwrap()));
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    for command in [
        "whoami",
        "workspaces --limit 1",
        "workspaces --all --limit 1",
        "sessions --limit 1",
        "users --limit 1",
        "audit --limit 1",
        "suspend tenant-x --wait 0",
        "tenants",
        "tenants get solar",
        "tenants members solar",
        "tenants suspend solar --wait 0",
        "namespaces --tenant solar",
        "namespaces adopt legacy --tenant solar --dry-run",
    ] {
        for format in ["table", "json", "yaml"] {
            let args: Vec<&str> = command.split(' ').chain(["-o", format]).collect();
            let shown = on_terminal(home.command(&args).env("TENANT_BROKER_URL", &broker.url));
            assert_harmless(&shown, &format!("{command} -o {format}"));
        }
    }
    let print = ["kubeconfig", "--print"];
    let shown = on_terminal(home.command(&print).env("TENANT_BROKER_URL", &broker.url));
    assert!(shown.contains("control characters; it was not used"), "{shown:?}");
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn hostile_data_is_unchanged_for_programs() {
    let broker = StubServer::start(|request, _| data(request.path.split('?').next().unwrap()));
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    for format in ["json", "yaml"] {
        let args = ["workspaces", "--all", "--limit", "1", "-o", format];
        let output = home.command(&args).env("TENANT_BROKER_URL", &broker.url).output().unwrap();
        let document: Value = serde_norway::from_slice(&output.stdout).unwrap();
        assert_eq!(document["items"][0]["namespace"], HOSTILE, "{format}");
    }
}

#[test]
fn hostile_errors_cannot_control_the_terminal() {
    for (status, code) in [
        (403, HOSTILE),
        (404, "not_found"),
        (409, "workspace_not_ready"),
        (401, "unauthenticated"),
        (503, "storage_unavailable"),
    ] {
        let broker = StubServer::start(move |request, _| {
            if request.path == "/oauth2/token" {
                let refusal = json!({"error": "invalid_scope", "error_description": HOSTILE});
                return json_response(400, &refusal);
            }
            let problem = json!({
                "type": "about:blank", "title": HOSTILE, "status": status, "code": code,
                "detail": HOSTILE, "request_id": HOSTILE,
            });
            StubResponse::Http(status, "application/problem+json", problem.to_string())
        });
        let home = Home::new(&broker.url);
        home.forge_session(1, 600);
        for command in [
            &["whoami"][..],
            &["suspend", "tenant-x"],
            &["users", "suspend", "a@b.example"],
            &["get-token", "--workspace", WORKSPACE],
            // The failure of the previous call is stored.
            &["status"],
        ] {
            let shown = on_terminal(home.command(command).env("TENANT_BROKER_URL", &broker.url));
            assert_harmless(&shown, &format!("{command:?} after {status}"));
        }
        // The token endpoint's error text, when the session has to be renewed.
        home.forge_session(1, -1);
        let shown = on_terminal(home.command(&["whoami"]).env("TENANT_BROKER_URL", &broker.url));
        assert_harmless(&shown, "whoami with a renewal");
    }
}
