//! Tests of completion: values that the broker lists, and the program that kubectl runs.

use std::{
    fs,
    io::ErrorKind,
    os::unix::{
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    stub_broker::{self, Account},
    stub_server::{RecordedRequest, StubResponse, StubServer, json_response},
    support::{CANARY, Home, run},
};

/// Completes these words with a session and the broker in the environment.
fn complete(home: &Home, words: &[&str]) -> String {
    let mut command = home.command(&["__complete"]);
    let output = run(command.args(words).env("TENANT_BROKER_URL", &home.broker));
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{words:?}: {output:?}");
    output.stdout
}

/// A home with a session of account 1 at a broker that responds with `respond`, else as usual.
fn signed_in(
    respond: impl Fn(&RecordedRequest) -> Option<StubResponse> + Send + Sync + 'static,
) -> (Home, StubServer) {
    let broker = StubServer::start(move |request, _| {
        respond(request).unwrap_or_else(|| stub_broker::respond(request))
    });
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    (home, broker)
}

/// Makes account 1 an administrator.
fn administrator(request: &RecordedRequest) -> Option<StubResponse> {
    (request.path == "/api/v1/me").then(|| {
        json_response(
            200,
            &json!({
                "id": Account(1).user(), "email": Account(1).email(), "role": "admin",
                "session_id": "20000000-0000-4000-8000-000000000000",
                "session_expires_at": "2100-01-01T00:00:00Z",
            }),
        )
    })
}

fn namespace(account: u8) -> String {
    format!("tenant-{}", Account(account).user())
}

#[test]
fn users_get_their_own_workspace_and_administrators_addresses_too() {
    let (home, broker) = signed_in(|_| None);
    let own = format!("{}\tprovisioned\n:4\n", namespace(1));
    for words in [&["usage", ""][..], &["audit", "ten"], &["suspend", "--wait", "3", "tenant-"]] {
        assert_eq!(complete(&home, words), own, "{words:?}");
    }
    assert_eq!(complete(&home, &["usage", "x"]), ":4\n");
    // Names of commands come first.
    let listed = complete(&home, &["credentials", ""]);
    assert_eq!(listed, format!("list\nrevoke\nhelp\n{own}"));
    assert!(broker.requests().iter().all(|request| !request.path.contains("all=true")));

    let (home, broker) = signed_in(administrator);
    let (email, namespace) = (Account(1).email(), namespace(1));
    let by_address = format!("{email}\t{namespace}, provisioned\n:4\n");
    assert_eq!(complete(&home, &["suspend", "dev"]), by_address);
    let all = format!("{namespace}\t{email}, provisioned\n{by_address}");
    assert_eq!(complete(&home, &["resume", ""]), all);
    let listed = broker.requests().into_iter().map(|request| request.path);
    let listed: Vec<String> = listed.filter(|path| path.contains("workspaces")).collect();
    assert_eq!(listed, ["/api/v1/workspaces?limit=500&all=true"], "the second one used the cache");
    let revoke = ["credentials", "revoke", "--workspace", "dev"];
    assert_eq!(complete(&home, &revoke), by_address);
}

/// All members share the home of a tenant, which therefore names no membership.
#[test]
fn memberships_are_completed_by_identifier() {
    let (home, _broker) = signed_in(|request| {
        let mut membership = Account(1).as_workspace();
        membership["id"] = "30000000-0000-4000-8000-000000000000".into();
        membership["namespace"] = "tenant-solar".into();
        membership["tenant"] = "solar".into();
        let items = json!({"items": [Account(1).as_workspace(), membership]});
        let is_list = request.path.starts_with("/api/v1/workspaces");
        is_list.then(|| json_response(200, &items)).or_else(|| administrator(request))
    });
    let (email, namespace) = (Account(1).email(), namespace(1));
    assert_eq!(
        complete(&home, &["suspend", ""]),
        format!(
            "{namespace}\t{email}, provisioned\n{email}\t2 workspaces\n\
             30000000-0000-4000-8000-000000000000\tmember of tenant solar, {email}, provisioned\n:4\n"
        )
    );
    // The home of a tenant has no models.
    let namespaces = complete(&home, &["models", "status", "-n", ""]);
    assert_eq!(namespaces, format!("{namespace}\tprovisioned\n:4\n"));
}

#[test]
fn users_sessions_and_credentials_are_completed() {
    let (home, broker) = signed_in(|_| None);
    let user = "dev1@example.com\tuser, active\ndev2@example.com\tuser, suspended\n:4\n";
    for words in [
        &["users", "suspend", ""][..],
        &["users", "resume", "dev"],
        &["users", "rename", ""],
        &["sessions", "--user", ""],
        &["sessions", "revoke", "--user=dev"],
    ] {
        assert_eq!(complete(&home, words), user, "{words:?}");
    }
    let sessions = complete(&home, &["sessions", "revoke", ""]);
    let first = "20000000-0000-4000-8000-000000000000\tkubectl-tenant since 2026-01-01T00:00:00Z, \
                 192.0.2.1, this session\n";
    assert!(sessions.starts_with(first) && sessions.ends_with("192.0.2.1\n:4\n"), "{sessions}");
    // Of another user, who is looked up first.
    let of_other = complete(&home, &["sessions", "revoke", "--user", "dev3@example.com", "2"]);
    assert!(of_other.starts_with("20000000-0000-4000-8000-000000000001\t"), "{of_other}");

    let credentials = complete(&home, &["credentials", "revoke", "jti"]);
    assert_eq!(
        credentials,
        "jti-1\tkubeconfig, dev1@example.com, until 2026-01-01T02:00:00Z\n\
         jti-2\tother, dev1@example.com, until 2026-01-01T02:00:00Z\n:4\n"
    );
    let own = format!("/api/v1/workspaces/{}/credentials", Account(1).workspace());
    assert!(broker.requests().iter().any(|request| request.path.starts_with(&own)));
    let named = ["credentials", "revoke", "--workspace", &namespace(1), "jti-2"];
    assert!(complete(&home, &named).starts_with("jti-2\t"));
    assert_eq!(broker.request_count("/api/v1/workspaces/lookup"), 1);
}

#[test]
fn tenants_and_their_namespaces_are_completed() {
    let (home, broker) = signed_in(|request| {
        let tenant = |name: &str, is_owner: bool| {
            json!({
                "name": name, "api_group": "tenant-broker.io", "state": "Active",
                "is_owner": is_owner, "namespace_count": 1,
                "roles": [{"cluster_role": "view", "given_by": ["owner User dev1@example.com"]}],
            })
        };
        let namespace = |name: &str| {
            let items =
                [json!({"name": name, "status": "active", "created_at": "2026-01-01T00:00:00Z"})];
            Some(json_response(200, &json!({ "items": items })))
        };
        match request.path.as_str() {
            "/api/v1/tenants" => Some(json_response(
                200,
                &json!({"items": [tenant("lunar", false), tenant("solar", true)]}),
            )),
            "/api/v1/tenants/lunar/namespaces" => namespace("lunar-a"),
            "/api/v1/tenants/solar/namespaces" => namespace("solar-a"),
            _ => None,
        }
    });
    let all = "lunar\tActive\nsolar\tActive, owner\n:4\n";
    for words in [
        &["use", ""][..],
        &["tenants", "get", ""],
        &["tenants", "members", ""],
        &["tenants", "edit", ""],
        &["tenants", "delete", ""],
        &["namespaces", "--tenant", ""],
        &["namespaces", "create", "--tenant="],
        &["namespaces", "transfer", "solar-a", "--to", ""],
        &["namespaces", "adopt", "legacy", "--tenant", ""],
    ] {
        assert_eq!(complete(&home, words), all, "{words:?}");
        // The cache is valid for ten seconds, which is not enough for all of them on a busy machine.
        if words == ["tenants", "get", ""] {
            assert_eq!(broker.requests().len(), 1, "the second one used the cache");
        }
    }
    let both = "lunar-a\tlunar, active\nsolar-a\tsolar, active\n:4\n";
    for words in [
        &["namespaces", "delete", ""][..],
        &["namespaces", "transfer", ""],
        &["why", "get", "pods", "-n", ""],
    ] {
        assert_eq!(complete(&home, words), both, "{words:?}");
    }
    let one = "solar-a\tsolar, active\n:4\n";
    for words in [
        &["use", "solar", "--namespace", ""][..],
        &["namespaces", "delete", "--tenant", "solar", ""],
        &["why", "--tenant=solar", "-n", "so"],
    ] {
        assert_eq!(complete(&home, words), one, "{words:?}");
    }
    let none = complete(&home, &["namespaces", "delete", "--tenant", "../me", ""]);
    assert_eq!(none, ":4\n");
    assert!(broker.requests().iter().all(|request| !request.path.contains("..")));
}

#[test]
fn models_and_namespaces_of_the_person_are_completed() {
    let (home, broker) = signed_in(|request| {
        let model = |name: &str| {
            json!({
                "model_name": name, "model_id": name, "serving_runtime": "", "api_protocol": "",
                "version": "", "description": "", "usecase": "", "display_name": name,
                "status": "Running", "endpoints": [],
                "sa_token": {"name": "", "token_name": "", "token": ""},
            })
        };
        request.path.starts_with("/gen-ai/").then(|| {
            json_response(200, &json!({"data": [model("granite"), model("$(x)"), model("qwen")]}))
        })
    });
    let both = "granite\tgranite, Running\nqwen\tqwen, Running\n:4\n";
    for words in [
        &["models", "install", "-n", "team-a", ""][..],
        &["models", "install", "--namespace=team-a", "granite", ""],
    ] {
        assert_eq!(complete(&home, words), both, "{words:?}");
    }
    let asked = "/gen-ai/api/v1/aaa/models?namespace=team-a";
    assert_eq!(broker.request_count(asked), 1, "the second one used the cache");
    let none = complete(&home, &["models", "install", "-n", "../me", ""]);
    assert_eq!(none, ":4\n");
    let namespaces = complete(&home, &["models", "status", "-n", ""]);
    assert!(namespaces.starts_with("tenant-"), "{namespaces}");
}

#[test]
fn the_account_of_the_command_line_is_asked() {
    let (home, broker) = signed_in(|_| None);
    let words = ["--broker", &broker.url, "usage", "t"];
    let mut command = home.command(&["__complete"]);
    let output = run(command.args(words));
    assert_eq!(output.stdout, format!("{}\tprovisioned\n:4\n", namespace(1)));
    // Nobody is signed in at another broker.
    let words = ["__complete", "--broker=https://other.example", "usage", "t"];
    let other = run(&mut home.command(&words));
    assert_eq!(other.stdout, ":4\n");
}

#[test]
fn without_a_usable_session_nobody_is_asked() {
    let (home, broker) = signed_in(|_| None);
    fs::remove_file(home.session_path()).unwrap();
    assert_eq!(complete(&home, &["usage", ""]), ":4\n");
    // A session that needs the keyring is not renewed, because a keyring may ask for a password. The
    // keyring would be reached through this socket.
    let bus = UnixListener::bind(home.path("bus")).unwrap();
    bus.set_nonblocking(true).unwrap();
    let mut session = home.session(1, -1);
    session["storage"] = "keyring".into();
    session.as_object_mut().unwrap().remove("refresh_token");
    fs::write(home.session_path(), session.to_string()).unwrap();
    fs::set_permissions(home.session_path(), fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = home.command(&["__complete", "usage", ""]);
    command.env("TENANT_BROKER_URL", &home.broker);
    command.env("DBUS_SESSION_BUS_ADDRESS", format!("unix:path={}", home.path("bus").display()));
    let output = run(&mut command);
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), (":4\n", ""));
    assert!(home.session_path().exists());
    assert_eq!(bus.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    // A machine has no session to ask with, and would start one for each completion.
    home.forge_session(1, 600);
    let mut command = home.command(&["__complete", "usage", ""]);
    let machine = command.env("TENANT_BROKER_URL", &home.broker).env("TENANT_ID_TOKEN", "a.b.c");
    assert_eq!(run(machine).stdout, ":4\n");
    assert_eq!(broker.requests().len(), 0);
}

#[test]
fn a_session_is_not_renewed() {
    let (home, broker) = signed_in(|_| None);
    home.forge_session(1, -1);
    assert_eq!(complete(&home, &["usage", ""]), ":4\n");
    assert_eq!(broker.requests().len(), 0);
}

#[test]
fn a_broker_that_fails_gives_no_values_and_is_asked_once() {
    for response in [
        StubResponse::Silent,
        StubResponse::Http(500, "text/html", format!("<h1>{CANARY}</h1>")),
        json_response(200, &json!({"items": 1})),
    ] {
        let (home, broker) = signed_in(move |_| Some(response.clone()));
        for _ in 0..2 {
            assert_eq!(complete(&home, &["users", "suspend", ""]), ":4\n");
        }
        assert_eq!(broker.requests().len(), 1);
    }
}

/// A shell inserts a candidate into the command line as it is.
#[test]
fn hostile_values_are_left_out() {
    let user = |email: &str| {
        json!({
            "id": Account(1).user(), "email": email, "role": "user", "status": "active",
            "created_at": "2026-01-01T00:00:00Z",
        })
    };
    let hostile = ["$(touch owned)", "`id`@x", "a b@x", "-x", "a;b", "a\tb", "a\nb", "\u{1b}[2J"];
    let users: Vec<Value> = hostile.into_iter().chain(["ok@example.com"]).map(user).collect();
    let page = json!({ "items": users });
    let (home, _broker) = signed_in(move |_| Some(json_response(200, &page)));
    let found = complete(&home, &["users", "suspend", ""]);
    assert_eq!(found, "ok@example.com\tuser, active\n:4\n");
}

#[test]
fn cached_candidates_are_private_and_end_with_the_session() {
    let (home, _broker) = signed_in(|_| None);
    complete(&home, &["users", "suspend", ""]);
    let folder = home.path(".cache/kubectl-tenant/completions");
    let files: Vec<PathBuf> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = files.as_slice() else { panic!("{files:?}") };
    assert!(fs::read_to_string(file).unwrap().contains("dev2@example.com"));
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(home.run(&["logout", "--broker", &home.broker]).code, 0);
    assert!(!folder.exists());
}

/// A folder with the plugin under its name.
fn folder_with_plugin(home: &Home, name: &str) -> PathBuf {
    let folder = home.path(name);
    fs::create_dir_all(&folder).unwrap();
    symlink(env!("CARGO_BIN_EXE_kubectl-tenant"), folder.join("kubectl-tenant")).unwrap();
    folder
}

/// `PATH` with these folders.
fn path(folders: &[&Path]) -> std::ffi::OsString {
    std::env::join_paths(folders).unwrap()
}

#[test]
fn the_program_for_kubectl_is_installed_beside_the_plugin() {
    let home = Home::new("https://broker.example.com");
    let (empty, folder) = (home.path("empty"), folder_with_plugin(&home, "bin"));
    fs::create_dir(&empty).unwrap();
    let program = folder.join("kubectl_complete-tenant");
    for _ in 0..2 {
        let mut install = home.command(&["completion", "install"]);
        let output = run(install.env("PATH", path(&[&empty, &folder, Path::new("/bin")])));
        assert_eq!((output.code, output.stdout.as_str()), (0, ""), "{output:?}");
        assert!(output.stderr.contains(&program.display().to_string()), "{output:?}");
        assert!(!output.stderr.contains("warning"), "{output:?}");
    }
    assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o7777, 0o755);
    let script = run(&mut home.command(&["completion", "kubectl"])).stdout;
    assert_eq!(fs::read_to_string(&program).unwrap(), script);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    // As kubectl runs it.
    let mut command = Command::new(&program);
    command.args(["workspaces", "--a"]).env_clear().env("HOME", home.path(""));
    let output = run(command.env("PATH", path(&[&folder])));
    assert_eq!((output.code, output.stdout.as_str()), (0, "--all\n:4\n"), "{output:?}");
}

#[test]
fn the_program_for_kubectl_replaces_nothing_foreign() {
    let home = Home::new("https://broker.example.com");
    let folder = folder_with_plugin(&home, "bin");
    let program = folder.join("kubectl_complete-tenant");
    fs::write(&program, "#!/bin/sh\necho foreign\n").unwrap();
    let install = |args: &[&str], folders: &[&Path]| {
        let mut command = home.command(&[&["completion", "install"][..], args].concat());
        run(command.env("PATH", path(folders)))
    };
    let output = install(&[], &[&folder]);
    assert!(output.failed(1).contains("was not written by kubectl-tenant"), "{output:?}");
    assert!(output.stderr.contains("--dir DIR"), "{output:?}");
    assert_eq!(fs::read_to_string(&program).unwrap(), "#!/bin/sh\necho foreign\n");

    let other = home.path("other");
    fs::create_dir(&other).unwrap();
    let output = install(&["--dir", other.to_str().unwrap()], &[&folder]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stderr.contains("is not on your PATH"), "{output:?}");
    assert!(other.join("kubectl_complete-tenant").exists());

    // A missing folder is created, with the mode that the umask allows.
    let missing = home.path("missing/bin");
    let output = install(&["--dir", missing.to_str().unwrap()], &[&folder]);
    assert!(output.code == 0 && missing.join("kubectl_complete-tenant").exists(), "{output:?}");
    let ordinary = home.path("ordinary");
    fs::create_dir(&ordinary).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&missing), mode(&ordinary));
    let no_folder = program.join("bin");
    let output = install(&["--dir", no_folder.to_str().unwrap()], &[&folder]);
    assert!(output.failed(1).contains("Not a directory"), "{output:?}");
    let output = install(&[], &[&other]);
    assert!(output.failed(1).contains("kubectl-tenant is not on your PATH"), "{output:?}");
}
