//! Tests of the merge: with generated kubeconfigs, and with a process that is killed while it
//! writes.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use proptest::prelude::*;
use serde_norway::{Mapping, Value};
use tenant_shared::ExecApiVersion;

use super::*;
use crate::{
    account_key::{AccountKey, ProfileName},
    broker::Mode,
    broker_url::BrokerUrl,
    environment::Env,
    runtime,
    world::Messages,
};

/// A kubeconfig document as the broker's API returns it.
const DOCUMENT: &str = "\
apiVersion: v1
kind: Config
clusters:
- cluster:
    server: https://kube.example.com:6443
    certificate-authority-data: Q0E=
  name: internal-cluster
contexts:
- context:
    cluster: internal-cluster
    namespace: tenant-6ba7b810-9dad-11d1-80b4-00c04fd430c8
    user: sa-tenant-admin
  name: tenant-context
current-context: tenant-context
users:
- name: sa-tenant-admin
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: kubectl-tenant
      args: [get-token, --broker=https://broker.example.com, --cluster=internal-cluster, --workspace=6ba7b810-9dad-11d1-80b4-00c04fd430c8]
      env: null
      interactiveMode: IfAvailable
      provideClusterInfo: false
      installHint: Install kubectl-tenant
";

fn account() -> AccountKey {
    AccountKey::unnamed(broker())
}

fn broker() -> BrokerUrl {
    BrokerUrl::parse("https://broker.example.com").unwrap()
}

fn ours() -> Entries {
    let mut entries = Entries::read(DOCUMENT, Mode::Exec, &account()).unwrap();
    entries.prepare(EntryChoices::default());
    entries
}

#[test]
fn a_profile_has_its_own_entries() {
    let named = AccountKey::named(broker(), ProfileName::parse("work").unwrap());
    let mut entries = Entries::read(DOCUMENT, Mode::Exec, &named).unwrap();
    entries.prepare(EntryChoices::default());
    let user = serde_norway::to_string(&entries.items[2].1).unwrap();
    assert!(user.contains("- --profile=work\n") && user.contains("profile: work\n"), "{user}");
    // With the same names the entries would conflict with those of the other account.
    let first = merge::merge(&Value::Null, &ours(), true).unwrap();
    let error = merge::merge(&first, &entries, true).unwrap_err();
    assert!(error.message.contains("belongs to the broker"), "{error}");
    let error = merge::merge(&merge::merge(&Value::Null, &entries, true).unwrap(), &ours(), true);
    assert!(error.unwrap_err().message.contains("(profile work)"));
    entries.prepare(EntryChoices { name: Some("work"), ..EntryChoices::default() });
    let both = merge::merge(&first, &entries, false).unwrap();
    assert_eq!(both["users"].as_sequence().unwrap().len(), 2);
}

fn parse(text: &str) -> Value {
    serde_norway::from_str(text).unwrap()
}

/// The user entry for programs that know no newer version of the protocol.
#[test]
fn the_api_version_of_an_entry_can_be_v1beta1() {
    let mut entries = Entries::read(DOCUMENT, Mode::Exec, &account()).unwrap();
    let exec_api_version = Some(ExecApiVersion::V1Beta1);
    entries.prepare(EntryChoices { exec_api_version, ..EntryChoices::default() });
    insta::assert_snapshot!(serde_norway::to_string(&entries.items[2].1).unwrap(), @r"
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      command: kubectl-tenant
      args:
      - get-token
      - --broker=https://broker.example.com
      - --cluster=internal-cluster
      - --workspace=6ba7b810-9dad-11d1-80b4-00c04fd430c8
      env: null
      interactiveMode: IfAvailable
      provideClusterInfo: false
      installHint: Install kubectl-tenant
    extensions:
    - name: tenant-broker.io
      extension:
        broker: https://broker.example.com
        workspace: 6ba7b810-9dad-11d1-80b4-00c04fd430c8
    ");
    // The entries of the other version are replaced, as after `--exec-api-version v1`.
    let first = merge::merge(&Value::Null, &entries, true).unwrap();
    assert_eq!(
        merge::merge(&first, &ours(), true).unwrap()["users"][0]["user"]["exec"]["apiVersion"],
        "client.authentication.k8s.io/v1"
    );
}

/// A world with its own home folder, and its captured stderr.
fn world(home: &Path) -> (World, Arc<Mutex<Vec<u8>>>) {
    #[derive(Clone)]
    struct Sink(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let said = Arc::new(Mutex::new(Vec::new()));
    let mut world = World::system();
    world.env = Env::Fixed(HashMap::from([("HOME".into(), home.into())]));
    world.stderr = Messages::to(Sink(said.clone()));
    (world, said)
}

fn set(world: &mut World, name: &str, value: impl Into<std::ffi::OsString>) {
    if let Env::Fixed(map) = &mut world.env {
        map.insert(name.into(), value.into());
    }
}

fn install_in(world: &mut World, use_context: bool) -> Result<Installed, Error> {
    runtime::block_on(install(&ours(), use_context, false, world)).unwrap()
}

#[test]
fn a_new_file_is_private_and_complete() {
    let home = tempfile::tempdir().unwrap();
    let (mut world, _) = world(home.path());
    let installed = install_in(&mut world, true).unwrap();
    assert_eq!(installed.path, home.path().join(".kube/config"));
    assert_eq!(fs::metadata(&installed.path).unwrap().mode() & 0o7777, 0o600);
    insta::assert_snapshot!(fs::read_to_string(&installed.path).unwrap(), @r"
    apiVersion: v1
    kind: Config
    clusters:
    - name: internal-cluster
      cluster:
        server: https://kube.example.com:6443
        certificate-authority-data: Q0E=
        extensions:
        - name: tenant-broker.io
          extension:
            broker: https://broker.example.com
            workspace: 6ba7b810-9dad-11d1-80b4-00c04fd430c8
    contexts:
    - name: tenant-context
      context:
        cluster: internal-cluster
        namespace: tenant-6ba7b810-9dad-11d1-80b4-00c04fd430c8
        user: sa-tenant-admin
        extensions:
        - name: tenant-broker.io
          extension:
            broker: https://broker.example.com
            workspace: 6ba7b810-9dad-11d1-80b4-00c04fd430c8
    users:
    - name: sa-tenant-admin
      user:
        exec:
          apiVersion: client.authentication.k8s.io/v1
          command: kubectl-tenant
          args:
          - get-token
          - --broker=https://broker.example.com
          - --cluster=internal-cluster
          - --workspace=6ba7b810-9dad-11d1-80b4-00c04fd430c8
          env: null
          interactiveMode: IfAvailable
          provideClusterInfo: false
          installHint: Install kubectl-tenant
        extensions:
        - name: tenant-broker.io
          extension:
            broker: https://broker.example.com
            workspace: 6ba7b810-9dad-11d1-80b4-00c04fd430c8
    current-context: tenant-context
    ");
    assert!(!home.path().join(".kube/config.lock").exists());
    // A second merge changes nothing.
    let before = fs::metadata(&installed.path).unwrap().ino();
    install_in(&mut world, true).unwrap();
    assert_eq!(fs::metadata(&installed.path).unwrap().ino(), before);
}

/// A kubeconfig with everything that a merge could lose.
const FULL_KUBECONFIG: &str = "\
# The company's clusters. Do not touch.
apiVersion: v1
kind: Config
preferences: {colors: true}   # mine
x-unknown:
  deep: [1, 2.50, \"3\", ~, yes]
clusters:
  # production
  - name: production   # careful
    cluster: {server: \"https://prod\", x-field: 0644}
  - cluster:
      server: https://stage
    name: stage

# people
users:
  - name: me
    user:
      token: \"000123\"
contexts:
  - name: prod
    context:
      cluster: production
      user: me
current-context: prod   # stay here
# the end
";

#[test]
fn foreign_content_is_preserved_exactly() {
    let (text, layout_kept) = merge_text(FULL_KUBECONFIG, &ours(), true).unwrap();
    assert!(layout_kept);
    let removed: Vec<&str> =
        FULL_KUBECONFIG.lines().filter(|line| !text.lines().any(|kept| kept == *line)).collect();
    assert_eq!(removed, ["current-context: prod   # stay here"]);
    // Replacing and restoring our own entries leaves no trace.
    let mut moved = ours();
    moved.items[0].1.insert("server".into(), "https://other".into());
    let (again, layout_kept) = merge_text(&text, &moved, true).unwrap();
    assert!(layout_kept);
    assert_eq!(again, text.replace("https://kube.example.com:6443", "https://other"));
}

#[test]
fn line_endings_are_preserved() {
    let dos = FULL_KUBECONFIG.replace('\n', "\r\n");
    let (text, layout_kept) = merge_text(dos.trim_end(), &ours(), false).unwrap();
    assert!(layout_kept);
    assert!(!text.replace("\r\n", "").contains('\n'));
    assert!(text.contains("# the end\r\n") && text.contains("- name: tenant-context\r\n"));
}

#[test]
fn other_styles_are_rewritten_without_loss() {
    for text in [
        r#"{"apiVersion":"v1","kind":"Config","clusters":[{"name":"a","cluster":{"x":1}}],"users":[],"contexts":null,"y":[1]}"#,
        "clusters: [{name: a, cluster: {x: 1}}]\ny: [1]\n",
        "\"clusters\":\n- name: a\n  cluster: {x: 1}\ny: [1]\n",
        "anchor: &a {x: 1}\nclusters:\n- name: a\n  cluster: *a\ny: [1]\n",
    ] {
        let (new, layout_kept) = merge_text(text, &ours(), true).unwrap();
        assert!(!layout_kept, "{text}");
        let value = parse(&new);
        assert_eq!(value["y"], parse("[1]"), "{text}");
        assert_eq!(value["clusters"][0], parse("{name: a, cluster: {x: 1}}"), "{text}");
        assert_eq!(value["clusters"][1]["name"], "internal-cluster");
        assert_eq!(value["current-context"], "tenant-context");
    }
}

#[test]
fn empty_lists_and_empty_files_are_filled() {
    for text in ["", "# only a comment\n", "---\n", "clusters: []\ncontexts: null\nusers:\n"] {
        let (new, layout_kept) = merge_text(text, &ours(), true).unwrap();
        assert!(layout_kept, "{text:?}");
        assert_eq!(parse(&new)["users"][0]["name"], "sa-tenant-admin", "{new}");
        assert!(text.lines().filter(|line| line.starts_with('#')).all(|line| new.contains(line)));
    }
}

#[test]
fn foreign_entries_are_conflicts() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("config");
    for (text, owner) in [
        (
            "users:\n- name: sa-tenant-admin\n  user: {token: mine}\n",
            "not created by kubectl-tenant",
        ),
        ("contexts:\n- name: tenant-context\n", "not created by kubectl-tenant"),
        (
            "clusters:\n- name: internal-cluster\n  cluster:\n    extensions:\n    - name: tenant-broker.io\n      extension: {broker: \"https://other.example\"}\n",
            "belongs to the broker https://other.example",
        ),
    ] {
        fs::write(&path, text).unwrap();
        let (mut world, _) = world(home.path());
        set(&mut world, "KUBECONFIG", path.clone());
        let error = install_in(&mut world, true).unwrap_err();
        assert!(error.message.contains(owner), "{error}");
        assert!(error.hint.unwrap().contains("--context NAME"));
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        // Another name avoids the conflict, for all three entries.
        let mut renamed = ours();
        renamed.prepare(EntryChoices {
            name: Some("mine"),
            command: Some("/opt/kubectl-tenant"),
            exec_api_version: Some(ExecApiVersion::V1Beta1),
        });
        let (new, _) = merge_text(text, &renamed, true).unwrap();
        let value = parse(&new);
        let context = value["contexts"].as_sequence().unwrap().last().unwrap();
        assert_eq!(context["name"], "mine");
        assert_eq!(context["context"]["cluster"], "mine");
        assert_eq!(context["context"]["user"], "mine");
        let user = value["users"].as_sequence().unwrap().last().unwrap();
        assert_eq!(user["name"], "mine");
        assert_eq!(user["user"]["exec"]["command"], "/opt/kubectl-tenant");
        let version = "client.authentication.k8s.io/v1beta1";
        assert_eq!(user["user"]["exec"]["apiVersion"], version);
    }
}

#[test]
fn invalid_kubeconfigs_are_not_changed() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("config");
    for text in ["a: [", "- list\n", "clusters: text\n", "a: 1\n---\nb: 2\n"] {
        fs::write(&path, text).unwrap();
        let (mut world, _) = world(home.path());
        set(&mut world, "KUBECONFIG", path.clone());
        let error = install_in(&mut world, true).unwrap_err();
        assert!(error.message.contains("was not changed"), "{text}: {error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn unexpected_documents_are_refused() {
    let read = |text: &str| Entries::read(text, Mode::Exec, &account());
    assert!(read(DOCUMENT).is_ok());
    for (from, to) in [
        ("command: kubectl-tenant", "command: sh"),
        ("[get-token,", "[login,"),
        ("env: null", "env: [{name: LD_PRELOAD, value: /tmp/x}]"),
        ("env: null", "shell: x"),
        ("--broker=https://broker.example.com", "--broker=https://evil.example"),
        (", --workspace=6ba7b810-9dad-11d1-80b4-00c04fd430c8]", "]"),
        ("    exec:", "    token: x\n    exec:"),
        ("current-context: tenant-context", "current-context: other"),
        ("user: sa-tenant-admin", "user: other"),
        ("cluster: internal-cluster", "cluster: other"),
    ] {
        let text = DOCUMENT.replace(from, to);
        assert_ne!(text, DOCUMENT);
        assert_eq!(read(&text).unwrap_err().kind, crate::error::Kind::Refused, "{to}");
    }
    let with_token = DOCUMENT.split("    exec:").next().unwrap().to_owned() + "    token: t\n";
    assert!(Entries::read(&with_token, Mode::Static, &account()).is_ok());
    assert!(Entries::read(DOCUMENT, Mode::Static, &account()).is_err());
}

#[test]
fn the_first_existing_file_of_the_list_is_changed() {
    let home = tempfile::tempdir().unwrap();
    let [first, second, third] = ["a", "b", "c"].map(|name| home.path().join(name));
    fs::write(&second, "").unwrap();
    fs::write(&third, "").unwrap();
    let (mut world, _) = world(home.path());
    let list = std::env::join_paths(["".into(), first.clone(), second.clone(), third]).unwrap();
    set(&mut world, "KUBECONFIG", list);
    assert_eq!(install_in(&mut world, true).unwrap().path, second);
    set(&mut world, "KUBECONFIG", std::env::join_paths([&first]).unwrap());
    assert_eq!(install_in(&mut world, true).unwrap().path, first);
    assert!(first.exists());
}

#[test]
fn links_and_mode_are_preserved() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    fs::create_dir(path("real")).unwrap();
    fs::write(path("real/config"), FULL_KUBECONFIG).unwrap();
    fs::set_permissions(path("real/config"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("real/config", path("middle")).unwrap();
    symlink(path("middle"), path("config")).unwrap();
    let (mut world, _) = world(home.path());
    set(&mut world, "KUBECONFIG", path("config"));
    install_in(&mut world, false).unwrap();
    assert!(fs::symlink_metadata(path("config")).unwrap().is_symlink());
    assert!(fs::symlink_metadata(path("middle")).unwrap().is_symlink());
    assert_eq!(fs::metadata(path("real/config")).unwrap().mode() & 0o7777, 0o640);
    let text = fs::read_to_string(path("real/config")).unwrap();
    assert!(text.contains("tenant-context") && text.contains("current-context: prod"));
    // A dangling link creates the file that it points to.
    symlink("real/new", path("dangling")).unwrap();
    set(&mut world, "KUBECONFIG", path("dangling"));
    install_in(&mut world, false).unwrap();
    assert!(path("real/new").is_file());
    symlink("loop", path("loop")).unwrap();
    set(&mut world, "KUBECONFIG", path("loop"));
    assert!(install_in(&mut world, false).unwrap_err().message.contains("too many levels"));
}

#[test]
fn a_fresh_lock_is_waited_for_and_a_stale_one_is_removed() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("config");
    let lock = home.path().join("config.lock");
    let (mut world, said) = world(home.path());
    set(&mut world, "KUBECONFIG", path.clone());
    // kubectl creates its lock with mode 0.
    fs::write(&lock, "").unwrap();
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o000)).unwrap();
    let entries = ours();
    let waiting = runtime::block_on(async {
        let install = install(&entries, true, false, &mut world);
        tokio::time::timeout(Duration::from_millis(200), install).await
    });
    assert!(waiting.unwrap().is_err() && !path.exists(), "written in spite of the lock");
    fs::remove_file(&lock).unwrap();
    install_in(&mut world, true).unwrap();
    assert!(path.exists() && said.lock().unwrap().is_empty());

    fs::remove_file(&path).unwrap();
    let stale = fs::File::create(&lock).unwrap();
    let old = stale.metadata().unwrap().modified().unwrap() - Duration::from_secs(61);
    stale.set_modified(old).unwrap();
    install_in(&mut world, true).unwrap();
    assert!(path.exists() && !lock.exists());
    assert!(String::from_utf8(said.lock().unwrap().clone()).unwrap().contains("stale lock"));
}

/// Runs forever in its own process, which the next test kills.
#[test]
#[ignore = "the other half of killed_at_any_point_the_file_is_the_old_one_or_the_new_one"]
fn write_repeatedly() {
    let Some(home) = std::env::var_os("KUBECONFIG_TEST_HOME").map(PathBuf::from) else { return };
    let (mut world, _) = world(&home);
    set(&mut world, "KUBECONFIG", home.join("config"));
    for round in 0_u64.. {
        let mut entries = ours();
        entries.items[0].1.insert("server".into(), format!("https://{round}").into());
        runtime::block_on(install(&entries, round % 2 == 0, false, &mut world)).unwrap().unwrap();
    }
}

#[test]
fn killed_at_any_point_the_file_is_the_old_one_or_the_new_one() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("config");
    fs::write(&path, FULL_KUBECONFIG).unwrap();
    for round in 0_u64..20 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kubeconfig::tests::write_repeatedly", "--ignored"])
            .env("KUBECONFIG_TEST_HOME", home.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Killed only after it began to write, at a moment that differs in each round.
        let before = fs::metadata(&path).unwrap().ino();
        runtime::block_on(async {
            let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
            while fs::metadata(&path).unwrap().ino() == before {
                assert!(tokio::time::Instant::now() < deadline, "the child does not write");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(Duration::from_micros(137 * round)).await;
        })
        .unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let value = parse(&text);
        assert_eq!(value["clusters"].as_sequence().unwrap().len(), 3, "{text}");
        assert_eq!(value["x-unknown"], parse(FULL_KUBECONFIG)["x-unknown"]);
        assert!(text.contains("# production") && text.contains("# the end"), "{text}");
        let _ = fs::remove_file(home.path().join("config.lock"));
    }
}

/// Any YAML value, of the depth and breadth that a kubeconfig can have.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~]{0,12}".prop_map(Value::from),
        "[a-z:#\\-\n '\"\t]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-zA-Z-]{1,8}", inner), 0..4).prop_map(|pairs| {
                Value::Mapping(pairs.into_iter().map(|(key, value)| (key.into(), value)).collect())
            }),
        ]
    })
}

/// A foreign kubeconfig: known lists and unknown fields, in any order.
fn any_kubeconfig() -> impl Strategy<Value = Value> {
    let list = |key: &'static str, content: &'static str| {
        prop::collection::vec(("[a-z]{1,6}", any_value(), any_value()), 0..4).prop_map(
            move |entries| {
                let entries = entries.into_iter().map(|(name, value, unknown)| {
                    let mut entry = Mapping::new();
                    entry.insert(content.into(), value);
                    entry.insert("name".into(), name.into());
                    entry.insert("x-unknown".into(), unknown);
                    Value::Mapping(entry)
                });
                (Value::from(key), Value::Sequence(entries.collect()))
            },
        )
    };
    let field = ("x-[a-z]{1,6}", any_value()).prop_map(|(key, value)| (Value::from(key), value));
    let known = (
        list("clusters", "cluster"),
        list("contexts", "context"),
        list("users", "user"),
        prop::collection::vec(field, 0..3),
    );
    known.prop_flat_map(|(clusters, contexts, users, mut fields)| {
        fields.extend([clusters, contexts, users]);
        Just(fields).prop_shuffle().prop_map(|fields| Value::Mapping(fields.into_iter().collect()))
    })
}

/// The document without the parts that a merge may change.
fn without_ours(mut value: Value) -> Value {
    let ours = ours();
    let document = value.as_mapping_mut().unwrap();
    for ((list, _), (name, _)) in super::entries::ENTRY_KINDS.into_iter().zip(&ours.items) {
        if let Some(entries) = document.get_mut(list).and_then(Value::as_sequence_mut) {
            entries.retain(|entry| entry["name"] != *name);
        }
    }
    for key in ["apiVersion", "kind", "current-context"] {
        document.remove(key);
    }
    value
}

proptest! {
    #[test]
    fn foreign_content_survives_any_merge(
        config in any_kubeconfig(),
        use_context: bool,
        comments in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let plain = serde_norway::to_string(&config).unwrap();
        // Comments between the lines of the document, where they do not split a block scalar.
        let mut lines: Vec<String> = plain.lines().map(str::to_owned).collect();
        let mut written = Vec::new();
        for (number, place) in comments.iter().enumerate() {
            let mut with = lines.clone();
            let comment = format!("# comment {number}");
            with.insert(place.index(lines.len() + 1), comment.clone());
            if serde_norway::from_str::<Value>(&with.join("\n")).is_ok_and(|value| value == config) {
                lines = with;
                written.push(comment);
            }
        }
        let text = lines.join("\n") + "\n";
        let (new, layout_kept) = merge_text(&text, &ours(), use_context).unwrap();
        let value: Value = serde_norway::from_str(&new).unwrap();
        prop_assert_eq!(without_ours(value.clone()), without_ours(config.clone()));
        if layout_kept {
            for comment in written {
                prop_assert!(new.contains(&comment), "{} is gone from\n{}", comment, new);
            }
        }
        if use_context {
            prop_assert_eq!(&value["current-context"], "tenant-context");
        } else {
            prop_assert_eq!(value.get("current-context"), config.get("current-context"));
        }
        // A second merge changes nothing.
        let (again, _) = merge_text(&new, &ours(), use_context).unwrap();
        prop_assert_eq!(again, new);
    }
}
