//! The plugin's commands for models, as a person types them.

use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::process::Finished;
use serde_json::{Value, json};

use super::fixture::{TIMEOUT, builder_with_kinds, create_with_status, install_kinds, model};
use crate::object;

const LSD: &str = "lsd-genai-playground";

async fn models(kubectl: &Kubectl, args: &[&str]) -> Finished {
    kubectl.run(["tenant", "models"].iter().chain(args)).await.unwrap()
}

/// Sets the phase of the distribution once it is there, as its operator does.
async fn set_phase(admin: &Kubectl, namespace: &str, phase: &str) {
    let patch = json!({"status": {"phase": phase}}).to_string();
    let name = format!("llamastackdistribution/{LSD}");
    let args =
        ["patch", &name, "-n", namespace, "--subresource=status", "--type=merge", "-p", &patch];
    probe::until("the distribution", TIMEOUT, || async {
        let patched = admin.run(args).await?;
        Ok(if patched.status.success() { Probe::Ready(()) } else { Probe::NotYet(patched.stderr) })
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_lists_models_and_installs_watches_and_deletes_a_llama_stack() {
    let world = builder_with_kinds().start().await.unwrap();
    install_kinds(&world).await;
    let admin = world.admin_kubectl().unwrap();
    let alice = world.person("alice").await.unwrap();
    let (kubectl, namespace) = (alice.kubectl(), alice.namespace());
    alice.login(&[]).await.unwrap().success().unwrap();

    let none = models(kubectl, &[]).await.success().unwrap();
    assert!(none.stderr.contains("opendatahub.io/genai-asset=true"), "{}", none.stderr);
    let none = models(kubectl, &["status"]).await.success().unwrap();
    assert!(none.stderr.contains("there is no Llama Stack in"), "{}", none.stderr);

    let url = format!("http://granite.{namespace}.svc.cluster.local");
    let status = json!({
        "address": {"url": url}, "conditions": [{"type": "Ready", "status": "True"}],
    });
    create_with_status(&admin, &model(&namespace, "granite"), &status).await;
    create_with_status(&admin, &model(&namespace, "qwen"), &json!({})).await;
    let listed = models(kubectl, &["-n", &namespace]).await.success().unwrap();
    let rows: Vec<Vec<&str>> =
        listed.stdout.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows, [vec!["granite", "granite", "Running", &url], vec!["qwen", "qwen", "Stop"]]);

    // A model without an address, and one that is not there: nothing is created.
    for (name, told) in [("qwen", "has no address yet"), ("absent", "absent")] {
        let refused = models(kubectl, &["install", "granite", name]).await;
        assert_eq!(refused.code(), 5, "{}", refused.stderr);
        assert!(refused.stderr.contains(told), "{}", refused.stderr);
    }
    assert!(models(kubectl, &["status", "-o", "json"]).await.stdout.contains("\"data\": null"));

    let install = ["install", "granite", "--wait", "5m"];
    let (installed, ()) = tokio::join!(models(kubectl, &install), async {
        set_phase(&admin, &namespace, "Initializing").await;
        set_phase(&admin, &namespace, "Ready").await;
    });
    let installed = installed.success().unwrap();
    assert_eq!(installed.stdout, format!("LlamaStackDistribution {LSD} created in {namespace}\n"));
    assert_eq!(installed.stderr.lines().last(), Some("lsd-genai-playground: Ready"));
    let again = models(kubectl, &["install", "granite"]).await;
    assert_eq!(again.code(), 5, "{}", again.stderr);
    assert!(again.stderr.contains("already"), "{}", again.stderr);
    let shown = models(kubectl, &["status", "-o", "json"]).await.success().unwrap();
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(shown["data"]["phase"], "Ready");

    // Another person gets 403, and reads which rights are missing and who gives them.
    let bob = world.person("bob").await.unwrap();
    bob.login(&[]).await.unwrap().success().unwrap();
    for args in [&["-n", &namespace][..], &["delete", "-n", &namespace]] {
        let refused = models(bob.kubectl(), args).await;
        assert_eq!(refused.code(), 5, "{}", refused.stderr);
        for text in ["You don't have permission", "llamastackdistributions", "--model-services"] {
            assert!(refused.stderr.contains(text), "{text}: {}", refused.stderr);
        }
    }

    let deleted = models(kubectl, &["delete"]).await.success().unwrap();
    assert_eq!(deleted.stdout, format!("LlamaStackDistribution {LSD} deleted in {namespace}\n"));
    let left = object(&world, &["llamastackdistribution", LSD, "-n", &namespace]).await.unwrap();
    assert!(left.is_none(), "{left:?}");
    let gone = models(kubectl, &["delete"]).await;
    assert_eq!(gone.code(), 5, "{}", gone.stderr);
}
