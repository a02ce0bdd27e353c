//! Tests of `credentials`: list and revocation.

use crate::{
    stub_broker::{self, Account},
    stub_server::StubServer,
    support::{Home, run},
};

fn signed_in() -> (Home, StubServer) {
    stub_broker::sign_in(stub_broker::auto_confirming(), &[])
}

/// The last call of the credentials API.
fn last(broker: &StubServer) -> String {
    let all = broker.requests();
    let request = all.iter().rfind(|request| request.path.contains("/credentials")).unwrap();
    format!("{} {}", request.method, request.path)
}

#[test]
fn the_list_has_every_page_and_unknown_kinds() {
    let (home, broker) = signed_in();
    let table = home.run(&["credentials"]).stdout;
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

    let document = home.run(&["credentials", "list", "--all", "-o", "json"]).document();
    assert_eq!(document["items"][0]["kind"], "kubeconfig");
    assert_eq!(document["items"].as_array().unwrap().len(), 2);
    assert!(last(&broker).contains("all=true"));
    // An administrator names the workspace by namespace or identifier.
    let namespace = format!("tenant-{}", Account(1).user());
    for named in [namespace.as_str(), &Account(1).workspace()] {
        let yaml = home.run(&["credentials", "list", named, "-o", "yaml"]).stdout;
        assert!(yaml.contains("credential_id: jti-1\n"), "{yaml}");
    }
    let output = home.run(&["credentials", "list", "tenant-nobody"]);
    assert!(output.failed(5).contains("not found: none"), "{output:?}");
}

#[test]
fn a_revocation_reports_what_else_ended() {
    let (home, broker) = signed_in();
    let id = "JTI=other";
    let output = home.run(&["credentials", "revoke", id, "--reason", "lost & found"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stdout.contains("other   revoked   service_account   3"), "{output:?}");
    for part in ["3 others", "accept it for 10 s", "downloaded again"] {
        assert!(output.stderr.contains(part), "{part}: {output:?}");
    }
    let path = format!("/api/v1/workspaces/{}/credentials/other", Account(1).workspace());
    assert_eq!(last(&broker), format!("DELETE {path}?reason=lost+%26+found"));

    let output = home.run(&["credentials", "revoke", "alone"]);
    assert!(output.stderr.contains("other credentials remain valid"), "{output:?}");
    let output = home.run(&["credentials", "revoke", "open", "-o", "json"]);
    assert_eq!((output.code, &output.document()["state"]), (0, &"revoking".into()));
    assert!(output.stderr.contains("continues with delete_secret"), "{output:?}");
    let output = home.run(&["credentials", "revoke", "over"]);
    assert!(output.stderr.contains("nothing was done"), "{output:?}");
    assert_eq!(home.run(&["credentials", "revoke", "unknown"]).code, 5);
}

#[test]
fn a_revoked_token_is_not_served_from_the_cache_again() {
    let (home, _broker) = signed_in();
    let own = Account(1).workspace();
    let token = || run(&mut home.get_token_of(&own)).token();
    let first = token();
    let cached = home.token_path_of(&own);
    assert!(cached.exists());
    // Revoking another credential that ends alone, is over or is unknown keeps the file.
    for id in ["alone", "over", "unknown"] {
        home.run(&["credentials", "revoke", id]);
        assert!(cached.exists(), "{id}");
    }
    // Revoking one that ends all credentials of the workspace deletes it.
    assert_eq!(home.run(&["credentials", "revoke", "other"]).code, 0);
    assert!(!cached.exists());
    assert_eq!(token(), first, "the stub broker issues the same token again");
}
