//! The document on owners and permissions as a story: its manifests and commands in its order, by
//! people with client certificates, and again by people who sign in at their provider.
//!
//! Its lines of `kubectl auth can-i` are a test of their own.

mod people;

use std::collections::BTreeSet;

use integration::kubectl::Kubectl;
use integration::oidc_provider::OidcProvider;
use integration::world::World;
use serde_json::{Value, json};

use super::manifests::MANIFESTS;
use super::reconcile::{RECONCILE_TIMEOUT, subjects, until};
use super::{CAPSULE, cells, until_served, with_object};
use crate::install::install;
use integration::probe::{self, Probe};
use people::People;

const PRODUCTION: &str = "solar-production";
const RBAC: &str = "rbac.authorization.k8s.io";
/// ClusterRoles that the document's Tenants name, beside those of the default settings.
const ROLES: &str = "admin,edit,view,tenant-namespace-deleter,tenant-resources,\
                     prometheus-servicemonitors-viewer,argoproj-provisioner";
/// The document's group scope.
const GROUPS: &str = "projectcapsule.dev,solar-users,system:serviceaccounts:tenant-system";

const TENANT_RESOURCES: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: tenant-resources
rules:
- apiGroups: ["capsule.clastix.io"]
  resources: ["tenantresources"]
  verbs: ["get", "list", "watch", "create", "update", "patch", "delete"]
"#;
const GATEWAY_RESOURCES: &str = r#"
kind: ClusterRole
apiVersion: rbac.authorization.k8s.io/v1
metadata:
  name: gateway-resources
  labels:
    rbac.authorization.k8s.io/aggregate-to-admin: "true"
rules:
- apiGroups: ["gateway.networking.k8s.io"]
  resources: ["gateways"]
  verbs: ["*"]
"#;
const SERVICE_MONITORS: &str = r#"
kind: ClusterRole
apiVersion: rbac.authorization.k8s.io/v1
metadata:
  name: prometheus-servicemonitors-viewer
rules:
- apiGroups: ["monitoring.coreos.com"]
  resources: ["servicemonitors"]
  verbs: ["get", "list", "watch"]
"#;
const ARGOPROJ: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: argoproj-provisioner
rules:
- apiGroups:
  - argoproj.io
  resources:
  - applications
  - appprojects
  verbs:
  - create
  - get
  - list
  - watch
  - update
  - patch
  - delete
";

/// Bill, who is an administrator of the cluster, and the people whom he gives a tenant.
struct Story {
    world: World,
    bill: Kubectl,
    people: People,
}

#[tokio::test]
async fn the_document_comes_true_directly_and_through_the_gateway() {
    let provider = OidcProvider::start().await.unwrap();
    let builder = World::builder()
        .own_control_plane()
        .installed("tenants.enabled", true)
        .installed("tenants.direct_namespaces", true)
        .installed("tenants.cluster_roles", ROLES)
        .installed("tenants.groups", GROUPS)
        .setting("drift_seconds", 3600)
        .tls();
    let builder = people::settings(&provider)
        .into_iter()
        .fold(builder, |builder, (key, value)| builder.setting(&key, value));
    let world = builder.start().await.unwrap();
    let bill = world.admin_kubectl().unwrap();
    world.broker().stop().await.unwrap();
    install(&world, &["--apply", "--capsule-api"]).await.success().unwrap();
    until_served(&bill, CAPSULE).await;
    world.broker().start().await.unwrap();

    let people = People::with_certificates(&world);
    let mut story = Story { world, bill, people };
    story.tell().await;
    // Tools of the document's API delete as they create.
    for namespace in story.namespaces().await {
        let delete = ["delete", "namespace", &namespace, "--wait=false", "--ignore-not-found"];
        succeeds(&story.bill, &delete).await;
    }
    story.until_tenant(|tenant| tenant["status"]["size"] == 0).await;
    succeeds(&story.bill, &["delete", "tenant", "solar"]).await;
    until(
        &story.world,
        &["rolebinding", "tenant-solar-tenant-owner", "-n", "tenant-solar"],
        Value::is_null,
    )
    .await;
    for namespace in ["solar-production", "solar-system"] {
        until(&story.world, &["namespace", namespace], Value::is_null).await;
    }

    story.people = People::of_provider(&story.world, &provider).await;
    story.tell().await;
}

async fn succeeds(kubectl: &Kubectl, args: &[&str]) -> String {
    kubectl.run(args).await.unwrap().success().unwrap().stdout
}

async fn is_forbidden(kubectl: &Kubectl, args: &[&str]) {
    let finished = kubectl.run(args).await.unwrap();
    let is_forbidden = !finished.status.success() && finished.stderr.contains("orbidden");
    assert!(is_forbidden, "{args:?}: {finished:?}");
}

/// Runs a command until it is accepted: a right that was just given may take some milliseconds.
async fn until_accepted(kubectl: &Kubectl, args: &[&str]) {
    probe::until(&args.join(" "), RECONCILE_TIMEOUT, || async {
        let tried = kubectl.run(args).await?;
        let is_accepted = tried.status.success();
        Ok(if is_accepted { Probe::Ready(()) } else { Probe::NotYet(tried.stderr) })
    })
    .await
    .unwrap();
}

/// Lists a kind that the cluster does not have. Whoever may list it is told so (404), anybody else
/// is refused (403).
async fn until_may_list(kubectl: &Kubectl, kind: &str) {
    let path = format!("/apis/{}", kind.replace("NAMESPACE", PRODUCTION));
    probe::until(&format!("the right to list {path}"), RECONCILE_TIMEOUT, || async {
        let tried = kubectl.run(["get", "--raw", &path]).await?;
        let may_list = tried.stderr.contains("could not find the requested resource");
        Ok(if may_list { Probe::Ready(()) } else { Probe::NotYet(tried.stderr) })
    })
    .await
    .unwrap();
}

impl Story {
    async fn tell(&self) {
        Box::pin(self.alice_is_made_the_owner()).await;
        Box::pin(self.another_user_a_group_and_a_service_account_own_the_tenant()).await;
        Box::pin(self.owner_roles_are_bound_in_each_namespace()).await;
        Box::pin(self.joe_may_only_view()).await;
        Box::pin(self.custom_and_aggregated_roles()).await;
        Box::pin(self.additional_role_bindings()).await;
    }

    /// Bill applies a manifest of the document, with the names that people have here.
    async fn apply(&self, manifest: usize) {
        let mut text = MANIFESTS[manifest].to_owned();
        for name in ["alice", "bob", "joe"] {
            let user = format!("name: {}\n", self.people.user(name));
            text = text.replace(&format!("name: {name}\n"), &user);
        }
        with_object(&self.bill, &["apply"], text).await.success().unwrap();
    }

    async fn until_tenant(&self, holds: impl Fn(&Value) -> bool) -> Value {
        until(&self.world, &[CAPSULE.0, "solar"], holds).await
    }

    /// The namespaces of the tenant.
    async fn namespaces(&self) -> Vec<String> {
        let tenant = self.until_tenant(|tenant| !tenant.is_null()).await;
        let names = tenant["status"]["namespaces"].as_array().cloned().unwrap_or_default();
        names.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    }

    /// An owner creates a namespace, and can use it as these roles say.
    async fn create_namespace(&self, owner: &Kubectl, name: &str) {
        until_accepted(owner, &["create", "namespace", name]).await;
        until_accepted(owner, &["get", "configmaps", "-n", name]).await;
    }

    /// Waits until somebody may not create namespaces any more. A right that was just taken away may
    /// be there for some milliseconds.
    async fn until_no_owner(&self, person: &Kubectl, prefix: &str) {
        for number in 1..20 {
            let name = format!("{prefix}-{number}");
            let tried = person.run(["create", "namespace", &name]).await.unwrap();
            if !tried.status.success() {
                assert!(tried.stderr.contains("orbidden"), "{tried:?}");
                return;
            }
            succeeds(&self.bill, &["delete", "namespace", &name, "--wait=false"]).await;
        }
        panic!("{prefix} still owns the tenant");
    }

    /// Waits until `kubectl get rolebinding` prints these roles, under the names of the broker, and
    /// returns what it prints.
    async fn until_roles(&self, reader: &Kubectl, roles: &[&str]) -> String {
        let name = |role: &&str| (format!("tenant-solar-{role}"), format!("ClusterRole/{role}"));
        let expected: BTreeSet<_> = roles.iter().map(name).collect();
        probe::until("the RoleBindings", RECONCILE_TIMEOUT, || async {
            let printed = reader.run(["get", "rolebinding", "-n", PRODUCTION]).await?;
            let rows = printed.stdout.lines().skip(1).map(cells);
            let rows: BTreeSet<_> =
                rows.map(|row| (row[0].to_owned(), row[1].to_owned())).collect();
            let is_so = rows == expected;
            Ok(if is_so { Probe::Ready(printed.stdout) } else { Probe::NotYet(printed.stdout) })
        })
        .await
        .unwrap()
    }

    /// Waits until a role is bound to these users and groups, and returns the RoleBinding.
    /// Memberships are bound beside them.
    async fn until_bound(&self, role: &str, expected: &[&str]) -> Value {
        let name = format!("tenant-solar-{role}");
        until(&self.world, &["rolebinding", &name, "-n", PRODUCTION], |binding| {
            let named = subjects(binding).into_iter().filter(|it| !it.starts_with("member-"));
            named.collect::<BTreeSet<_>>() == expected.iter().copied().collect()
        })
        .await
    }

    async fn alice_is_made_the_owner(&self) {
        self.apply(0).await;
        self.until_tenant(|tenant| tenant["status"]["state"] == "Active").await;
        let printed = succeeds(&self.bill, &["get", "tenant", "solar"]).await;
        let lines: Vec<Vec<&str>> = printed.lines().map(cells).collect();
        let columns =
            ["NAME", "STATE", "NAMESPACE QUOTA", "NAMESPACE COUNT", "NODE SELECTOR", "AGE"];
        assert_eq!(lines[0], columns);
        assert_eq!(lines[1][..3], ["solar", "Active", "0"], "{printed}");

        let alice = &self.people.alice;
        self.create_namespace(alice, PRODUCTION).await;
        is_forbidden(alice, &["get", "nodes"]).await;
        is_forbidden(alice, &["get", "persistentvolumes"]).await;
        is_forbidden(alice, &["get", "tenants.capsule.clastix.io"]).await;
        // Through the gateway it is the list of her own namespaces.
        let listed = ["get", "namespaces", "-o", "name"];
        if self.people.is_gateway {
            assert_eq!(succeeds(alice, &listed).await, format!("namespace/{PRODUCTION}\n"));
        } else {
            is_forbidden(alice, &listed).await;
        }
        self.create_namespace(alice, "solar-old").await;
        until_accepted(alice, &["delete", "namespace", "solar-old", "--wait=false"]).await;
    }

    async fn another_user_a_group_and_a_service_account_own_the_tenant(&self) {
        let People { bob, .. } = &self.people;
        let [alice_name, bob_name] = ["alice", "bob"].map(|name| self.people.user(name));
        self.apply(1).await;
        self.until_bound("admin", &[&alice_name, &bob_name]).await;
        self.create_namespace(bob, "solar-bob").await;
        until_accepted(bob, &["delete", "namespace", "solar-bob", "--wait=false"]).await;

        self.apply(2).await;
        let bound = self.until_bound("admin", &["solar-users"]).await;
        assert_eq!(bound["subjects"][0]["kind"], "Group", "{bound}");
        self.create_namespace(bob, "solar-group").await;
        until_accepted(bob, &["delete", "namespace", "solar-group", "--wait=false"]).await;

        self.apply(3).await;
        self.until_bound("admin", &["robot"]).await;
        if !self.people.is_gateway {
            succeeds(&self.bill, &["create", "namespace", "tenant-system"]).await;
            let account = ["create", "serviceaccount", "robot", "-n", "tenant-system"];
            succeeds(&self.bill, &account).await;
            let create = ["create", "namespace", "solar-robot", "--as"];
            let robot = ["system:serviceaccount:tenant-system:robot", "--as-group"];
            let as_robot = [&create[..], &robot, &["projectcapsule.dev"]].concat();
            until_accepted(&self.bill, &as_robot).await;
            let delete = ["delete", "namespace", "solar-robot", "--wait=false"];
            succeeds(&self.bill, &delete).await;
        }
        self.until_no_owner(bob, "solar-bob").await;
    }

    async fn owner_roles_are_bound_in_each_namespace(&self) {
        self.apply(0).await;
        let alice = &self.people.alice;
        let name = self.people.user("alice");
        self.until_bound("admin", &[&name]).await;
        self.create_namespace(alice, "solar-system").await;
        let both = json!([PRODUCTION, "solar-system"]);
        let tenant = self.until_tenant(|tenant| tenant["status"]["namespaces"] == both).await;
        // As `kubectl get tnt solar -o yaml` prints it, with our name of the role that deletes.
        let roles = json!(["admin", "tenant-namespace-deleter"]);
        assert_eq!(
            tenant["spec"],
            json!({
                "bindings": "Own",
                "ingressOptions": {"hostnameCollisionScope": "Disabled"},
                "limitRanges": {},
                "networkPolicies": {},
                "owners": [{"clusterRoles": roles, "kind": "User", "name": name}],
                "resourceQuotas": {"scope": "Tenant"},
            })
        );
        let status = &tenant["status"];
        assert_eq!((&status["size"], &status["state"]), (&json!(2), &json!("Active")));
        succeeds(&self.bill, &["get", "tnt", "solar", "-o", "yaml"]).await;

        let table = self.until_roles(alice, &["admin", "tenant-namespace-deleter"]).await;
        assert_eq!(cells(table.lines().next().unwrap()), ["NAME", "ROLE", "AGE"]);
        for role in ["admin", "tenant-namespace-deleter"] {
            let bound = self.until_bound(role, &[&name]).await;
            let reference = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": role});
            assert_eq!(bound["roleRef"], reference);
            let subject = json!({"apiGroup": RBAC, "kind": "User", "name": name});
            assert!(bound["subjects"].as_array().unwrap().contains(&subject), "{bound}");
            assert_eq!(bound["metadata"]["labels"]["tenant-broker.io/tenant"], "solar");
        }
    }

    async fn joe_may_only_view(&self) {
        let People { alice, joe, .. } = &self.people;
        self.apply(5).await;
        self.until_roles(alice, &["admin", "tenant-namespace-deleter", "view"]).await;
        self.until_bound("view", &[&self.people.user("joe")]).await;
        let pods = ["get", "pods", "-n", PRODUCTION];
        until_accepted(joe, &pods).await;
        is_forbidden(joe, &["delete", "pod", "x", "-n", PRODUCTION]).await;
        // Nevertheless he makes namespaces.
        self.create_namespace(joe, "solar-joe").await;
        is_forbidden(joe, &["create", "configmap", "x", "-n", "solar-joe"]).await;
        is_forbidden(joe, &["delete", "namespace", "solar-joe", "--wait=false"]).await;
        until_accepted(alice, &["delete", "namespace", "solar-joe", "--wait=false"]).await;
    }

    async fn custom_and_aggregated_roles(&self) {
        let People { alice, joe, .. } = &self.people;
        with_object(&self.bill, &["apply"], TENANT_RESOURCES).await.success().unwrap();
        self.apply(6).await;
        let roles = ["admin", "tenant-namespace-deleter", "view", "tenant-resources"];
        self.until_roles(alice, &roles).await;
        let resources = "capsule.clastix.io/v1beta2/namespaces/NAMESPACE/tenantresources";
        until_may_list(joe, resources).await;

        with_object(&self.bill, &["apply"], GATEWAY_RESOURCES).await.success().unwrap();
        let gateways = "gateway.networking.k8s.io/v1/namespaces/NAMESPACE/gateways";
        until_may_list(alice, gateways).await;
        let path = format!("/apis/{}", gateways.replace("NAMESPACE", PRODUCTION));
        is_forbidden(joe, &["get", "--raw", &path]).await;

        // Proxy owner authorization: joe alone.
        self.apply(7).await;
        self.until_roles(joe, &["view", "tenant-resources"]).await;
        probe::until("the end of alice's rights", RECONCILE_TIMEOUT, || async {
            let tried = alice.run(["get", "pods", "-n", PRODUCTION]).await?;
            let is_over = tried.stderr.contains("orbidden");
            Ok(if is_over { Probe::Ready(()) } else { Probe::NotYet(tried.stdout) })
        })
        .await
        .unwrap();
        self.until_no_owner(alice, "solar-alice").await;
    }

    async fn additional_role_bindings(&self) {
        let People { alice, joe, .. } = &self.people;
        with_object(&self.bill, &["apply"], SERVICE_MONITORS).await.success().unwrap();
        self.apply(8).await;
        let deleter = "tenant-namespace-deleter";
        let monitors = "prometheus-servicemonitors-viewer";
        self.until_roles(alice, &["admin", deleter, monitors]).await;
        self.until_bound(monitors, &[&self.people.user("joe")]).await;
        let path = "monitoring.coreos.com/v1/namespaces/NAMESPACE/servicemonitors";
        until_may_list(joe, path).await;
        is_forbidden(joe, &["get", "pods", "-n", PRODUCTION]).await;
        self.until_no_owner(joe, "solar-joe").await;

        // Custom resources.
        with_object(&self.bill, &["apply"], ARGOPROJ).await.success().unwrap();
        self.apply(9).await;
        let argo = "argoproj-provisioner";
        self.until_roles(alice, &["admin", deleter, argo]).await;
        let [alice_name, joe_name] = ["alice", "joe"].map(|name| self.people.user(name));
        let bound = self.until_bound(argo, &[&alice_name, &joe_name]).await;
        assert_eq!(bound["metadata"]["name"], "tenant-solar-argoproj-provisioner");
        let applications = "argoproj.io/v1alpha1/namespaces/NAMESPACE/applications";
        for person in [alice, joe] {
            until_may_list(person, applications).await;
        }
        let definition = self.bill.json(["get", "crd", CAPSULE.0]).await.unwrap();
        let tried = with_object(alice, &["create"], definition.to_string()).await;
        assert!(tried.stderr.contains("orbidden"), "{tried:?}");
    }
}
