//! What was issued, and taking one back.

use crate::{
    answers::Answers,
    canned::{self, Account},
    support::{Home, Said, run},
};

fn signed_in() -> (Home, Answers) {
    let broker = canned::quick();
    let home = Home::new(&broker.url);
    let said = say(&home, &["login", "--device", "--broker", &broker.url]);
    assert_eq!(said.code, 0, "{said:?}");
    (home, broker)
}

fn say(home: &Home, args: &[&str]) -> Said {
    run(home.command(args).env("KUBECONFIG", home.path("config")))
}

/// The last call of the credentials' API.
fn last(broker: &Answers) -> String {
    let all = broker.all();
    let asked = all.iter().rfind(|asked| asked.path.contains("/credentials")).unwrap();
    format!("{} {}", asked.method, asked.path)
}

#[test]
fn the_list_has_every_page_and_words_of_a_newer_broker() {
    let (home, broker) = signed_in();
    let table = say(&home, &["credentials"]).stdout;
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("ID      KIND         STATE   BOUND   WHO"), "{table}");
    assert!(
        lines[1].starts_with("jti-1   kubeconfig   live    no      dev1@example.com"),
        "{table}"
    );
    assert!(lines[2].starts_with("jti-2   other        other"), "{table}");
    assert!(!table.contains('\u{1b}'), "nothing moves the cursor");
    let own = format!("/api/v1/workspaces/{}/credentials", Account(1).workspace());
    assert_eq!(last(&broker), format!("GET {own}?limit=500&all=false&cursor=jti-1"));

    let document = say(&home, &["credentials", "list", "--all", "-o", "json"]).document();
    assert_eq!(document["items"][0]["kind"], "kubeconfig");
    assert_eq!(document["items"].as_array().unwrap().len(), 2);
    assert!(last(&broker).contains("all=true"));
    // By namespace or identifier, as an administrator names it.
    let namespace = format!("tenant-{}", Account(1).user());
    for named in [namespace.as_str(), &Account(1).workspace()] {
        let yaml = say(&home, &["credentials", "list", named, "-o", "yaml"]).stdout;
        assert!(yaml.contains("credential_id: jti-1\n"), "{yaml}");
    }
    let said = say(&home, &["credentials", "list", "tenant-nobody"]);
    assert!(said.failed(5).contains("not found: none"), "{said:?}");
}

#[test]
fn a_revocation_says_what_ended_with_it() {
    let (home, broker) = signed_in();
    let id = "JTI=other";
    let said = say(&home, &["credentials", "revoke", id, "--reason", "lost & found"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stdout.contains("other   revoked   service_account   3"), "{said:?}");
    for part in ["3 others", "10 s more", "downloaded again"] {
        assert!(said.stderr.contains(part), "{part}: {said:?}");
    }
    let path = format!("/api/v1/workspaces/{}/credentials/other", Account(1).workspace());
    assert_eq!(last(&broker), format!("DELETE {path}?reason=lost+%26+found"));

    let said = say(&home, &["credentials", "revoke", "alone"]);
    assert!(said.stderr.contains("other credentials go on"), "{said:?}");
    let said = say(&home, &["credentials", "revoke", "open", "-o", "json"]);
    assert_eq!((said.code, &said.document()["state"]), (0, &"revoking".into()));
    assert!(said.stderr.contains("goes on with delete_secret"), "{said:?}");
    let said = say(&home, &["credentials", "revoke", "over"]);
    assert!(said.stderr.contains("nothing was done"), "{said:?}");
    assert_eq!(say(&home, &["credentials", "revoke", "unknown"]).code, 5);
}

#[test]
fn a_revoked_token_is_not_served_from_the_cache_again() {
    let (home, _broker) = signed_in();
    let own = Account(1).workspace();
    let token = || run(&mut home.get_token_of(&own)).token();
    let first = token();
    let cached = home.token_path_of(&own);
    assert!(cached.exists());
    // Others that end alone, are over or unknown leave it.
    for id in ["alone", "over", "unknown"] {
        say(&home, &["credentials", "revoke", id]);
        assert!(cached.exists(), "{id}");
    }
    // One that takes all of the workspace with it does not.
    assert_eq!(say(&home, &["credentials", "revoke", "other"]).code, 0);
    assert!(!cached.exists());
    assert_eq!(token(), first, "the canned broker gives the same again");
}
