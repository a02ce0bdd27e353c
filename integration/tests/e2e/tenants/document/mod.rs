//! The document on owners and permissions as a story: its manifests and commands in its order, by
//! people with client certificates, and again by people who sign in at their provider.
//!
//! Its lines of `kubectl auth can-i` are a test of their own, `can_i.rs`.

mod cluster_roles;
mod owners;
mod people;
mod roles;

use std::collections::BTreeSet;

use integration::kubectl::Kubectl;
use integration::oidc_provider::OidcProvider;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::Value;

use super::cluster::until_accepted;
use super::manifests::MANIFESTS;
use super::reconcile::{PRODUCTION, RECONCILE_TIMEOUT, subjects, until};
use super::{CAPSULE, cells, until_served, with_object};
use crate::install::install;
use people::People;

/// ClusterRoles that the document's Tenants name, beside those of the default settings.
const ROLES: &str = "admin,edit,view,tenant-namespace-deleter,tenant-resources,\
                     prometheus-servicemonitors-viewer,argoproj-provisioner";
/// The document's group scope, without its group of ServiceAccounts, which belongs to Kubernetes.
const GROUPS: &str = "projectcapsule.dev,solar-users";

/// Bill, who is an administrator of the cluster, and the people whom he gives a tenant.
struct DocumentWorld {
    world: World,
    bill: Kubectl,
    people: People,
}

#[tokio::test]
async fn the_examples_of_the_document_work_directly_and_through_the_gateway() {
    let provider = OidcProvider::start().await.unwrap();
    let builder = World::builder()
        .own_control_plane()
        .installed("tenants.enabled", true)
        .installed("tenants.direct_namespaces", true)
        .installed("tenants.cluster_roles", ROLES)
        .installed("tenants.groups", GROUPS)
        .setting("drift_seconds", 3600)
        .tls();
    let builder = super::provider::settings(&provider)
        .into_iter()
        .fold(builder, |builder, (key, value)| builder.setting(&key, value));
    let world = builder.start().await.unwrap();
    let bill = world.admin_kubectl().unwrap();
    world.broker().stop().await.unwrap();
    install(&world, &["--apply", "--capsule-api"]).await.success().unwrap();
    until_served(&bill, CAPSULE).await;
    world.broker().start().await.unwrap();

    let people = People::with_certificates(&world);
    let mut story = DocumentWorld { world, bill, people };
    story.take_place().await;
    story.delete_the_tenant().await;
    story.people = People::of_provider(&story.world, &provider).await;
    story.take_place().await;
}

async fn succeeds(kubectl: &Kubectl, args: &[&str]) -> String {
    kubectl.run(args).await.unwrap().success().unwrap().stdout
}

async fn is_forbidden(kubectl: &Kubectl, args: &[&str]) {
    let finished = kubectl.run(args).await.unwrap();
    let is_forbidden = !finished.status.success() && finished.stderr.contains("orbidden");
    assert!(is_forbidden, "{args:?}: {finished:?}");
}

/// Waits until a request is forbidden: a right that was just taken away may last some milliseconds.
async fn until_forbidden(kubectl: &Kubectl, args: &[&str]) {
    super::cluster::until_refused(kubectl, args, "orbidden").await;
}

impl DocumentWorld {
    async fn take_place(&self) {
        Box::pin(self.a_user_owns_the_tenant()).await;
        Box::pin(self.another_user_a_group_and_a_service_account_own_the_tenant()).await;
        Box::pin(self.owner_roles_are_bound_in_each_namespace()).await;
        Box::pin(self.an_owner_with_the_role_view_may_only_view()).await;
        Box::pin(self.custom_and_aggregated_roles()).await;
        Box::pin(self.additional_role_bindings()).await;
        Box::pin(self.custom_resources()).await;
    }

    /// Deletes the namespaces, the Tenant, and waits until nothing is left of them.
    async fn delete_the_tenant(&self) {
        let namespaces = self.namespaces().await;
        for namespace in &namespaces {
            let delete = ["delete", "namespace", namespace, "--wait=false", "--ignore-not-found"];
            succeeds(&self.bill, &delete).await;
        }
        self.until_tenant(|tenant| tenant["status"]["size"] == 0).await;
        succeeds(&self.bill, &["delete", CAPSULE.0, "solar"]).await;
        let home = ["rolebinding", "tenant-solar-tenant-owner", "-n", "tenant-solar"];
        until(&self.world, &home, Value::is_null).await;
        for namespace in &namespaces {
            until(&self.world, &["namespace", namespace], Value::is_null).await;
        }
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

    /// Lists a kind that the cluster does not have in the namespace `solar-production`. A caller with
    /// the right to list it gets 404, and everybody else 403.
    async fn until_may_list(&self, kubectl: &Kubectl, kind: &str) {
        let path = self.people.path_of(kind);
        probe::until(&format!("the right to list {path}"), RECONCILE_TIMEOUT, || async {
            let tried = kubectl.run(["get", "--raw", &path]).await?;
            let may_list = tried.stderr.contains("could not find the requested resource");
            Ok(if may_list { Probe::Ready(()) } else { Probe::NotYet(tried.stderr) })
        })
        .await
        .unwrap();
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

    /// An owner creates a namespace, and reads in it.
    async fn create_namespace(&self, owner: &Kubectl, name: &str) {
        until_accepted(owner, &["create", "namespace", name]).await;
        until_accepted(owner, &["get", "configmaps", "-n", name]).await;
    }

    /// An owner creates a namespace, and deletes it.
    async fn create_and_delete_namespace(&self, owner: &Kubectl, name: &str) {
        self.create_namespace(owner, name).await;
        until_accepted(owner, &["delete", "namespace", name, "--wait=false"]).await;
    }

    /// Waits until a person may create no more namespaces.
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
    /// returns its output.
    async fn until_roles(&self, reader: &Kubectl, roles: &[&str]) -> String {
        let name = |role: &&str| (format!("tenant-solar-{role}"), format!("ClusterRole/{role}"));
        let expected: BTreeSet<_> = roles.iter().map(name).collect();
        probe::until("the RoleBindings", RECONCILE_TIMEOUT, || async {
            let printed = reader.run(["get", "rolebinding", "-n", PRODUCTION]).await?;
            let rows = printed.stdout.lines().skip(1).map(cells);
            let rows: BTreeSet<_> =
                rows.map(|row| (row[0].to_owned(), row[1].to_owned())).collect();
            let is_so = rows == expected;
            Ok(if is_so {
                Probe::Ready(printed.stdout)
            } else {
                Probe::NotYet(format!("{printed:?}"))
            })
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
}
