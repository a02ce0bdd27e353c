//! A cluster with the policies for tenants and with no broker that acts: the tests make homes,
//! namespaces and bindings as the broker would, and people use client certificates.

use anyhow::Context as _;
use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::process::Finished;
use integration::world::{World, WorldBuilder};
use serde_json::{Value, json};

pub(super) use crate::{RIGHTS_TIMEOUT, until_accepted, until_refused};

pub(super) const CREATE: &[&str] = &["create", "-f", "-"];
const RBAC: &str = "rbac.authorization.k8s.io";

pub(super) struct TenantCluster {
    pub(super) world: World,
    pub(super) admin: Kubectl,
}

impl TenantCluster {
    /// Starts a world, and stops its broker, which checked the policies then.
    pub(super) async fn start(builder: WorldBuilder) -> Self {
        let world = builder.own_control_plane().start().await.unwrap();
        world.broker().stop().await.unwrap();
        let admin = world.admin_kubectl().unwrap();
        Self { world, admin }
    }

    /// A person with a client certificate.
    pub(super) fn person(&self, name: &str, group: Option<&str>) -> Kubectl {
        let file = self.world.cluster().kubeconfig_for(name, group, self.world.folder()).unwrap();
        self.world.kubectl_with(&file).unwrap()
    }

    /// Runs kubectl as an administrator of last resort (`system:masters`).
    pub(super) async fn as_admin(&self, args: &[&str]) {
        self.admin.run(args).await.unwrap().success().unwrap();
    }

    /// Creates an object as the administrator.
    pub(super) async fn make(&self, object: &Value) {
        self.admin.run_with_input(CREATE, object.to_string()).await.unwrap().success().unwrap();
    }

    /// Makes the home of a tenant with its owner.
    pub(super) async fn home(&self, tenant: &str, owner: &Value) {
        let name = format!("tenant-{tenant}");
        let labels = json!({
            "tenant-broker.io/home": "true",
            "tenant-broker.io/tenant": tenant,
            "pod-security.kubernetes.io/enforce": "restricted",
        });
        self.make(&namespace(&name, &labels)).await;
        let binding = format!("tenant-{tenant}-tenant-owner");
        self.make(&role_binding(&name, &binding, "tenant-owner", &json!([owner]))).await;
    }

    /// Makes a namespace of a tenant in which this person is an administrator.
    pub(super) async fn namespace(&self, tenant: &str, name: &str, more: &Value, person: &str) {
        let mut labels = json!({
            "tenant-broker.io/tenant": tenant,
            "tenant-broker.io/tier": "basic",
            "pod-security.kubernetes.io/enforce": "baseline",
        });
        for (key, value) in more.as_object().unwrap() {
            labels[key] = value.clone();
        }
        self.make(&namespace(name, &labels)).await;
        let binding = format!("tenant-{tenant}-admin");
        self.make(&role_binding(name, &binding, "admin", &json!([user(person)]))).await;
    }

    /// Gives a person a right everywhere, so that the policies alone decide.
    pub(super) async fn give(&self, person: &str, name: &str, verbs: &str, resources: &str) {
        let (verbs, resources) = (format!("--verb={verbs}"), format!("--resource={resources}"));
        self.as_admin(&["create", "clusterrole", name, &verbs, &resources]).await;
        let (role, user) = (format!("--clusterrole={name}"), format!("--user={person}"));
        self.as_admin(&["create", "clusterrolebinding", name, &role, &user]).await;
    }
}

pub(super) fn namespace(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

pub(super) fn role_binding(namespace: &str, name: &str, role: &str, subjects: &Value) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": "RoleBinding",
        "metadata": {"namespace": namespace, "name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    })
}

pub(super) fn user(name: &str) -> Value {
    json!({"apiGroup": RBAC, "kind": "User", "name": name})
}

pub(super) fn group(name: &str) -> Value {
    json!({"apiGroup": RBAC, "kind": "Group", "name": name})
}

pub(super) fn account(namespace: &str, name: &str) -> Value {
    json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
}

/// Waits until RBAC allows a person something: `resourceAttributes` of an access review.
pub(super) async fn until_allowed(person: &Kubectl, attributes: &Value) {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    probe::until("the right", RIGHTS_TIMEOUT, || async {
        let sent = ["create", "--raw", path, "-f", "-"];
        let answer = person.run_with_input(sent, review.to_string()).await?.success()?;
        let answer: Value = serde_json::from_str(&answer.stdout).context("read a review")?;
        let is_allowed = answer["status"]["allowed"] == true;
        Ok(if is_allowed { Probe::Ready(()) } else { Probe::NotYet(answer.to_string()) })
    })
    .await
    .unwrap();
}

/// Sends an object with a kubectl command such as `create -f -`.
pub(super) async fn send(person: &Kubectl, command: &[&str], object: &Value) -> Finished {
    person.run_with_input(command, object.to_string()).await.unwrap()
}

/// Checks that the API server forbade it with this text: the name of a policy, or its message.
pub(super) fn is_refused(finished: &Finished, what: &str, text: &str) {
    assert!(!finished.status.success(), "{what} should be refused by {text}");
    assert!(
        finished.stderr.contains("orbidden") && finished.stderr.contains(text),
        "{what} should be refused by {text}: {}",
        finished.stderr
    );
}

/// Runs commands that these policies have to refuse.
pub(super) async fn are_refused(person: &Kubectl, attempts: &[(&[&str], &str)]) {
    for (args, text) in attempts {
        is_refused(&person.run(*args).await.unwrap(), &format!("{args:?}"), text);
    }
}

/// Runs commands that have to succeed.
pub(super) async fn are_accepted(person: &Kubectl, commands: &[&[&str]]) {
    for args in commands {
        person.run(*args).await.unwrap().success().unwrap();
    }
}
