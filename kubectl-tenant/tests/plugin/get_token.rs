//! `get-token`: hit, miss, and everything that can be wrong.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    answers::{Answer, Answers, Asked, credential, json_answer, problem, tokens},
    support::{CANARY, EXEC_INFO, Home, Said, WORKSPACE, key, now, run},
};
use serde_json::json;

/// An address where nobody listens.
fn nobody() -> String {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("http://127.0.0.1:{port}")
}

/// A broker that gives token after token.
fn generous() -> Answers {
    Answers::start(|_, number| credential(&format!("new-{CANARY}-{number}"), 7200))
}

#[test]
fn a_hit_prints_one_document_and_nothing_else() {
    let home = Home::new(&nobody());
    home.forge_token(CANARY, 100, 3600);
    let said = run(home.get_token().env("KUBERNETES_EXEC_INFO", EXEC_INFO));
    assert_eq!(said.stderr, "");
    assert_eq!(said.token(), CANARY);
    assert_eq!(said.stdout.matches('\n').count(), 1);
    let document = said.document();
    assert_eq!(document["kind"], "ExecCredential");
    assert_eq!(document["apiVersion"], "client.authentication.k8s.io/v1");
    assert!((said.stamp() - (now() + 3540)).abs() <= 2);
    let exact: tenant_shared::ExecCredential = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(serde_json::to_value(&exact).unwrap(), document);
}

/// The way of a hit: two files, one small write, no socket, no thread.
#[test]
#[cfg(target_os = "linux")]
fn a_hit_opens_two_files_and_no_socket() {
    let home = Home::new(&nobody());
    home.forge_token(CANARY, 100, 3600);
    let trace = home.path("trace");
    let plain = home.get_token();
    let mut command = std::process::Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(&trace).arg(plain.get_program()).args(plain.get_args());
    command.env_clear().env("HOME", home.path("")).env("KUBERNETES_EXEC_INFO", EXEC_INFO);
    let output = command.output().expect("strace is missing: apt-get install strace");
    assert_eq!(Said::of(&output).token(), CANARY);
    let trace = fs::read_to_string(&trace).unwrap();
    // What the loader and the language's own start do comes before main.
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
fn what_kubectl_says_is_echoed_and_otherwise_ignored() {
    let home = Home::new(&nobody());
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
        let said = run(home.get_token().env("KUBERNETES_EXEC_INFO", format!("{info}\n")));
        assert_eq!(said.document()["apiVersion"], version);
    }
    assert_eq!(run(&mut home.get_token()).token(), CANARY);
    for odd in ["nonsense", "{}", r#"{"apiVersion":"client.authentication.k8s.io/v1alpha1"}"#] {
        let said = run(home.get_token().env("KUBERNETES_EXEC_INFO", odd));
        assert!(said.failed(1).contains("KUBERNETES_EXEC_INFO"));
    }
}

#[test]
fn the_key_is_what_the_documentation_says() {
    assert_eq!(
        key(&["https://broker.example.com", "internal-cluster", WORKSPACE]),
        "4f5680bc9990d4ffbcf03d58235fc92d0fbc21345c4620442051d51e371d03d9"
    );
    // Spellings and order of the flags do not matter.
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
        let said = run(home.command(&["get-token"]).args(args));
        assert_eq!(said.token(), CANARY, "{args:?}");
    }
}

#[test]
fn a_miss_asks_once_and_stores_what_it_gets() {
    let broker = generous();
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    let before = now();
    let said = run(&mut home.get_token());
    assert_eq!((said.token(), said.stderr.as_str()), (format!("new-{CANARY}-0"), ""));
    // By this machine's clock and a minute short, whatever the broker's clock says.
    assert!((before + 7140..=now() + 7140).contains(&said.stamp()), "{}", said.stamp() - before);
    assert_eq!(run(&mut home.get_token()).token(), said.token());
    let asked = broker.all();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].path, format!("/api/v1/workspaces/{WORKSPACE}/credentials"));
    assert_eq!(asked[0].bearer, format!("access-{CANARY}-1"));
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(&home.token_path()), 0o600);
    assert_eq!(mode(home.token_path().parent().unwrap()), 0o700);
    assert!(run(home.get_token().arg("--force")).token().ends_with("-1"));
}

#[test]
fn tokens_that_end_soon_or_come_from_the_future_are_not_served() {
    let broker = generous();
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    // Expired, about to, in the last ten minutes, and asked for in an hour.
    for (age, left) in [(7201, -1), (7140, 59), (6700, 500), (-3600, 7200)] {
        home.forge_token("old", age, left);
        let said = run(&mut home.get_token());
        assert!(said.token().starts_with("new"), "{age} {left}");
    }
    // A short life is not a reason to renew at every call.
    home.forge_token("short", 10, 290);
    assert_eq!(run(&mut home.get_token()).token(), "short");
}

#[test]
fn damaged_and_foreign_files_are_replaced_from_the_session() {
    let broker = generous();
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    home.forge_token(CANARY, 1, 3600);
    let whole = fs::read_to_string(home.token_path()).unwrap();
    let aside = home.token_path().with_extension("corrupt");
    for damaged in [&whole[..whole.len() / 4], "", "null\n", "{\"version\":1}\n"] {
        fs::write(home.token_path(), damaged).unwrap();
        let said = run(&mut home.get_token());
        assert!(said.token().starts_with("new"), "{damaged}");
        assert!(said.stderr.contains("set aside") && aside.exists(), "{said:?}");
        fs::remove_file(&aside).unwrap();
    }
    // The table of marks alone may be missing.
    fs::write(home.token_path(), whole.lines().next().unwrap()).unwrap();
    assert_eq!(run(home.get_token().env("KUBERNETES_EXEC_INFO", EXEC_INFO)).token(), CANARY);
    // A later version's file is not damaged.
    fs::write(home.token_path(), whole.replace("\"version\":1", "\"version\":2")).unwrap();
    let said = run(&mut home.get_token());
    assert!(said.token().starts_with("new") && said.stderr.is_empty() && !aside.exists());
    // A link may point anywhere.
    fs::rename(home.token_path(), home.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(home.path("elsewhere"), home.token_path()).unwrap();
    let said = run(&mut home.get_token());
    assert!(said.stderr.contains("symbolic link"), "{said:?}");
    assert!(fs::symlink_metadata(home.token_path()).unwrap().is_file());
}

#[test]
fn a_file_that_others_could_read_is_closed_with_a_word() {
    let home = Home::new(&nobody());
    home.forge_token(CANARY, 1, 3600);
    fs::set_permissions(home.token_path(), fs::Permissions::from_mode(0o644)).unwrap();
    let said = run(&mut home.get_token());
    assert_eq!(said.token(), CANARY);
    assert!(said.stderr.contains("could be read by others (mode 0644)"), "{said:?}");
    assert_eq!(fs::metadata(home.token_path()).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(run(&mut home.get_token()).stderr, "");
}

#[test]
fn twenty_at_once_ask_once() {
    let broker = Answers::start(|_, number| {
        // Long enough for all the others to arrive at the lock.
        wait(Duration::from_millis(300));
        credential(&format!("new-{CANARY}-{number}"), 7200)
    });
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    let children: Vec<_> = (0..20).map(|_| home.get_token().spawn().unwrap()).collect();
    for child in children {
        let said = Said::of(&child.wait_with_output().unwrap());
        assert_eq!(said.token(), format!("new-{CANARY}-0"));
    }
    assert_eq!(broker.all().len(), 1);
}

/// Different tokens, one session: the refresh token is used once.
#[test]
fn the_refresh_token_is_used_by_one_process() {
    let broker = Answers::start(|asked, number| {
        wait(Duration::from_millis(200));
        if asked.path == "/oauth2/token" {
            return tokens(2);
        }
        let workspace = asked.path.split('/').nth(4).unwrap();
        json_answer(
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
        assert_eq!(Said::of(&child.wait_with_output().unwrap()).code, 0);
    }
    assert_eq!(broker.asked("/oauth2/token"), 1);
    let all = broker.all();
    let refresh = all.iter().find(|asked| asked.path == "/oauth2/token").unwrap();
    assert!(refresh.body.contains(&format!("refresh_token=refresh-{CANARY}-1")), "{refresh:?}");
    assert!(refresh.body.contains("client_id=kubectl-tenant"), "{refresh:?}");
    let bearers = all.iter().filter(|asked| !asked.bearer.is_empty());
    assert!(
        bearers.clone().count() == 8 && bearers.clone().all(|asked| asked.bearer.ends_with("-2"))
    );
    let stored = fs::read_to_string(home.session_path()).unwrap();
    assert!(stored.contains(&format!("refresh-{CANARY}-2")));
    assert_eq!(fs::metadata(home.session_path()).unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn who_dies_with_the_lock_is_in_nobodys_way() {
    // The first request is never answered.
    let broker =
        Answers::start(
            |_, number| if number == 0 { Answer::Silence } else { credential("new", 7200) },
        );
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    let mut holder = home.get_token().spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while broker.all().is_empty() {
        assert!(Instant::now() < deadline, "the first process does not ask");
        wait(Duration::from_millis(5));
    }
    let waiter = home.get_token().spawn().unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
    let killed = Instant::now();
    assert_eq!(Said::of(&waiter.wait_with_output().unwrap()).token(), "new");
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
}

#[test]
fn waiting_for_another_process_has_an_end() {
    let (patient, hopeless) = (Home::new(&nobody()), Home::new(&nobody()));
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
    let said = Said::of(&patient_child.wait_with_output().unwrap());
    assert_eq!((said.token().as_str(), said.stderr.as_str()), (CANARY, ""));
    let said = Said::of(&hopeless_child.wait_with_output().unwrap());
    let stderr = said.failed(1);
    assert!(stderr.contains(hopeless.token_lock().to_str().unwrap()), "{stderr}");
    assert!(stderr.contains("process 4711"), "{stderr}");
    assert!((14..25).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    drop(locks);
}

#[test]
fn a_broker_that_is_not_there_is_no_reason_to_sign_in() {
    let home = Home::new(&nobody());
    home.forge_session(1, 600);
    let said = run(&mut home.get_token());
    assert!(said.failed(4).contains("cannot be reached"), "{said:?}");
    // What is still good is good enough, and nobody is bothered.
    home.forge_token(CANARY, 7000, 200);
    let said = run(&mut home.get_token());
    assert_eq!((said.token().as_str(), said.stderr.as_str()), (CANARY, ""));
    assert!(home.session_path().exists());
    // The reason can be looked up.
    let said = run(&mut home.command(&["status", "-o", "json"]));
    let error = &said.document()["profiles"][0]["last_error"];
    assert_eq!(error["exit_code"], 4);
    assert!(error["message"].as_str().unwrap().contains("cannot be reached"));
}

#[test]
fn a_broker_that_never_answers_is_given_up() {
    let broker = Answers::start(|_, _| Answer::Silence);
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    let began = Instant::now();
    let said = run(&mut home.get_token());
    assert!(said.failed(4).contains("time limit"), "{said:?}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    // Nobody waits for it again while the old token is good.
    home.forge_token(CANARY, 7000, 200);
    let began = Instant::now();
    assert_eq!(run(&mut home.get_token()).token(), CANARY);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

/// However many requests it takes: each of these is slow and none of them too slow by itself.
#[test]
fn a_broker_that_is_slow_again_and_again_is_given_up() {
    let broker = Answers::start(|asked, _| {
        wait(Duration::from_secs(9));
        match asked.path.as_str() {
            "/oauth2/token" => tokens(2),
            _ => credential(CANARY, 7200),
        }
    });
    let home = Home::new(&broker.url);
    home.forge_session(1, -1);
    assert!(run(&mut home.get_token()).failed(4).contains("time limit"));
    assert_eq!(broker.all().len(), 2);
}

/// What a broker, or a thing in its place, answers, and what the plugin makes of it.
struct Case {
    name: &'static str,
    /// The answer of the API.
    api: Answer,
    /// The answer of the token endpoint.
    token: Answer,
    code: i32,
    says: &'static str,
    /// Whether an old token that is still good is served instead.
    spare: bool,
}

fn page(status: u16) -> Answer {
    Answer::Given(status, "text/html", "<h1>Welcome to the café</h1>".to_owned())
}

/// Answers of the API, with a token endpoint that is not asked.
fn api_cases() -> Vec<Case> {
    let case = |name, api, code, says, spare| Case {
        name,
        api,
        token: Answer::Silence,
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

/// Answers of the token endpoint, after the API did not take the access token.
fn token_cases() -> Vec<Case> {
    let case = |name, token, code, says, spare| Case {
        name,
        api: problem(401, "unauthenticated"),
        token,
        code,
        says,
        spare,
    };
    let refused = |error: &str| json_answer(400, &json!({"error": error}));
    vec![
        case("renewed in vain", tokens(2), 3, "kubectl tenant login", true),
        case("session ended", refused("invalid_grant"), 3, "kubectl tenant login", true),
        case("503", problem(503, "storage_unavailable"), 4, "cannot answer now", true),
        case("portal", page(200), 4, "cannot be read", true),
        case("refused", refused("invalid_client"), 5, "invalid_client", false),
    ]
}

#[test]
fn every_answer_has_its_meaning() {
    for Case { name, api, token, code, says, spare } in api_cases().into_iter().chain(token_cases())
    {
        let broker =
            Answers::start(
                move |asked, _| {
                    if asked.path == "/oauth2/token" { token.clone() } else { api.clone() }
                },
            );
        let home = Home::new(&broker.url);
        home.forge_session(1, 600);
        let said = run(&mut home.get_token());
        assert_eq!((said.code, said.stdout.as_str()), (code, ""), "{name}: {said:?}");
        assert!(said.stderr.contains(says), "{name}: {said:?}");
        home.forge_session(1, 600);
        home.forge_token(CANARY, 7000, 200);
        let said = run(&mut home.get_token());
        if spare {
            assert_eq!((said.token().as_str(), said.stderr.as_str()), (CANARY, ""), "{name}");
        } else {
            said.failed(code);
        }
    }
}

fn credential_of(workspace: &str) -> Answer {
    json_answer(
        200,
        &json!({
            "token": CANARY, "expiration_timestamp": "2001-01-01T00:00:00Z", "expires_in": 7200,
            "credential_id": "j", "workspace_id": workspace,
        }),
    )
}

/// Another process used the refresh token first, where locks do not work.
#[test]
fn an_ended_grant_is_looked_at_again_before_anybody_has_to_sign_in() {
    let home = Arc::new(std::sync::OnceLock::<Home>::new());
    let seen = home.clone();
    let broker = Answers::start(move |asked: &Asked, _| {
        if asked.path == "/oauth2/token" {
            seen.get().unwrap().forge_session(2, 600);
            return json_answer(400, &json!({"error": "invalid_grant"}));
        }
        credential("new", 7200)
    });
    let home = home.get_or_init(|| Home::new(&broker.url));
    home.forge_session(1, 10);
    assert_eq!(run(&mut home.get_token()).token(), "new");
    assert_eq!(broker.all().last().unwrap().bearer, format!("access-{CANARY}-2"));
    assert!(home.session_path().exists());
}

#[test]
fn the_same_parent_asking_again_means_that_the_token_was_refused() {
    let broker = generous();
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    home.forge_token("old", 100, 3600);
    let kubectl = || run(home.get_token().env("KUBERNETES_EXEC_INFO", EXEC_INFO)).token();
    // Another parent: a shell that lives only for this call. It comes first: two parents may share a
    // place where the cache remembers them, and the later one has it.
    let plain = home.get_token();
    let mut line = format!("{}", plain.get_program().display());
    line.extend(plain.get_args().map(|word| format!(" {}", word.display())));
    let mut shell = std::process::Command::new("sh");
    shell.arg("-c").arg(format!("{line}; true")).env_clear().env("HOME", home.path(""));
    shell.env("KUBERNETES_EXEC_INFO", EXEC_INFO).stdin(Stdio::null());
    assert_eq!(run(&mut shell).token(), "old");
    assert_eq!(kubectl(), "old");
    // A person, who may ask as often as they like.
    assert_eq!(run(&mut home.get_token()).token(), "old");
    assert_eq!(broker.all().len(), 0);
    // The same parent again.
    let new = kubectl();
    assert_eq!(new, format!("new-{CANARY}-0"));
    // But not again and again.
    assert_eq!((kubectl(), kubectl()), (new.clone(), new));
    assert_eq!(broker.all().len(), 1);
}

#[test]
fn a_token_that_seems_refused_is_served_while_there_is_no_better_one() {
    let home = Home::new(&nobody());
    home.forge_session(1, 600);
    home.forge_token(CANARY, 100, 3600);
    for _ in 0..2 {
        let said = run(home.get_token().env("KUBERNETES_EXEC_INFO", EXEC_INFO));
        assert_eq!((said.token().as_str(), said.stderr.as_str()), (CANARY, ""));
    }
}

#[test]
fn one_kubectl_reads_the_hint_once_and_waits_once() {
    let broker = Answers::start(|_, _| problem(503, "cluster_unavailable"));
    let home = Home::new(&broker.url);
    let kubectl = || run(home.get_token().env("KUBERNETES_EXEC_INFO", EXEC_INFO));
    // Nobody is signed in.
    let said: Vec<Said> = (0..5).map(|_| kubectl()).collect();
    for said in &said {
        assert!(said.failed(3).contains("run: kubectl tenant login"), "{said:?}");
    }
    let hints = |said: &[Said]| said.iter().filter(|said| said.stderr.contains("hint:")).count();
    assert_eq!(hints(&said), 1);
    assert!(said[1..].iter().all(|said| said.stderr.lines().count() == 1));
    // Nobody answers: the same parent would be told the same for a while, so it is another one.
    home.forge_session(1, 600);
    fs::remove_dir_all(home.path(".local/state/kubectl-tenant/failures")).unwrap();
    let said: Vec<Said> = (0..5).map(|_| kubectl()).collect();
    assert!(said.iter().all(|said| said.code == 4), "{said:?}");
    assert_eq!((hints(&said), broker.all().len()), (1, 1));
    // A person gets the whole answer every time.
    assert!(run(&mut home.get_token()).stderr.contains("hint:"));
}

#[test]
fn a_damaged_session_is_set_aside_and_said() {
    let home = Home::new(&nobody());
    home.forge_session(1, 600);
    fs::write(home.session_path(), "{").unwrap();
    let said = run(&mut home.get_token());
    assert_eq!((said.code, said.stdout.as_str()), (3, ""), "{said:?}");
    assert!(said.stderr.contains("set aside") && said.stderr.contains("kubectl tenant login"));
    // The token does not depend on it.
    home.forge_token(CANARY, 1, 3600);
    assert_eq!(run(&mut home.get_token()).token(), CANARY);
}

/// A pause of a canned answer or between two looks.
fn wait(time: Duration) {
    std::thread::park_timeout(time);
}
