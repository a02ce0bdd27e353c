//! Tests of `get-token`: cache hits, cache misses and failures.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    stub_broker::{self, Account},
    stub_server::{
        RecordedRequest, StubResponse, StubServer, credential, json_response, problem, tokens,
    },
    support::{CANARY, CommandOutput, EXEC_INFO, Home, WORKSPACE, key, now, run},
};
use serde_json::json;

/// An address where nothing listens.
fn unused_url() -> String {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("http://127.0.0.1:{port}")
}

/// A broker that issues a new token on every request.
fn issuing_broker() -> StubServer {
    StubServer::start(|_, number| credential(&format!("new-{CANARY}-{number}"), 7200))
}

#[test]
fn a_hit_prints_one_document_and_nothing_else() {
    let home = Home::new(&unused_url());
    home.forge_token(CANARY, 100, 3600);
    let output = run(home.get_token().env("KUBERNETES_EXEC_INFO", EXEC_INFO));
    assert_eq!(output.stderr, "");
    assert_eq!(output.token(), CANARY);
    assert_eq!(output.stdout.matches('\n').count(), 1);
    let document = output.document();
    assert_eq!(document["kind"], "ExecCredential");
    assert_eq!(document["apiVersion"], "client.authentication.k8s.io/v1");
    assert!((output.stamp() - (now() + 3540)).abs() <= 2);
    let exact: tenant_shared::ExecCredential = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(serde_json::to_value(&exact).unwrap(), document);
}

/// A hit opens two files, does one small write, and uses no socket and no thread.
#[test]
#[cfg(target_os = "linux")]
fn a_hit_opens_two_files_and_no_socket() {
    let home = Home::new(&unused_url());
    home.forge_token(CANARY, 100, 3600);
    let trace = home.path("trace");
    let plain = home.get_token();
    let mut command = std::process::Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(&trace).arg(plain.get_program()).args(plain.get_args());
    command.env_clear().env("HOME", home.path("")).env("KUBERNETES_EXEC_INFO", EXEC_INFO);
    let output = command.output().expect("strace is missing: apt-get install strace");
    assert_eq!(CommandOutput::from_output(&output).token(), CANARY);
    let trace = fs::read_to_string(&trace).unwrap();
    // System calls of the loader and of Rust's runtime come before main.
    let (_, after_start) = trace.split_once("SIGBUS").expect("the start of a Rust program");
    let calls = |name: &str| -> Vec<&str> {
        after_start.lines().filter(|line| line.contains(&format!(" {name}("))).collect()
    };
    let opens = [calls("open"), calls("openat")].concat();
    assert_eq!(opens.len(), 2, "{opens:#?}");
    assert!(opens.iter().any(|line| line.contains("/tokens/")), "{opens:#?}");
    assert!(opens.iter().any(|line| line.contains("/proc/")), "{opens:#?}");
    for none in ["socket", "clone", "clone3", "epoll_create1", "flock", "fsync", "rename"] {
        assert_eq!(calls(none), Vec::<&str>::new());
    }
}

#[test]
fn the_api_version_of_kubectl_is_echoed_and_the_rest_ignored() {
    let home = Home::new(&unused_url());
    home.forge_token(CANARY, 1, 3600);
    let large = "A".repeat(100 * 1024);
    for (version, spec) in [
        ("v1", json!({"interactive": true})),
        ("v1beta1", json!({"interactive": false, "unknown": [1]})),
        (
            "v1",
            json!({"cluster": {"certificate-authority-data": large, "config": {"any": [1, {}]}}}),
        ),
    ] {
        let version = format!("client.authentication.k8s.io/{version}");
        let info = json!({"kind": "ExecCredential", "apiVersion": version, "spec": spec});
        let output = run(home.get_token().env("KUBERNETES_EXEC_INFO", format!("{info}\n")));
        assert_eq!(output.document()["apiVersion"], version);
    }
    assert_eq!(run(&mut home.get_token()).token(), CANARY);
    for odd in ["nonsense", "{}", r#"{"apiVersion":"client.authentication.k8s.io/v1alpha1"}"#] {
        let output = run(home.get_token().env("KUBERNETES_EXEC_INFO", odd));
        assert!(output.failed(1).contains("KUBERNETES_EXEC_INFO"));
    }
}

#[test]
fn the_cache_key_is_as_documented() {
    assert_eq!(
        key(&["https://broker.example.com", "internal-cluster", WORKSPACE]),
        "4f5680bc9990d4ffbcf03d58235fc92d0fbc21345c4620442051d51e371d03d9"
    );
    // Spelling and order of the flags do not matter.
    let home = Home::new("https://broker.example.com");
    home.forge_token(CANARY, 1, 3600);
    for args in [
        [
            "--broker=HTTPS://Broker.example.com:443/",
            "--cluster=internal-cluster",
            &format!("--workspace={WORKSPACE}"),
        ],
        [
            &format!("--workspace={}", WORKSPACE.to_uppercase()),
            "--broker=https://broker.example.com",
            "--cluster=internal-cluster",
        ],
    ] {
        let output = run(home.command(&["get-token"]).args(args));
        assert_eq!(output.token(), CANARY, "{args:?}");
    }
}

#[test]
fn a_miss_sends_one_request_and_stores_the_token() {
    let broker = issuing_broker();
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    let before = now();
    let output = run(&mut home.get_token());
    assert_eq!((output.token(), output.stderr.as_str()), (format!("new-{CANARY}-0"), ""));
    // The expiry is by this machine's clock minus a minute, whatever the broker's clock says.
    assert!(
        (before + 7140..=now() + 7140).contains(&output.stamp()),
        "{}",
        output.stamp() - before
    );
    assert_eq!(run(&mut home.get_token()).token(), output.token());
    let requests = broker.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].path, format!("/api/v1/workspaces/{WORKSPACE}/credentials"));
    assert_eq!(requests[0].bearer, format!("access-{CANARY}-1"));
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(&home.token_path()), 0o600);
    assert_eq!(mode(home.token_path().parent().unwrap()), 0o700);
    assert!(run(home.get_token().arg("--force")).token().ends_with("-1"));
}

#[test]
fn expiring_tokens_and_tokens_from_the_future_are_not_served() {
    let broker = issuing_broker();
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    // Expired, about to expire, in the last ten minutes, and requested in the future.
    for (age, left) in [(7201, -1), (7140, 59), (6700, 500), (-3600, 7200)] {
        home.forge_token("old", age, left);
        let output = run(&mut home.get_token());
        assert!(output.token().starts_with("new"), "{age} {left}");
    }
    // A token with a short lifetime is not renewed on every call.
    home.forge_token("short", 10, 290);
    assert_eq!(run(&mut home.get_token()).token(), "short");
}

#[test]
fn damaged_and_foreign_files_are_replaced_from_the_session() {
    let broker = issuing_broker();
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    home.forge_token(CANARY, 1, 3600);
    let whole = fs::read_to_string(home.token_path()).unwrap();
    let aside = home.token_path().with_extension("corrupt");
    for damaged in [&whole[..whole.len() / 4], "", "null\n", "{\"version\":1}\n"] {
        fs::write(home.token_path(), damaged).unwrap();
        let output = run(&mut home.get_token());
        assert!(output.token().starts_with("new"), "{damaged}");
        assert!(output.stderr.contains("renamed to") && aside.exists(), "{output:?}");
        fs::remove_file(&aside).unwrap();
    }
    // Only the table of marks may be missing.
    fs::write(home.token_path(), whole.lines().next().unwrap()).unwrap();
    assert_eq!(run(home.get_token().env("KUBERNETES_EXEC_INFO", EXEC_INFO)).token(), CANARY);
    // The file of a later version is not damaged.
    fs::write(home.token_path(), whole.replace("\"version\":1", "\"version\":2")).unwrap();
    let output = run(&mut home.get_token());
    assert!(output.token().starts_with("new") && output.stderr.is_empty() && !aside.exists());
    // A symbolic link is not followed, because it could point anywhere.
    fs::rename(home.token_path(), home.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(home.path("elsewhere"), home.token_path()).unwrap();
    let output = run(&mut home.get_token());
    assert!(output.stderr.contains("symbolic link"), "{output:?}");
    assert!(fs::symlink_metadata(home.token_path()).unwrap().is_file());
}

#[test]
fn a_readable_mode_is_repaired_with_a_warning() {
    let home = Home::new(&unused_url());
    home.forge_token(CANARY, 1, 3600);
    fs::set_permissions(home.token_path(), fs::Permissions::from_mode(0o644)).unwrap();
    let output = run(&mut home.get_token());
    assert_eq!(output.token(), CANARY);
    assert!(output.stderr.contains("could be read by others (mode 0644)"), "{output:?}");
    assert_eq!(fs::metadata(home.token_path()).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(run(&mut home.get_token()).stderr, "");
}

#[test]
fn twenty_concurrent_calls_send_one_request() {
    let broker = StubServer::start(|_, number| {
        // Long enough for all other processes to reach the lock.
        pause(Duration::from_millis(300));
        credential(&format!("new-{CANARY}-{number}"), 7200)
    });
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    let children: Vec<_> = (0..20).map(|_| home.get_token().spawn().unwrap()).collect();
    for child in children {
        let output = CommandOutput::from_output(&child.wait_with_output().unwrap());
        assert_eq!(output.token(), format!("new-{CANARY}-0"));
    }
    assert_eq!(broker.requests().len(), 1);
}

/// Eight tokens and one session: the refresh token is used once.
#[test]
fn the_refresh_token_is_used_by_one_process() {
    let broker = StubServer::start(|request, number| {
        pause(Duration::from_millis(200));
        if request.path == "/oauth2/token" {
            return tokens(2);
        }
        let workspace = request.path.split('/').nth(4).unwrap();
        json_response(
            200,
            &json!({
                "token": format!("new-{number}"), "expiration_timestamp": "2001-01-01T00:00:00Z",
                "expires_in": 7200, "credential_id": "j", "workspace_id": workspace,
            }),
        )
    });
    let home = Home::new(&broker.url);
    home.forge_session(1, 10);
    let workspaces: Vec<String> = (0..8).map(|n| format!("{n}{}", &WORKSPACE[1..])).collect();
    let children: Vec<_> =
        workspaces.iter().map(|id| home.get_token_of(id).spawn().unwrap()).collect();
    for child in children {
        assert_eq!(CommandOutput::from_output(&child.wait_with_output().unwrap()).code, 0);
    }
    assert_eq!(broker.request_count("/oauth2/token"), 1);
    let all = broker.requests();
    let refresh = all.iter().find(|request| request.path == "/oauth2/token").unwrap();
    assert!(refresh.body.contains(&format!("refresh_token=refresh-{CANARY}-1")), "{refresh:?}");
    assert!(refresh.body.contains("client_id=kubectl-tenant"), "{refresh:?}");
    let bearers = all.iter().filter(|request| !request.bearer.is_empty());
    assert!(
        bearers.clone().count() == 8
            && bearers.clone().all(|request| request.bearer.ends_with("-2"))
    );
    let stored = fs::read_to_string(home.session_path()).unwrap();
    assert!(stored.contains(&format!("refresh-{CANARY}-2")));
    assert_eq!(fs::metadata(home.session_path()).unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn a_killed_lock_holder_does_not_block_others() {
    // The first request gets no response.
    let broker =
        StubServer::start(
            |_, number| if number == 0 { StubResponse::Silent } else { credential("new", 7200) },
        );
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    let mut holder = home.get_token().spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while broker.requests().is_empty() {
        assert!(Instant::now() < deadline, "the first process sends no request");
        pause(Duration::from_millis(5));
    }
    let waiter = home.get_token().spawn().unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
    // A process whose wait for the lock timed out would fail.
    assert_eq!(CommandOutput::from_output(&waiter.wait_with_output().unwrap()).token(), "new");
}

#[test]
fn waiting_for_another_process_times_out() {
    let (patient, hopeless) = (Home::new(&unused_url()), Home::new(&unused_url()));
    let locks = [&patient, &hopeless].map(|home| {
        home.forge_session(1, 600);
        fs::create_dir_all(home.token_lock().parent().unwrap()).unwrap();
        let lock = fs::File::create(home.token_lock()).unwrap();
        fs::write(home.token_lock(), "4711").unwrap();
        lock.lock().unwrap();
        lock
    });
    patient.forge_token(CANARY, 7000, 200);
    let began = Instant::now();
    let patient_child = patient.get_token().spawn().unwrap();
    let hopeless_child = hopeless.get_token().spawn().unwrap();
    let output = CommandOutput::from_output(&patient_child.wait_with_output().unwrap());
    assert_eq!((output.token().as_str(), output.stderr.as_str()), (CANARY, ""));
    let output = CommandOutput::from_output(&hopeless_child.wait_with_output().unwrap());
    let stderr = output.failed(1);
    assert!(stderr.contains(hopeless.token_lock().to_str().unwrap()), "{stderr}");
    assert!(stderr.contains("process 4711"), "{stderr}");
    assert!(began.elapsed() >= Duration::from_secs(14), "{:?}", began.elapsed());
    drop(locks);
}

#[test]
fn an_unreachable_broker_does_not_lead_to_a_sign_in() {
    let home = Home::new(&unused_url());
    home.forge_session(1, 600);
    let output = run(&mut home.get_token());
    assert!(output.failed(4).contains("cannot be reached"), "{output:?}");
    // A token that has not expired is served without a message.
    home.forge_token(CANARY, 7000, 200);
    let output = run(&mut home.get_token());
    assert_eq!((output.token().as_str(), output.stderr.as_str()), (CANARY, ""));
    assert!(home.session_path().exists());
    // `status` shows the reason.
    let output = run(&mut home.command(&["status", "-o", "json"]));
    let error = &output.document()["profiles"][0]["last_error"];
    assert_eq!(error["exit_code"], 4);
    assert!(error["message"].as_str().unwrap().contains("cannot be reached"));
}

#[test]
fn a_broker_that_never_responds_times_out() {
    let broker = StubServer::start(|_, _| StubResponse::Silent);
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    let output = run(&mut home.get_token());
    assert!(output.failed(4).contains("time limit"), "{output:?}");
    // The negative cache skips the broker while the old token is good.
    home.forge_token(CANARY, 7000, 200);
    let requests = broker.requests().len();
    assert_eq!(run(&mut home.get_token()).token(), CANARY);
    assert_eq!(broker.requests().len(), requests);
}

/// The timeout covers all requests together: each of these is slow, but within its own timeout.
#[test]
fn several_slow_responses_time_out() {
    let broker = StubServer::start(|request, _| {
        pause(Duration::from_secs(9));
        match request.path.as_str() {
            "/oauth2/token" => tokens(2),
            _ => credential(CANARY, 7200),
        }
    });
    let home = Home::new(&broker.url);
    home.forge_session(1, -1);
    assert!(run(&mut home.get_token()).failed(4).contains("time limit"));
    assert_eq!(broker.requests().len(), 2);
}

/// A response of a broker or of a proxy in its place, and how the plugin handles it.
struct Case {
    name: &'static str,
    /// Response of the API.
    api: StubResponse,
    /// Response of the token endpoint.
    token: StubResponse,
    code: i32,
    says: &'static str,
    /// Whether an old token that has not expired is served instead.
    spare: bool,
}

fn page(status: u16) -> StubResponse {
    StubResponse::Http(status, "text/html", "<h1>Welcome to the café</h1>".to_owned())
}

/// Responses of the API; the token endpoint is not called.
fn api_cases() -> Vec<Case> {
    let case = |name, api, code, says, spare| Case {
        name,
        api,
        token: StubResponse::Silent,
        code,
        says,
        spare,
    };
    vec![
        case("503", problem(503, "cluster_unavailable"), 4, "unavailable. (request req-1)", true),
        case("500", problem(500, "internal"), 4, "cannot answer now", true),
        case("502", page(502), 4, "answered 502", true),
        case("429", problem(429, "rate_limited"), 4, "cannot answer now", true),
        case("portal", page(200), 4, "cannot be read", true),
        case("proxy", page(401), 4, "not as a tenant broker does", true),
        case("suspended", problem(409, "workspace_suspended"), 5, "suspended", false),
        case("forbidden", problem(403, "forbidden"), 5, "forbidden", false),
        case("gone", problem(404, "not_found"), 5, "not found", false),
        case(
            "mix-up",
            credential_of("00000000-0000-0000-0000-000000000000"),
            5,
            "instead of",
            false,
        ),
    ]
}

/// Responses of the token endpoint, after the API rejected the access token.
fn token_cases() -> Vec<Case> {
    let case = |name, token, code, says, spare| Case {
        name,
        api: problem(401, "unauthenticated"),
        token,
        code,
        says,
        spare,
    };
    let refused = |error: &str| json_response(400, &json!({"error": error}));
    vec![
        case("renewed in vain", tokens(2), 3, "kubectl tenant login", true),
        case("session ended", refused("invalid_grant"), 3, "kubectl tenant login", true),
        case("503", problem(503, "storage_unavailable"), 4, "cannot answer now", true),
        case("portal", page(200), 4, "cannot be read", true),
        case("refused", refused("invalid_client"), 5, "invalid_client", false),
    ]
}

#[test]
fn every_response_is_classified() {
    for Case { name, api, token, code, says, spare } in api_cases().into_iter().chain(token_cases())
    {
        let broker = StubServer::start(move |request, _| {
            if request.path == "/oauth2/token" { token.clone() } else { api.clone() }
        });
        let home = Home::new(&broker.url);
        home.forge_session(1, 600);
        let output = run(&mut home.get_token());
        assert_eq!((output.code, output.stdout.as_str()), (code, ""), "{name}: {output:?}");
        assert!(output.stderr.contains(says), "{name}: {output:?}");
        home.forge_session(1, 600);
        home.forge_token(CANARY, 7000, 200);
        let output = run(&mut home.get_token());
        if spare {
            assert_eq!((output.token().as_str(), output.stderr.as_str()), (CANARY, ""), "{name}");
        } else {
            output.failed(code);
        }
    }
}

fn credential_of(workspace: &str) -> StubResponse {
    json_response(
        200,
        &json!({
            "token": CANARY, "expiration_timestamp": "2001-01-01T00:00:00Z", "expires_in": 7200,
            "credential_id": "j", "workspace_id": workspace,
        }),
    )
}

/// Another process used the refresh token first, where locks do not work.
#[test]
fn after_an_invalid_grant_the_session_of_another_process_is_used() {
    let home = Arc::new(std::sync::OnceLock::<Home>::new());
    let seen = home.clone();
    let broker = StubServer::start(move |request: &RecordedRequest, _| {
        if request.path == "/oauth2/token" {
            seen.get().unwrap().forge_session(2, 600);
            return json_response(400, &json!({"error": "invalid_grant"}));
        }
        credential("new", 7200)
    });
    let home = home.get_or_init(|| Home::new(&broker.url));
    home.forge_session(1, 10);
    assert_eq!(run(&mut home.get_token()).token(), "new");
    assert_eq!(broker.requests().last().unwrap().bearer, format!("access-{CANARY}-2"));
    assert!(home.session_path().exists());
}

#[test]
fn a_second_call_of_the_same_parent_means_a_rejected_token() {
    let broker = issuing_broker();
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    home.forge_token("old", 100, 3600);
    let kubectl = || run(home.get_token().env("KUBERNETES_EXEC_INFO", EXEC_INFO)).token();
    // Another parent: a shell that lives only for this call. It comes first, because two parents
    // may share a slot of the mark table, and the later one overwrites it.
    let plain = home.get_token();
    let mut line = format!("{}", plain.get_program().display());
    line.extend(plain.get_args().map(|word| format!(" {}", word.display())));
    let mut shell = std::process::Command::new("sh");
    shell.arg("-c").arg(format!("{line}; true")).env_clear().env("HOME", home.path(""));
    shell.env("KUBERNETES_EXEC_INFO", EXEC_INFO).stdin(Stdio::null());
    assert_eq!(run(&mut shell).token(), "old");
    assert_eq!(kubectl(), "old");
    // Without KUBERNETES_EXEC_INFO a person calls, who may ask as often as they like.
    assert_eq!(run(&mut home.get_token()).token(), "old");
    assert_eq!(broker.requests().len(), 0);
    // The same parent calls again.
    let new = kubectl();
    assert_eq!(new, format!("new-{CANARY}-0"));
    // The new token is not replaced again at once.
    assert_eq!((kubectl(), kubectl()), (new.clone(), new));
    assert_eq!(broker.requests().len(), 1);
}

#[test]
fn a_rejected_token_is_served_while_there_is_no_better_one() {
    let home = Home::new(&unused_url());
    home.forge_session(1, 600);
    home.forge_token(CANARY, 100, 3600);
    for _ in 0..2 {
        let output = run(home.get_token().env("KUBERNETES_EXEC_INFO", EXEC_INFO));
        assert_eq!((output.token().as_str(), output.stderr.as_str()), (CANARY, ""));
    }
}

#[test]
fn one_kubectl_prints_the_hint_once_and_waits_once() {
    let broker = StubServer::start(|_, _| problem(503, "cluster_unavailable"));
    let home = Home::new(&broker.url);
    let kubectl = || run(home.get_token().env("KUBERNETES_EXEC_INFO", EXEC_INFO));
    // There is no session.
    let outputs: Vec<CommandOutput> = (0..5).map(|_| kubectl()).collect();
    for output in &outputs {
        assert!(output.failed(3).contains("run: kubectl tenant login"), "{output:?}");
    }
    let hints = |output: &[CommandOutput]| {
        output.iter().filter(|output| output.stderr.contains("hint:")).count()
    };
    assert_eq!(hints(&outputs), 1);
    assert!(outputs[1..].iter().all(|output| output.stderr.lines().count() == 1));
    // The broker is unavailable. The negative cache is cleared, because the parent is the same.
    home.forge_session(1, 600);
    fs::remove_dir_all(home.path(".local/state/kubectl-tenant/failures")).unwrap();
    let outputs: Vec<CommandOutput> = (0..5).map(|_| kubectl()).collect();
    assert!(outputs.iter().all(|output| output.code == 4), "{outputs:?}");
    assert_eq!((hints(&outputs), broker.requests().len()), (1, 1));
    // A person gets the hint every time.
    assert!(run(&mut home.get_token()).stderr.contains("hint:"));
}

/// The first call sees why the session ended; later ones and other commands repeat it.
#[test]
fn the_reason_for_the_end_of_a_session_is_kept() {
    let broker = StubServer::start(|request, _| match request.path.as_str() {
        "/oauth2/token" => json_response(
            400,
            &json!({"error": "invalid_grant", "error_description": "the session was revoked"}),
        ),
        _ => problem(401, "unauthenticated"),
    });
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    for _ in 0..3 {
        let output = run(&mut home.get_token());
        assert!(output.failed(3).contains("the session was revoked"), "{output:?}");
    }
    assert!(!home.session_path().exists());
    let output = run(&mut home.command(&["whoami", "--broker", &home.broker]));
    assert!(output.failed(3).contains("the session was revoked"), "{output:?}");
    let status = run(&mut home.command(&["status"])).stdout;
    assert!(status.contains("the session was revoked"), "{status}");
    // After a sign-out nothing is known, not even that somebody was signed in before.
    assert_eq!(run(&mut home.command(&["logout", "--broker", &home.broker])).code, 0);
    let output = run(&mut home.get_token());
    let hint = "hint: there is no session on this machine\n";
    assert!(output.failed(3).ends_with(hint), "{output:?}");
}

/// A broker that ended the session of account 1, and at which account 2 signs in.
fn broker_with_an_ended_session() -> StubServer {
    StubServer::start(|request, _| match request.path.as_str() {
        "/oauth2/token" if request.body.contains("device_code") => {
            stub_broker::signed_in(request, Account(2))
        }
        "/oauth2/token" => stub_broker::oauth_error("invalid_grant"),
        _ if request.bearer == Account(1).access() => problem(401, "unauthenticated"),
        _ => stub_broker::respond(request),
    })
}

/// Runs `get-token` for a kubectl at a terminal, where it may start a sign-in: with the device
/// grant, because the terminal is an SSH session.
fn get_token_with_sign_in(home: &Home) -> CommandOutput {
    let mut command = home.get_token();
    command.env_remove("BROWSER").env("SSH_CONNECTION", "1 2 3 4").env("TENANT_AUTO_LOGIN", "1");
    run(command.env("KUBERNETES_EXEC_INFO", EXEC_INFO.replace("false", "true")))
}

/// The contexts of the account must not act as somebody else without a word.
#[test]
fn an_automatic_sign_in_of_another_person_is_refused_after_the_end_of_a_session() {
    let broker = broker_with_an_ended_session();
    let home = Home::new(&broker.url);
    let ended = home.session_path().with_extension("ended");
    home.forge_session(1, 600);
    let output = get_token_with_sign_in(&home);
    assert_eq!((output.code, output.stdout.as_str()), (3, ""), "{output:?}");
    let error = format!(
        "error: you signed in as another person, but {} is the account of dev@example.com, whose \
         session ended",
        broker.url
    );
    assert!(output.stderr.contains(&error), "{output:?}");
    let command = format!("kubectl tenant login --broker {}", broker.url);
    assert!(output.stderr.contains(&format!("{command};")), "{output:?}");
    assert!(output.stderr.contains(&format!("{command} --profile NAME")), "{output:?}");
    // The session of the other person is stored nowhere and was ended.
    assert!(!home.session_path().exists());
    assert_eq!(broker.request_count("/oauth2/revoke"), 1);
    let text = fs::read_to_string(&ended).unwrap();
    assert!(text.contains("dev@example.com") && !text.contains(CANARY), "{text}");
    assert_eq!(fs::metadata(&ended).unwrap().mode() & 0o7777, 0o600);
    // With `login` a person decides that the account is that of somebody else.
    let output = home.run(&["login", "--device", "--broker", &broker.url]);
    assert_eq!(output.code, 0, "{output:?}");
    let warning = format!(
        "warning: {} has the session of another person now. Its last session was that of \
         dev@example.com",
        broker.url
    );
    assert!(output.stderr.contains(&warning), "{output:?}");
    assert!(home.session_path().exists() && !ended.exists());
}

#[test]
fn after_a_sign_out_an_automatic_sign_in_may_be_of_anybody() {
    let broker = broker_with_an_ended_session();
    let home = Home::new(&broker.url);
    let ended = home.session_path().with_extension("ended");
    home.forge_session(1, 600);
    run(&mut home.get_token()).failed(3);
    assert!(ended.exists());
    assert_eq!(home.run(&["logout", "--broker", &broker.url]).code, 0);
    assert!(!ended.exists());
    // The sign-in succeeds. The workspace in the arguments is not that of the account.
    let output = get_token_with_sign_in(&home);
    assert!(output.stderr.contains("instead of"), "{output:?}");
    let session = fs::read_to_string(home.session_path()).unwrap();
    assert!(session.contains(&Account(2).user()), "{session}");
}

#[test]
fn a_damaged_session_is_quarantined_with_a_warning() {
    let home = Home::new(&unused_url());
    home.forge_session(1, 600);
    fs::write(home.session_path(), "{").unwrap();
    let output = run(&mut home.get_token());
    assert_eq!((output.code, output.stdout.as_str()), (3, ""), "{output:?}");
    assert!(output.stderr.contains("renamed to") && output.stderr.contains("kubectl tenant login"));
    // A cached token does not depend on the session.
    home.forge_token(CANARY, 1, 3600);
    assert_eq!(run(&mut home.get_token()).token(), CANARY);
}

/// Delays a stub response or the next attempt of a test.
fn pause(time: Duration) {
    std::thread::park_timeout(time);
}
