//! "Ownership": users, groups and ServiceAccounts own the tenant.

use super::super::cluster::until_accepted;
use super::super::reconcile::PRODUCTION;
use super::super::{CAPSULE, cells};
use super::{DocumentWorld, People, is_forbidden, succeeds};

const ROBOT: &str = "system:serviceaccount:tenant-system:robot";

impl DocumentWorld {
    pub(super) async fn a_user_owns_the_tenant(&self) {
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
        for resource in ["nodes", "persistentvolumes", CAPSULE.0] {
            is_forbidden(alice, &["get", resource]).await;
        }
        // Through the gateway it is the list of her own namespaces.
        let listed = ["get", "namespaces", "-o", "name"];
        if self.people.is_gateway {
            assert_eq!(succeeds(alice, &listed).await, format!("namespace/{PRODUCTION}\n"));
        } else {
            is_forbidden(alice, &listed).await;
        }
        self.create_and_delete_namespace(alice, "solar-old").await;
    }

    pub(super) async fn another_user_a_group_and_a_service_account_own_the_tenant(&self) {
        let People { bob, .. } = &self.people;
        let [alice_name, bob_name] = ["alice", "bob"].map(|name| self.people.user(name));
        self.apply(1).await;
        self.until_bound("admin", &[&alice_name, &bob_name]).await;
        self.create_and_delete_namespace(bob, "solar-bob").await;

        self.apply(2).await;
        let bound = self.until_bound("admin", &["solar-users"]).await;
        assert_eq!(bound["subjects"][0]["kind"], "Group", "{bound}");
        self.create_and_delete_namespace(bob, "solar-group").await;

        self.apply(3).await;
        self.until_bound("admin", &["robot"]).await;
        if !self.people.is_gateway {
            self.a_service_account_creates_namespaces().await;
        }
        self.until_no_owner(bob, "solar-bob").await;
    }

    /// With the document's group, and with the groups that Kubernetes gives the ServiceAccount, to
    /// which Bill binds the ClusterRole himself.
    async fn a_service_account_creates_namespaces(&self) {
        succeeds(&self.bill, &["create", "namespace", "tenant-system"]).await;
        succeeds(&self.bill, &["create", "serviceaccount", "robot", "-n", "tenant-system"]).await;
        let as_robot = ["create", "namespace", "solar-robot", "--as", ROBOT];
        let with_group = [&as_robot[..], &["--as-group", "projectcapsule.dev"]].concat();
        until_accepted(&self.bill, &with_group).await;
        let bind = ["create", "clusterrolebinding", "robots"];
        let role = ["--clusterrole=tenant-namespace-provisioner"];
        let group = ["--group=system:serviceaccounts:tenant-system"];
        succeeds(&self.bill, &[&bind[..], &role, &group].concat()).await;
        let itself = ["create", "namespace", "solar-robot-itself", "--as", ROBOT];
        until_accepted(&self.bill, &itself).await;
        for name in ["solar-robot", "solar-robot-itself"] {
            let list = ["get", "configmaps", "-n", name, "--as", ROBOT];
            until_accepted(&self.bill, &list).await;
            let delete = ["delete", "namespace", name, "--wait=false", "--as", ROBOT];
            until_accepted(&self.bill, &delete).await;
        }
    }
}
