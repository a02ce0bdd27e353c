//! Several accounts and brokers: nobody gets what is another's.

use std::fs;

use serde_json::Value;

use crate::{
    answers::Answers,
    canned::{self, Account},
    support::{CLUSTER, Home, Said, run},
};

fn say(home: &Home, args: &[&str]) -> Said {
    run(home.command(args).env("KUBECONFIG", home.path("config")))
}

fn login(home: &Home, broker: &str, profile: &[&str]) -> Said {
    let args = [&["login", "--device", "--broker", broker, "-o", "json"], profile].concat();
    let said = say(home, &args);
    assert_eq!(said.code, 0, "{said:?}");
    said
}

fn kubeconfig(home: &Home) -> Value {
    let text = fs::read_to_string(home.path("config")).unwrap();
    serde_norway::from_str(&text).unwrap()
}

/// The arguments that kubectl runs the plugin with for a user entry.
fn arguments(home: &Home, user: &str) -> Vec<String> {
    let document = kubeconfig(home);
    let users = document["users"].as_array().unwrap();
    let entry = users.iter().find(|entry| entry["name"] == user).unwrap();
    let arguments = entry["user"]["exec"]["args"].as_array().unwrap();
    arguments.iter().map(|argument| argument.as_str().unwrap().to_owned()).collect()
}

fn two_accounts() -> (Home, Answers) {
    let broker = canned::quick();
    let home = Home::new(&broker.url);
    login(&home, &broker.url, &[]);
    login(&home, &broker.url, &["--profile", "work"]);
    (home, broker)
}

#[test]
fn two_accounts_at_one_broker_do_not_mix() {
    let (home, broker) = two_accounts();
    // The entries of the second one have its name, so the first one's are still there.
    assert_eq!(kubeconfig(&home)["current-context"], "work");
    let (first, second) = (arguments(&home, "sa-tenant-admin"), arguments(&home, "work"));
    assert!(!first.iter().any(|argument| argument.contains("profile")), "{first:?}");
    assert_eq!(second.last().unwrap(), "--profile=work");
    for (arguments, token) in [(&first, "k8s-1"), (&second, "k8s-2")] {
        // Nothing in the surroundings changes what a kubeconfig means.
        for profile in ["work", "other", ""] {
            let said = run(home.command(&[]).args(arguments).env("TENANT_PROFILE", profile));
            assert_eq!(said.token(), token);
        }
    }
    // Even for one and the same workspace.
    let workspace = format!("--workspace={}", Account(1).workspace());
    let cluster = format!("--cluster={CLUSTER}");
    let args = ["get-token", "--profile=work", &workspace, &cluster];
    let said = say(&home, &[&args[..], &["--broker", &home.broker]].concat());
    assert!(said.failed(5).contains("gave a token for workspace"), "{said:?}");
    let asked: Vec<String> = broker
        .all()
        .into_iter()
        .filter(|asked| asked.path.ends_with("/credentials"))
        .map(|asked| asked.bearer)
        .collect();
    assert_eq!(asked, [Account(1).access(), Account(2).access(), Account(2).access()]);
}

#[test]
fn the_current_account_is_chosen_and_shown() {
    let (home, broker) = two_accounts();
    let email = |args: &[&str], variable: &str| {
        let args = [&["whoami", "-o", "json"], args].concat();
        let said = run(home.command(&args).env("TENANT_PROFILE", variable));
        said.document()["email"].as_str().unwrap().to_owned()
    };
    assert_eq!(email(&[], ""), Account(2).email());
    assert_eq!(email(&["--profile", &broker.url], ""), Account(1).email());
    assert_eq!(email(&[], &broker.url), Account(1).email());
    assert_eq!(email(&["--broker", &broker.url], "work"), Account(1).email());
    let list = say(&home, &["profiles", "-o", "json"]).document();
    assert_eq!(list["items"][0]["email"], Account(1).email());
    assert_eq!(list["items"][0]["current"], false);
    assert_eq!(list["items"][1]["name"], "work");
    assert_eq!(list["items"][1]["current"], true);
    let said = say(&home, &["profiles", "use", &broker.url]);
    assert_eq!((said.code, said.stdout.as_str()), (0, ""), "{said:?}");
    assert_eq!(email(&[], ""), Account(1).email());
    let table = say(&home, &["profiles"]).stdout;
    assert!(table.lines().nth(1).unwrap().starts_with("*  "), "{table}");
    for words in [&["whoami", "--profile", "w"][..], &["profiles", "use", "w"]] {
        let said = say(&home, &[&["__complete"], words].concat());
        assert_eq!(said.stdout, "work\n:4\n", "{words:?}");
    }
    assert!(say(&home, &["profiles", "use", "nobody"]).failed(2).contains("no profile"));
    assert!(say(&home, &["whoami", "--profile", "nobody"]).failed(2).contains("no profile"));
}

#[test]
fn signing_out_of_one_account_leaves_the_other() {
    let (home, broker) = two_accounts();
    for user in ["sa-tenant-admin", "work"] {
        assert_eq!(run(home.command(&[]).args(arguments(&home, user))).code, 0);
    }
    assert_eq!(say(&home, &["logout", "--profile", "work"]).code, 0);
    let revoked = broker.all().into_iter().find(|asked| asked.path == "/oauth2/revoke").unwrap();
    assert!(revoked.body.contains(&Account(2).refresh()), "{revoked:?}");
    let said = run(home.command(&[]).args(arguments(&home, "work")));
    let line = format!("run: kubectl tenant login --broker {} --profile work", broker.url);
    assert!(said.failed(3).contains(&line), "{said:?}");
    assert_eq!(run(home.command(&[]).args(arguments(&home, "sa-tenant-admin"))).token(), "k8s-1");
    let status = say(&home, &["status"]).stdout;
    assert!(status.contains("(profile work) (current)\n  Not signed in"), "{status}");
    assert!(status.contains(&Account(1).email()), "{status}");
}

/// What is in the way is found before anybody signs in.
#[test]
fn entries_of_others_are_found_in_time() {
    let broker = canned::quick();
    let home = Home::new(&broker.url);
    let foreign =
        "apiVersion: v1\nkind: Config\ncontexts:\n- name: tenant-context\n  context: {}\n";
    fs::write(home.path("config"), foreign).unwrap();
    let args = ["login", "--device", "--broker", &broker.url];
    let said = say(&home, &args);
    assert!(said.failed(1).contains("was not made by kubectl-tenant"), "{said:?}");
    assert!(said.stderr.contains("kubectl tenant login --context NAME"), "{said:?}");
    assert_eq!(broker.all().len(), 0);
    // Under another name there is room; and later for the broker's own names there is none.
    login(&home, &broker.url, &["--context", "mine"]);
    let said = say(&home, &["kubeconfig", "--context", "tenant-context"]);
    let hint = "kubectl tenant kubeconfig --use --context NAME";
    assert!(said.failed(1).contains(hint), "{said:?}");
    fs::write(home.path("config"), "a: [").unwrap();
    assert!(say(&home, &args).failed(1).contains("is no YAML document"));
}

#[test]
fn files_of_the_first_layout_go_on_working() {
    let broker = canned::quick();
    let home = Home::new(&broker.url);
    home.forge_session(1, 600);
    home.forge_token("cached", 1, 3600);
    let profiles = home.path(".config/kubectl-tenant/profiles.json");
    fs::create_dir_all(profiles.parent().unwrap()).unwrap();
    let url = &broker.url;
    let text =
        format!(r#"{{"version":1,"default":"{url}","brokers":{{"{url}":{{"context":"mine"}}}}}}"#);
    fs::write(&profiles, text).unwrap();
    assert_eq!(run(&mut home.get_token()).token(), "cached");
    assert_eq!(say(&home, &["whoami", "-o", "json"]).document()["email"], Account(1).email());
    login(&home, url, &["--profile", "work"]);
    assert_eq!(run(&mut home.get_token()).token(), "cached");
    let list = say(&home, &["profiles", "list", "-o", "json"]).document();
    assert_eq!(list["items"][0]["context"], "mine");
    assert_eq!(list["items"][0]["signed_in"], true);
}
