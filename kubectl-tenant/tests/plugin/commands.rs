//! Tests without a broker: help, usage errors, exit codes, completion, status.

use std::{
    fs,
    io::{Read as _, Write as _},
};

use crate::support::{CANARY, Home, run};

const BROKER: &str = "https://broker.example.com";

fn home() -> Home {
    Home::new(BROKER)
}

#[test]
fn help_lists_every_command() {
    let output = run(&mut home().command(&["--help"]));
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    insta::assert_snapshot!(output.stdout);
}

#[test]
fn usage_errors_exit_with_2_and_an_empty_stdout() {
    let home = home();
    for args in [
        &["nonsense"][..],
        &["get-token"],
        &["get-token", "--workspace=1"],
        &["whoami", "-o", "xml"],
        &["whoami"],
        &["login", "--broker", "http://broker.example.com"],
        &["login", "--broker", "broker"],
        &["login", "--context", "no"],
        &["kubeconfig", "--print", "--use"],
        &["kubeconfig", "--mode", "static", "--dry-run"],
        &["kubeconfig", "--print", "--exec-api-version", "v1"],
        &["login", "--exec-api-version", "v1alpha1", "--broker", BROKER],
        &["sessions", "revoke"],
        &["sessions", "revoke", "nonsense"],
        &["suspend"],
        &["suspend", "x", "--wait", "3601"],
        &["resume"],
        &["users", "suspend"],
        &["users", "resume"],
        &["users", "rename"],
        &["users", "groups"],
        &["users", "groups", "ada@example.com", "--set", "dev", "--none"],
        &["usage", "--days", "36"],
        &["audit", "--limit", "0"],
        &["credentials", "revoke"],
        &["credentials", "revoke", "a/../b"],
        &["profiles", "use"],
        &["tenants", "get"],
        &["tenants", "get", "a/../b"],
        &["tenants", "suspend"],
        &["tenants", "create"],
        &["tenants", "create", "Solar", "--owner", "ada"],
        &["tenants", "create", "solar", "--owner", "ada", "-f", "solar.yaml"],
        &["tenants", "create", "solar", "--owner-service-account", "robot"],
        &["tenants", "create", "solar", "--owner", "ada", "--quota", "0"],
        &["tenants", "apply"],
        &["tenants", "apply", "-f", "solar.yaml", "--dry-run=perhaps"],
        &["tenants", "edit"],
        &["tenants", "delete"],
        &["tenants", "delete", "solar", "--namespaces", "delete", "--yes"],
        &["namespaces", "create"],
        &["namespaces", "create", "Solar"],
        &["namespaces", "create", "solar-a", "--label", "team"],
        &["namespaces", "delete", "solar-a", "--wait=perhaps"],
        &["namespaces", "adopt", "solar-a"],
        &["namespaces", "adopt", "a/../b", "--tenant", "solar"],
        &["namespaces", "transfer", "solar-a"],
        &["namespaces", "transfer", "solar-a", "--to", "lunar", "--timeout", "0"],
        &["use"],
        &["why", "get", "pods"],
        &["why", "get", "pods/a/log", "-n", "solar-a"],
        &["import"],
        &["login", "--broker", "example.com"],
        &["login", "--device", "--no-browser"],
        &["login", "--profile", "a/b", "--broker", BROKER],
        &["kubeconfig", "--command-path", "relative"],
        &["completion"],
        // Windows is not supported.
        &["completion", "powershell"],
        &["man"],
        &[],
    ] {
        let output = run(&mut home.command(args));
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn usage_errors_say_what_to_write() {
    let home = home();
    for (args, text) in [
        (&["sessions", "revoke"][..], "<ID|--all|--others>"),
        (&["sessions", "revoke", "xyz"], "no identifier of a session (UUID)"),
        (&["tenants", "create", "Solar", "--owner", "ada"], "has 1 to 40 lower case letters"),
        (&["use", &"a".repeat(41)], "has 1 to 40 lower case letters"),
        (&["kubeconfig", "--mode", "static", "--dry-run"], "--mode static issues a token"),
        (&["users", "rename", "bob@example.com"], "confirm with --yes"),
    ] {
        let output = run(&mut home.command(args));
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{args:?}: {output:?}");
        assert!(output.stderr.contains(text), "{args:?}: {output:?}");
    }
}

#[test]
fn plain_http_to_a_port_with_tls_is_explained() {
    // The alert `unexpected_message`, with which a TLS server answers a request without TLS (RFC 8446
    // section 6).
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = [0; 64];
            let _ = stream.read(&mut head);
            let _ = stream.write_all(&[0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x0a]);
        }
    });
    let home = Home::new(&url);
    let output = run(&mut home.command(&["login", "--no-browser", "--broker", &url]));
    let hint = "hint: the port seems to speak TLS: use https://\n";
    assert!(output.failed(4).ends_with(hint), "{output:?}");
}

#[test]
fn without_a_session_the_error_names_the_login_command() {
    let home = home();
    for args in [&["whoami"][..], &["init"], &["workspaces"], &["kubeconfig"]] {
        let output = run(home.command(args).env("TENANT_BROKER_URL", BROKER));
        let line = format!("run: kubectl tenant login --broker {BROKER}");
        assert!(output.failed(3).contains(&line), "{output:?}");
    }
    let output = run(&mut home.command(&["logout", "--broker", BROKER]));
    assert_eq!((output.code, output.stdout.as_str()), (0, ""));
    assert!(output.stderr.contains("Nobody was signed in"), "{output:?}");
}

#[test]
fn an_unreachable_broker_has_its_own_exit_code() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let home = Home::new(&format!("http://127.0.0.1:{port}"));
    for args in [&["login", "--no-browser"][..], &["login"]] {
        let output = run(home.command(args).env("TENANT_BROKER_URL", &home.broker));
        assert!(output.failed(4).contains("cannot be reached"), "{output:?}");
    }
    home.forge_session(1, 600);
    let output = run(&mut home.command(&["whoami", "--broker", &home.broker]));
    output.failed(4);
    // Signing out works all the same, and reports what failed.
    home.forge_token(CANARY, 1, 3600);
    let output = run(&mut home.command(&["logout", "--broker", &home.broker]));
    assert_eq!(output.code, 0);
    assert!(output.stderr.contains("could not be ended"), "{output:?}");
    assert!(!home.session_path().exists() && !home.token_path().exists());
}

#[test]
fn status_shows_everything_but_secrets() {
    let home = home();
    home.forge_session(1, 600);
    home.forge_token(CANARY, 1, 3600);
    let profiles = home.path(".config/kubectl-tenant/profiles.json");
    fs::create_dir_all(profiles.parent().unwrap()).unwrap();
    let text = format!(r#"{{"version":1,"default":"{BROKER}","brokers":{{"{BROKER}":{{}}}}}}"#);
    fs::write(&profiles, text).unwrap();
    for format in ["table", "json", "yaml"] {
        let output = run(&mut home.command(&["status", "-o", format]));
        assert_eq!((output.code, output.stdout.contains(CANARY)), (0, false), "{output:?}");
        assert!(output.stdout.contains("dev@example.com"), "{output:?}");
    }
    let document = run(&mut home.command(&["status", "-o", "json"])).document();
    let profile = &document["profiles"][0];
    assert_eq!(profile["default"], true);
    assert_eq!(profile["tokens"][0]["cluster"], "internal-cluster");
    assert_eq!(profile["tokens"][0]["mode"], "exec");
    assert!(profile["last_error"].is_null());
    let output = run(&mut home.command(&["status", "--broker", "https://other.example"]));
    assert!(output.stdout.contains("No broker is known"), "{output:?}");
}

#[test]
fn version_shows_number_and_platform() {
    let home = home();
    let output = run(&mut home.command(&["version"]));
    assert!(output.stdout.starts_with(concat!("kubectl-tenant ", env!("CARGO_PKG_VERSION"))));
    let document = run(&mut home.command(&["version", "-o", "json"])).document();
    assert_eq!(document["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(document["os"], std::env::consts::OS);
}

#[test]
fn completion_offers_commands_flags_and_values() {
    let home = home();
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&mut home.command(&["completion", shell]));
        assert!(output.code == 0 && output.stdout.contains("get-token"), "{shell}: {output:?}");
    }
    let script = run(&mut home.command(&["completion", "kubectl"])).stdout;
    assert!(script.starts_with("#!/bin/sh\n") && script.contains("__complete"));
    for (words, expected) in [
        (&["work"][..], "workspaces\n:4\n"),
        (&["workspaces", "--a"], "--all\n:4\n"),
        (&["kubeconfig", "--mode", ""], "exec\nstatic\ngateway\n:4\n"),
        (&["whoami", "-o", "j"], "json\n:4\n"),
        (&["completion", "z"], "zsh\n:4\n"),
        (&["__"], ":4\n"),
        (&["man"], ":4\n"),
        (&["man", ""], ":16\n"),
        (&["completion", "install", "--dir", ""], ":16\n"),
        (&["login", "--command-path", ""], ":0\n"),
        (&["login", "--exec-api-version=v1b"], "v1beta1\n:4\n"),
        (&["--broker", "x", "whoami", "-ojson", "--pro"], "--profile\n:4\n"),
        (&["kubeconfig", "--", "--"], ":4\n"),
        (&["sessions", ""], "list\nrevoke\nhelp\n:4\n"),
        (&["sessions", "revoke", "--o"], "--others\n:4\n"),
        (&["users", "s"], "suspend\n:4\n"),
        (&["cred"], "credentials\n:4\n"),
        (
            &["tenants", ""],
            "list\nget\nmembers\ncreate\napply\nedit\ndelete\nsuspend\nresume\nhelp\n:4\n",
        ),
        (&["tenants", "delete", "solar", "--namespaces", ""], "refuse\nkeep\n:4\n"),
        (&["tenants", "apply", "-f", ""], ":0\n"),
        (&["tenants", "create", "--dry-run="], "none\nclient\nserver\n:4\n"),
        (&["namespaces", "create", "solar-a", "--la"], "--label\n:4\n"),
        (&["namespaces", "delete", "--wait="], "true\nfalse\n:4\n"),
        (&["import", "-f", ""], ":0\n"),
        (&["credentials", ""], "list\nrevoke\nhelp\n:4\n"),
        (&["credentials", "revoke", "--r"], "--reason\n:4\n"),
        (&["login", "--storage", ""], "keyring\nfile\nnone\n:4\n"),
        (&["login", "--dev"], "--device\n:4\n"),
        (&["logout", "--a"], "--all\n:4\n"),
    ] {
        let output = run(home.command(&["__complete"]).args(words));
        assert_eq!(output.stdout, expected, "{words:?}");
    }
}
