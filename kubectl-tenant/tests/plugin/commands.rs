//! Everything else that works without a broker: help, mistakes, exit codes, completion, status.

use std::fs;

use crate::support::{CANARY, Home, run};

const BROKER: &str = "https://broker.example.com";

fn home() -> Home {
    Home::new(BROKER)
}

#[test]
fn help_says_what_there_is() {
    let said = run(&mut home().command(&["--help"]));
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    insta::assert_snapshot!(said.stdout);
}

#[test]
fn help_of_each_command() {
    let home = home();
    let mut all = String::new();
    for command in [
        "login",
        "logout",
        "whoami",
        "sessions",
        "sessions revoke",
        "suspend",
        "resume",
        "users",
        "users suspend",
        "profiles",
        "profiles use",
        "init",
        "workspaces",
        "credentials",
        "credentials revoke",
        "audit",
        "kubeconfig",
        "get-token",
        "status",
        "completion",
        "version",
    ] {
        let said = run(home.command(&[]).args(command.split(' ')).arg("--help"));
        assert_eq!(said.code, 0);
        all.extend([format!("=== {command}\n{}\n", said.stdout)]);
    }
    insta::assert_snapshot!(all);
}

#[test]
fn mistakes_are_code_two_and_leave_stdout_alone() {
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
        &["sessions", "revoke"],
        &["sessions", "revoke", "nonsense"],
        &["suspend"],
        &["suspend", "x", "--wait", "3601"],
        &["users", "suspend"],
        &["credentials", "revoke"],
        &["credentials", "revoke", "a/../b"],
        &["profiles", "use"],
        &["login", "--broker", "example.com"],
        &["login", "--device", "--no-browser"],
        &["login", "--profile", "a/b", "--broker", BROKER],
        &["kubeconfig", "--command-path", "relative"],
        &[],
    ] {
        let said = run(&mut home.command(args));
        assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{args:?}");
        assert!(!said.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn whoever_is_not_signed_in_is_told_what_to_type() {
    let home = home();
    for args in [&["whoami"][..], &["init"], &["workspaces"], &["kubeconfig"]] {
        let said = run(home.command(args).env("TENANT_BROKER_URL", BROKER));
        let line = format!("run: kubectl tenant login --broker {BROKER}");
        assert!(said.failed(3).contains(&line), "{said:?}");
    }
    let said = run(&mut home.command(&["logout", "--broker", BROKER]));
    assert_eq!((said.code, said.stdout.as_str()), (0, ""));
    assert!(said.stderr.contains("Nobody was signed in"), "{said:?}");
}

#[test]
fn a_broker_that_is_not_there_has_its_own_code() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let home = Home::new(&format!("http://127.0.0.1:{port}"));
    for args in [&["login", "--no-browser"][..], &["login"]] {
        let said = run(home.command(args).env("TENANT_BROKER_URL", &home.broker));
        assert!(said.failed(4).contains("cannot be reached"), "{said:?}");
    }
    home.forge_session(1, 600);
    let said = run(&mut home.command(&["whoami", "--broker", &home.broker]));
    said.failed(4);
    // Signing out works all the same, and says what it could not do.
    home.forge_token(CANARY, 1, 3600);
    let said = run(&mut home.command(&["logout", "--broker", &home.broker]));
    assert_eq!(said.code, 0);
    assert!(said.stderr.contains("could not be ended"), "{said:?}");
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
        let said = run(&mut home.command(&["status", "-o", format]));
        assert_eq!((said.code, said.stdout.contains(CANARY)), (0, false), "{said:?}");
        assert!(said.stdout.contains("dev@example.com"), "{said:?}");
    }
    let document = run(&mut home.command(&["status", "-o", "json"])).document();
    let profile = &document["profiles"][0];
    assert_eq!(profile["default"], true);
    assert_eq!(profile["tokens"][0]["cluster"], "internal-cluster");
    assert_eq!(profile["tokens"][0]["mode"], "exec");
    assert!(profile["last_error"].is_null());
    let said = run(&mut home.command(&["status", "--broker", "https://other.example"]));
    assert!(said.stdout.contains("No broker is known"), "{said:?}");
}

#[test]
fn version_says_what_it_is() {
    let home = home();
    let said = run(&mut home.command(&["version"]));
    assert!(said.stdout.starts_with(concat!("kubectl-tenant ", env!("CARGO_PKG_VERSION"))));
    let document = run(&mut home.command(&["version", "-o", "json"])).document();
    assert_eq!(document["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(document["os"], std::env::consts::OS);
}

#[test]
fn completion_knows_the_commands() {
    let home = home();
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let said = run(&mut home.command(&["completion", shell]));
        assert!(said.code == 0 && said.stdout.contains("get-token"), "{shell}: {said:?}");
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
        (&["sessions", ""], "list\nrevoke\nhelp\n:4\n"),
        (&["sessions", "revoke", "--o"], "--others\n:4\n"),
        (&["users", "s"], "suspend\n:4\n"),
        (&["cred"], "credentials\n:4\n"),
        (&["credentials", ""], "list\nrevoke\nhelp\n:4\n"),
        (&["credentials", "revoke", "--r"], "--reason\n:4\n"),
        (&["login", "--storage", ""], "keyring\nfile\nnone\n:4\n"),
        (&["login", "--dev"], "--device\n:4\n"),
        (&["logout", "--a"], "--all\n:4\n"),
    ] {
        let said = run(home.command(&["__complete"]).args(words));
        assert_eq!(said.stdout, expected, "{words:?}");
    }
}
