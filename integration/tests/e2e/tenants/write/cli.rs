//! The plugin's commands that write Tenants.

use integration::kubectl::Kubectl;
use integration::person::Person;
use integration::process::Finished;
use integration::world::World;
use serde_json::{Value, json};

use super::{SOLAR, TENANT_BROKER, builder, start, tenant};
use crate::tenants::with_object;

/// Runs `kubectl tenant tenants …`.
async fn run(kubectl: &Kubectl, args: &[&str], input: &str) -> Finished {
    let args = ["tenant", "tenants"].iter().chain(args);
    kubectl.run_with_input(args, input).await.unwrap()
}

/// Runs it, and returns what it printed.
async fn printed(person: &Person, args: &[&str], input: &str) -> String {
    run(person.kubectl(), args, input).await.success().unwrap().stdout
}

/// Runs it, and it has to fail with this exit code and text.
async fn fails(person: &Person, args: &[&str], input: &str, code: i32, text: &str) {
    let finished = run(person.kubectl(), args, input).await;
    assert_eq!(finished.code(), code, "{args:?}: {finished:?}");
    assert!(finished.stderr.contains(text), "{args:?}: {finished:?}");
}

/// Writes an editor: a shell script whose first argument is the file.
fn editor(person: &Person, script: &str) -> Kubectl {
    let path = person.home().join("editor.sh");
    std::fs::write(&path, script).unwrap();
    let line = format!("sh '{}'", path.display());
    person.kubectl().clone().env("KUBE_EDITOR", line)
}

#[tokio::test]
async fn an_administrator_writes_tenants_with_the_plugin() {
    let (world, admin, _) = start(builder()).await;
    let operator = world.administrator("olga").await.unwrap();
    let alice = world.person("alice").await.unwrap();
    for person in [&operator, &alice] {
        person.login(&[]).await.unwrap().success().unwrap();
    }
    a_tenant_is_created_from_flags(&admin, &operator, &alice).await;
    files_are_applied(&admin, &operator).await;
    a_tenant_is_edited(&world, &admin, &operator).await;
    a_tenant_is_deleted(&operator).await;
}

async fn a_tenant_is_created_from_flags(admin: &Kubectl, operator: &Person, alice: &Person) {
    let flags = ["--owner", "alice@example.com", "--owner-group", "dev", "--quota", "2"];
    let create = [&["create", SOLAR][..], &flags].concat();
    let dry = [&create[..], &["--dry-run=client", "-o", "yaml"]].concat();
    let manifest = printed(operator, &dry, "").await;
    // What is printed is for kubectl and Git.
    with_object(admin, &["create", "--dry-run=server"], manifest.as_str()).await.success().unwrap();
    let server = [&create[..], &["--dry-run=server"]].concat();
    assert_eq!(printed(operator, &server, "").await, "tenant solar created (server dry run)\n");
    fails(alice, &create, "", 5, "only an administrator").await;
    assert_eq!(printed(operator, &create, "").await, "tenant solar created\n");
    let live = tenant(admin, TENANT_BROKER, SOLAR).await;
    assert_eq!(live["spec"]["owners"][1]["name"], "dev", "{live}");
    assert_eq!(live["spec"]["namespaceOptions"]["quota"], 2, "{live}");
    fails(operator, &create, "", 5, "a Tenant solar exists already").await;
    fails(operator, &["create", "Lunar", "--owner", "a"], "", 2, "lower case").await;
    fails(operator, &["create", "lunar"], "", 2, "at least one owner").await;
    let unknown = ["create", "lunar", "--owner", "system:admin"];
    fails(operator, &unknown, "", 5, "spec.owners[0].name").await;
    let applied = printed(operator, &["apply", "-f", "-"], &manifest).await;
    assert_eq!(applied, "tenant solar unchanged\n");
}

async fn files_are_applied(admin: &Kubectl, operator: &Person) {
    let manifest = |name: &str, spec: Value| {
        let object = json!({"apiVersion": TENANT_BROKER.1, "kind": "Tenant",
            "metadata": {"name": name}, "spec": spec});
        format!("---\n{object}\n")
    };
    let spec = |quota: u32| {
        json!({
            "owners": [{"kind": "User", "name": "alice@example.com"}],
            "namespaceOptions": {"quota": quota},
        })
    };
    let both = manifest(SOLAR, spec(3)) + &manifest("lunar", spec(1));
    let apply = ["apply", "-f", "-"];
    let dry = printed(operator, &[&apply[..], &["--dry-run=server"]].concat(), &both).await;
    assert_eq!(
        dry,
        "tenant solar configured (server dry run)\ntenant lunar created (server dry run)\n"
    );
    let finished = run(operator.kubectl(), &apply, &both).await.success().unwrap();
    assert_eq!(finished.stdout, "tenant solar configured\ntenant lunar created\n");
    assert!(finished.stderr.contains("solar: spec.owners[Group dev]: removed"), "{finished:?}");
    assert_eq!(
        printed(operator, &apply, &both).await,
        "tenant solar unchanged\ntenant lunar unchanged\n"
    );
    // One that is refused does not keep the others from being applied.
    let one_bad = manifest(SOLAR, json!({"owners": []})) + &manifest("lunar", spec(2));
    let finished = run(operator.kubectl(), &apply, &one_bad).await;
    assert_eq!((finished.code(), finished.stdout.as_str()), (5, "tenant lunar configured\n"));
    assert!(finished.stderr.contains("tenant solar: the broker refused"), "{finished:?}");
    assert!(finished.stderr.contains("spec.owners"), "{finished:?}");
    // Another manager.
    let tool = json!({"apiVersion": TENANT_BROKER.1, "kind": "Tenant",
        "metadata": {"name": "lunar"}, "spec": {"owners": spec(2)["owners"], "tier": "basic"}});
    let command = ["apply", "--server-side", "--field-manager=gitops"];
    with_object(admin, &command, tool.to_string()).await.success().unwrap();
    let lunar = manifest("lunar", spec(2));
    fails(operator, &apply, &lunar, 5, "spec.tier (manager gitops)").await;
    let forced = printed(operator, &[&apply[..], &["--force-conflicts"]].concat(), &lunar).await;
    assert_eq!(forced, "tenant lunar configured\n");
    let capsule = both.replace("tenant-broker.io/v1alpha1", "capsule.clastix.io/v1beta2");
    fails(operator, &apply, &capsule, 1, "kubectl tenant import").await;
}

async fn a_tenant_is_edited(world: &World, admin: &Kubectl, operator: &Person) {
    // The file is private.
    let same = editor(operator, "[ \"$(stat -c %a \"$1\")\" = 600 ]\n");
    let finished = run(&same, &["edit", SOLAR], "").await.success().unwrap();
    assert!(finished.stderr.contains("Edit cancelled"), "{finished:?}");
    let change = editor(operator, "sed -i 's/quota: 3/quota: 5/' \"$1\"\n");
    let finished = run(&change, &["edit", SOLAR], "").await.success().unwrap();
    assert_eq!(finished.stdout, "tenant solar configured\n");
    let live = tenant(admin, TENANT_BROKER, SOLAR).await;
    assert_eq!(live["spec"]["namespaceOptions"]["quota"], 5, "{live}");

    // Refused: opened again with the reason at the top, and corrected.
    let correct = editor(
        operator,
        "if grep -q '^# .*spec.namespaceOptions.quota' \"$1\"\n\
         then sed -i 's/quota: 0/quota: 6/' \"$1\"\n\
         else sed -i 's/quota: 5/quota: 0/' \"$1\"\nfi\n",
    );
    let finished = run(&correct, &["edit", SOLAR], "").await.success().unwrap();
    assert_eq!(finished.stdout, "tenant solar configured\n");
    let live = tenant(admin, TENANT_BROKER, SOLAR).await;
    assert_eq!(live["spec"]["namespaceOptions"]["quota"], 6, "{live}");

    // Not corrected: the text stays.
    let wrong = editor(operator, "sed -i 's/quota: 6/quota: x/' \"$1\"\n");
    let finished = run(&wrong, &["edit", SOLAR], "").await;
    assert_eq!(finished.code(), 5, "{finished:?}");
    let (_, path) = finished.stderr.split_once("your text is in ").unwrap();
    let path = path.lines().next().unwrap().trim();
    assert!(std::fs::read_to_string(path).unwrap().contains("quota: x"), "{path}");
    std::fs::remove_dir_all(std::path::Path::new(path).parent().unwrap()).unwrap();

    // Somebody else changes it while it is open.
    let meanwhile = format!(
        "sed -i 's/quota: 6/quota: 7/' \"$1\"\n'{}' --kubeconfig '{}' patch {} {SOLAR} --type=merge \
         -p '{{\"spec\":{{\"namespaceOptions\":{{\"quota\":9}}}}}}' >&2\n",
        admin.program().display(),
        world.cluster().admin_kubeconfig().display(),
        TENANT_BROKER.0,
    );
    let meanwhile = editor(operator, &meanwhile);
    let finished = run(&meanwhile, &["edit", SOLAR], "").await;
    assert_eq!(finished.code(), 5, "{finished:?}");
    assert!(finished.stderr.contains("changed or replaced meanwhile"), "{finished:?}");
    let fails = editor(operator, "exit 3\n");
    let finished = run(&fails, &["edit", SOLAR], "").await;
    assert_eq!(finished.code(), 1, "{finished:?}");
    let live = tenant(admin, TENANT_BROKER, SOLAR).await;
    assert_eq!(live["spec"]["namespaceOptions"]["quota"], 9, "{live}");
}

async fn a_tenant_is_deleted(operator: &Person) {
    fails(operator, &["delete", "lunar"], "lunar\n", 2, "--yes").await;
    let dry = printed(operator, &["delete", "lunar", "--dry-run"], "").await;
    assert_eq!(dry, "tenant lunar deleted (server dry run)\n");
    assert_eq!(
        printed(operator, &["delete", "lunar", "--yes"], "").await,
        "tenant lunar deleted\n"
    );
    fails(operator, &["delete", "lunar", "--yes"], "", 5, "not found").await;
    let keep = ["delete", SOLAR, "--namespaces", "keep", "--yes", "-o", "json"];
    let deleted: Value = serde_json::from_str(&printed(operator, &keep, "").await).unwrap();
    assert_eq!(deleted["kept_namespaces"], json!([]), "{deleted}");
}
