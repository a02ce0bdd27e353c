//! Tenants with several versions of kubectl, through the gateway. Versions differ in how they encode
//! a namespace, find resources and ask what they may do.

use std::path::{Path, PathBuf};
use std::time::Duration;

use integration::kubectl::{self, Kubectl};
use integration::progress::print_message;
use integration::world::World;
use serde_json::json;

use super::reconcile::until_status;
use super::{TENANT_BROKER, until_served, with_object};
use crate::gateway::through_the_gateway;

/// Limit of the time until kubectl has printed an event.
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn kubectl_of_several_versions_uses_tenants() {
    use_tenants(&kubectl::oldest_and_newest().unwrap()).await;
}

#[tokio::test]
#[ignore = "takes minutes: cargo test --workspace --test e2e -- --ignored every_kubectl"]
async fn every_kubectl_uses_tenants() {
    use_tenants(&kubectl::all_versions().unwrap()).await;
}

async fn use_tenants(programs: &[PathBuf]) {
    let builder = World::builder().own_control_plane().installed("tenants.enabled", true).tls();
    let world = builder.setting("drift_seconds", 3600).start().await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    let alice = through_the_gateway(&world, "alice").await;
    let tenant = json!({
        "apiVersion": TENANT_BROKER.1,
        "kind": "Tenant",
        "metadata": {"name": "solar"},
        "spec": {"owners": [{"kind": "User", "name": alice.email()}]},
    });
    with_object(&admin, &["apply"], tenant.to_string()).await.success().unwrap();
    until_status(&world, |status| status["state"] == "Active").await;
    for (number, program) in programs.iter().enumerate() {
        let kubectl = alice.kubectl().clone().with_program(program.clone());
        let owner = Owner { kubectl, program, number };
        owner.uses_namespaces().await;
        print_message(&format!("{}: uses tenants", program.display()));
    }
}

/// An owner with one of the programs.
struct Owner<'a> {
    kubectl: Kubectl,
    program: &'a Path,
    number: usize,
}

impl Owner<'_> {
    async fn uses_namespaces(&self) {
        self.has_no_namespace().await;
        let watch = ["get", "namespaces", "--watch", "--output-watch-events"];
        let watch = self.kubectl.spawn(watch).unwrap();
        let names = ["created", "applied", "server-side"];
        let names = names.map(|name| format!("solar-{name}-{}", self.number));
        let [created, applied, on_server] = names.each_ref().map(String::as_str);
        self.creates_a_namespace(created).await;
        self.applies_a_namespace_with_its_contents(applied, on_server).await;
        self.asks_what_is_allowed(created).await;
        // One at a time: kubectl stops waiting for the second one of a command when its RoleBindings are gone.
        for name in [created, applied, on_server] {
            self.prints(&["delete", "namespace", name], "deleted").await;
            self.fails(&["get", "namespace", name], "NotFound").await;
        }
        self.has_no_namespace().await;
        for event in ["ADDED", "DELETED"] {
            for name in [created, applied, on_server] {
                let is_it = |line: &str| line.split_whitespace().take(2).eq([event, name]);
                let has_it = |said: &str| said.lines().any(is_it);
                watch.until_stdout(event, EVENT_TIMEOUT, has_it).await.unwrap();
            }
        }
    }

    async fn has_no_namespace(&self) {
        let listed = self.kubectl.run(["get", "namespaces", "-o", "name"]).await.unwrap();
        assert!(listed.status.success() && listed.stdout.is_empty(), "{}: {listed:?}", self.name());
    }

    async fn creates_a_namespace(&self, name: &str) {
        let (namespace, create) = (format!("namespace/{name}"), ["create", "namespace", name]);
        self.prints(&create, &format!("{namespace} created\n")).await;
        self.fails(&create, "AlreadyExists").await;
        self.fails(&["create", "namespace", "stellar-a"], "begin with solar-").await;
        self.prints(&["get", &namespace, "-o", "name"], &format!("{namespace}\n")).await;
        self.prints(&["get", "namespaces"], name).await;
        let active = ["wait", "--for=jsonpath={.status.phase}=Active", &namespace];
        self.prints(&active, "condition met").await;
        for other in ["solar-none", "kube-system", "tenant-lunar"] {
            self.fails(&["get", "namespace", other], "NotFound").await;
        }
    }

    /// With the patch that kubectl computes, and on the server.
    async fn applies_a_namespace_with_its_contents(&self, name: &str, on_server: &str) {
        let file = |namespace: &str| {
            format!(
                "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n---\n\
                 apiVersion: v1\nkind: ConfigMap\n\
                 metadata: {{name: notes, namespace: {namespace}}}\n"
            )
        };
        for result in ["created", "unchanged"] {
            let expected = format!("namespace/{name} {result}\nconfigmap/notes {result}\n");
            self.applies(&["apply", "-f", "-"], file(name), &expected).await;
        }
        let result = "serverside-applied";
        let expected = format!("namespace/{on_server} {result}\nconfigmap/notes {result}\n");
        let apply = ["apply", "--server-side", "-f", "-"];
        self.applies(&apply, file(on_server), &expected).await;
        self.prints(&["get", "configmap", "notes", "-n", on_server], "notes").await;
    }

    async fn applies(&self, args: &[&str], file: String, expected: &str) {
        let done = self.kubectl.run_with_input(args, file).await.unwrap();
        assert_eq!(done.stdout, expected, "{}: {args:?}: {done:?}", self.name());
    }

    async fn asks_what_is_allowed(&self, namespace: &str) {
        for (args, answer) in [
            (&["create", "namespaces"][..], "yes\n"),
            (&["list", "namespaces", "-A"], "yes\n"),
            (&["create", "pods", "-n", namespace], "yes\n"),
            (&["delete", "namespaces", "-n", namespace], "yes\n"),
            (&["list", "nodes"], "no\n"),
            (&["create", "pods", "-n", "kube-system"], "no\n"),
        ] {
            let said = self.kubectl.run([&["auth", "can-i"][..], args].concat()).await.unwrap();
            assert_eq!(said.stdout, answer, "{}: {args:?}: {said:?}", self.name());
        }
        let list = ["auth", "can-i", "--list", "-n", namespace];
        self.prints(&list, "deployments.apps").await;
    }

    /// Runs a command that has to succeed, and to print this text.
    async fn prints(&self, args: &[&str], text: &str) {
        let done = self.kubectl.run(args).await.unwrap();
        let is_so = done.status.success() && done.stdout.contains(text);
        assert!(is_so, "{}: {args:?} without {text:?}: {done:?}", self.name());
    }

    /// Runs a command that has to fail with this text.
    async fn fails(&self, args: &[&str], text: &str) {
        let done = self.kubectl.run(args).await.unwrap();
        let is_so = !done.status.success() && done.stderr.contains(text);
        assert!(is_so, "{}: {args:?} without {text:?}: {done:?}", self.name());
    }

    fn name(&self) -> impl std::fmt::Display {
        self.program.display()
    }
}
