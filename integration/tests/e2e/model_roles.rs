//! `tenant-broker install --model-services`: the ClusterRoles that give people the kinds of KServe
//! and Llama Stack. Each right is necessary: without it one request of a person is refused.

use std::time::Duration;

use integration::kubectl::Kubectl;
use integration::person::Person;
use integration::probe::{self, Probe};
use integration::process::Finished;
use integration::world::World;
use serde_json::{Value, json};

use crate::install::install;

/// Limit of the time until RBAC follows a role, or the API server serves a kind.
const TIMEOUT: Duration = Duration::from_mins(2);
const VIEW: &str = "tenant-model-services-view";
const EDIT: &str = "tenant-model-services-edit";

/// The kinds: plural, kind, API group, version. They follow KServe 0.15 and 0.16 and version 0.4 of
/// the Llama Stack operator, without a schema, because RBAC knows no fields.
const KINDS: [(&str, &str, &str, &str); 4] = [
    ("inferenceservices", "InferenceService", "serving.kserve.io", "v1beta1"),
    ("llminferenceservices", "LLMInferenceService", "serving.kserve.io", "v1alpha1"),
    ("servingruntimes", "ServingRuntime", "serving.kserve.io", "v1alpha1"),
    ("llamastackdistributions", "LlamaStackDistribution", "llamastack.io", "v1alpha1"),
];

/// A verb on a kind, by its number in [`KINDS`].
type Right = (&'static str, usize);

/// Every right of each role.
fn rights() -> Vec<(&'static str, Right)> {
    let reads = (0..KINDS.len()).flat_map(|kind| ["get", "list", "watch"].map(|verb| (verb, kind)));
    let writes = ["create", "delete"].map(|verb| (verb, 3));
    reads.map(|right| (VIEW, right)).chain(writes.map(|right| (EDIT, right))).collect()
}

fn definition((plural, kind, group, version): (&str, &str, &str, &str)) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{"name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

async fn install_kinds(admin: &Kubectl) {
    for kind in KINDS {
        let definition = definition(kind).to_string();
        admin.run_with_input(["create", "-f", "-"], definition).await.unwrap().success().unwrap();
    }
    for (plural, _, group, _) in KINDS {
        let args = ["get", &format!("{plural}.{group}"), "--all-namespaces"];
        probe::until("the kind", TIMEOUT, || async {
            let finished = admin.run(args).await?;
            Ok(if finished.status.success() {
                Probe::Ready(())
            } else {
                Probe::NotYet(finished.stderr)
            })
        })
        .await
        .unwrap();
    }
}

/// Sends the request that needs a right.
async fn request(person: &Person, (verb, kind): Right) -> Finished {
    let (plural, kind, group, version) = KINDS[kind];
    let list = format!("/apis/{group}/{version}/namespaces/{}/{plural}", person.namespace());
    let kubectl = person.kubectl();
    match verb {
        "get" => kubectl.run(["get", "--raw", &format!("{list}/absent")]).await,
        "list" => kubectl.run(["get", "--raw", &list]).await,
        "watch" => kubectl.run(["get", "--raw", &format!("{list}?watch=1&timeoutSeconds=1")]).await,
        "create" => {
            let object = json!({
                "apiVersion": format!("{group}/{version}"), "kind": kind,
                "metadata": {"name": "lsd-genai-playground"},
            });
            // A namespace has one of them.
            let path = format!("{list}?dryRun=All");
            kubectl.run_with_input(["create", "--raw", &path, "-f", "-"], object.to_string()).await
        }
        _ => kubectl.run(["delete", "--raw", &format!("{list}/absent")]).await,
    }
    .unwrap()
}

/// Waits until the API server allows a request, or refuses it for a missing right.
async fn until(person: &Person, right: Right, allowed: bool) {
    let (verb, kind) = right;
    let what =
        format!("{verb} {} to be {}", KINDS[kind].0, if allowed { "allowed" } else { "refused" });
    probe::until(&what, TIMEOUT, || async {
        let finished = request(person, right).await;
        let is_refused =
            finished.stderr.contains("Forbidden") || finished.stderr.contains("forbidden");
        let is_answered = finished.status.success() || finished.stderr.contains("NotFound");
        Ok(match (allowed, is_answered, is_refused) {
            (true, true, _) | (false, _, true) => Probe::Ready(()),
            _ => Probe::NotYet(finished.stderr),
        })
    })
    .await
    .unwrap();
}

/// Rules that grant these rights, one for each.
fn rules(rights: &[Right]) -> Value {
    rights
        .iter()
        .map(|(verb, kind)| {
            let (plural, _, group, _) = KINDS[*kind];
            json!({"apiGroups": [group], "resources": [plural], "verbs": [verb]})
        })
        .collect()
}

async fn give(admin: &Kubectl, role: &str, rights: &[Right]) {
    let patch = json!({"rules": rules(rights)}).to_string();
    let args = ["patch", "clusterrole", role, "--type=merge", "-p", &patch];
    admin.run(args).await.unwrap().success().unwrap();
}

fn has_line(finished: &Finished, line: &str) {
    assert!(finished.stdout.lines().any(|there| there == line), "{line}: {}", finished.stdout);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_right_of_people_on_models_is_needed() {
    let builder = World::builder().own_control_plane().setting("model_services.enabled", true);
    let world = builder.start().await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    install_kinds(&admin).await;
    let alice = world.person("alice").await.unwrap();
    alice.login(&[]).await.unwrap().success().unwrap();
    let all = rights();
    for (_, right) in &all {
        until(&alice, *right, false).await;
    }

    let of_admin = "the tiers' role admin has the rights of model services";
    let without = doctor(&world, of_admin).await.unwrap();
    assert_eq!(without["outcome"], "warn", "{without}");
    assert!(without["detail"].as_str().unwrap().starts_with("it lacks 14 of them"), "{without}");
    let applied = install(&world, &["--apply", "--model-services"]).await.success().unwrap();
    for role in [VIEW, EDIT] {
        has_line(&applied, &format!("ClusterRole {role} created"));
    }
    assert_eq!(
        install(&world, &["--diff", "--model-services"]).await.success().unwrap().stdout,
        ""
    );
    for (_, right) in &all {
        until(&alice, *right, true).await;
    }
    assert_eq!(doctor(&world, of_admin).await.unwrap()["outcome"], "pass");
    a_changed_role_is_found(&world, &admin).await;
    for (role, right) in &all {
        let of_role = all.iter().filter(|(other, _)| other == role).map(|(_, right)| *right);
        let whole: Vec<Right> = of_role.collect();
        let rest: Vec<Right> = whole.iter().copied().filter(|other| other != right).collect();
        give(&admin, role, &rest).await;
        until(&alice, *right, false).await;
        give(&admin, role, &whole).await;
        until(&alice, *right, true).await;
    }

    each_role_of_kubernetes_has_its_part(&admin).await;

    // A forgotten flag is shown, and takes the roles away.
    install(&world, &["--apply", "--model-services"]).await.success().unwrap();
    let differs = install(&world, &["--diff"]).await;
    assert_eq!(differs.code(), 1, "{}", differs.stderr);
    assert!(
        differs.stdout.contains(&format!("ClusterRole {VIEW} (in the cluster)")),
        "{}",
        differs.stdout
    );
    let removed = install(&world, &["--uninstall"]).await.success().unwrap();
    for role in [VIEW, EDIT] {
        has_line(&removed, &format!("ClusterRole {role} deleted"));
    }
    until(&alice, ("list", 0), false).await;
}

/// The check of the doctor with this title.
async fn doctor(world: &World, title: &str) -> Option<Value> {
    let report = world.broker().run(&["doctor", "-o", "json"]).await.unwrap().stdout;
    let report: Value = serde_json::from_str(&report).unwrap();
    let mut checks = report["checks"].as_array().into_iter().flatten();
    checks.find(|it| it["check"] == title).cloned()
}

/// A change of which the role of the tiers shows nothing.
async fn a_changed_role_is_found(world: &World, admin: &Kubectl) {
    let of_role = |role: &str| format!("the ClusterRole {role} gives people their rights");
    for role in [VIEW, EDIT] {
        let check = doctor(world, &of_role(role)).await.unwrap();
        assert_eq!(check["outcome"], "pass", "{check}");
    }
    let label = "rbac.authorization.k8s.io/aggregate-to-view";
    for (value, outcome) in [(json!(null), "warn"), (json!("true"), "pass")] {
        let patch = json!({"metadata": {"labels": {label: value}}}).to_string();
        let args = ["patch", "clusterrole", VIEW, "--type=merge", "-p", &patch];
        admin.run(args).await.unwrap().success().unwrap();
        let check = doctor(world, &of_role(VIEW)).await.unwrap();
        assert_eq!(check["outcome"], outcome, "{check}");
    }
    admin.run(["delete", "clusterrole", EDIT]).await.unwrap().success().unwrap();
    let check = doctor(world, &of_role(EDIT)).await.unwrap();
    assert!(check["detail"].as_str().unwrap().contains("it is missing"), "{check}");
    install(world, &["--apply", "--model-services"]).await.success().unwrap();
}

/// `view` may look, `edit` and `admin` may also write. The broker itself has nothing of it.
async fn each_role_of_kubernetes_has_its_part(admin: &Kubectl) {
    admin.run(["create", "namespace", "plain"]).await.unwrap().success().unwrap();
    for role in ["view", "edit", "admin"] {
        let binding = ["create", "rolebinding", role, "-n", "plain", "--clusterrole", role];
        let user = format!("--user={role}er");
        let args: Vec<&str> = binding.into_iter().chain([user.as_str()]).collect();
        admin.run(args).await.unwrap().success().unwrap();
    }
    let may = async |user: &str, verb: &str, resource: &str| {
        let args = ["auth", "can-i", verb, resource, "-n", "plain", "--as", user];
        admin.run(args).await.unwrap().stdout.trim() == "yes"
    };
    let llama_stacks = "llamastackdistributions.llamastack.io";
    probe::until("RBAC to follow the bindings", TIMEOUT, || async {
        let bound = may("viewer", "list", llama_stacks).await
            && may("editer", "create", llama_stacks).await
            && may("adminer", "delete", llama_stacks).await;
        Ok(if bound { Probe::Ready(()) } else { Probe::NotYet("not yet".to_owned()) })
    })
    .await
    .unwrap();
    for verb in ["create", "delete", "update", "patch"] {
        assert!(!may("viewer", verb, llama_stacks).await, "{verb}");
        for (plural, _, group, _) in &KINDS[..3] {
            assert!(!may("adminer", verb, &format!("{plural}.{group}")).await, "{verb} {plural}");
        }
    }
    for (plural, _, group, _) in KINDS {
        let resource = format!("{plural}.{group}");
        assert!(may("viewer", "list", &resource).await, "{resource}");
        assert!(!may("tenant-broker", "list", &resource).await, "{resource}");
    }
}
