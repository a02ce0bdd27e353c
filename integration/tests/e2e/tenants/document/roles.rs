//! "Owner Roles", "Additional Rolebindings" and "Custom Resources": which roles are bound to whom.

use serde_json::json;

use super::super::cluster::until_accepted;
use super::super::reconcile::PRODUCTION;
use super::super::{CAPSULE, cells, with_object};
use super::cluster_roles::{ARGOPROJ, GATEWAY_RESOURCES, SERVICE_MONITORS, TENANT_RESOURCES};
use super::{DocumentWorld, People, is_forbidden, succeeds, until_forbidden};

const RBAC: &str = "rbac.authorization.k8s.io";
const DELETER: &str = "tenant-namespace-deleter";

impl DocumentWorld {
    pub(super) async fn owner_roles_are_bound_in_each_namespace(&self) {
        self.apply(0).await;
        let alice = &self.people.alice;
        let name = self.people.user("alice");
        self.until_bound("admin", &[&name]).await;
        self.create_namespace(alice, "solar-system").await;
        let both = json!([PRODUCTION, "solar-system"]);
        let tenant = self.until_tenant(|tenant| tenant["status"]["namespaces"] == both).await;
        // As `kubectl get tnt solar -o yaml` prints it, with the name that the role has here.
        let roles = json!(["admin", DELETER]);
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

        let table = self.until_roles(alice, &["admin", DELETER]).await;
        assert_eq!(cells(table.lines().next().unwrap()), ["NAME", "ROLE", "AGE"]);
        for role in ["admin", DELETER] {
            let bound = self.until_bound(role, &[&name]).await;
            let reference = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": role});
            assert_eq!(bound["roleRef"], reference);
            let subject = json!({"apiGroup": RBAC, "kind": "User", "name": name});
            assert!(bound["subjects"].as_array().unwrap().contains(&subject), "{bound}");
            let metadata = &bound["metadata"];
            assert_eq!(metadata["labels"]["tenant-broker.io/tenant"], "solar");
            assert!(metadata.get("ownerReferences").is_none(), "{bound}");
        }
        // The document prints it with the name that the role has there.
        self.apply(4).await;
        self.until_roles(alice, &["admin", DELETER]).await;
        let theirs = json!(["admin", "capsule-namespace-deleter"]);
        self.until_tenant(|tenant| {
            let conditions = tenant["status"]["conditions"].to_string();
            tenant["spec"]["owners"][0]["clusterRoles"] == theirs
                && tenant["status"]["observedGeneration"] == tenant["metadata"]["generation"]
                && !conditions.contains("RoleNotAllowed")
        })
        .await;
    }

    pub(super) async fn an_owner_with_the_role_view_may_only_view(&self) {
        let People { alice, joe, .. } = &self.people;
        self.apply(5).await;
        self.until_roles(alice, &["admin", DELETER, "view"]).await;
        self.until_bound("view", &[&self.people.user("joe")]).await;
        until_accepted(joe, &["get", "pods", "-n", PRODUCTION]).await;
        is_forbidden(joe, &["delete", "pod", "x", "-n", PRODUCTION]).await;
        // Nevertheless he creates namespaces.
        self.create_namespace(joe, "solar-joe").await;
        is_forbidden(joe, &["create", "configmap", "x", "-n", "solar-joe"]).await;
        is_forbidden(joe, &["delete", "namespace", "solar-joe", "--wait=false"]).await;
        until_accepted(alice, &["delete", "namespace", "solar-joe", "--wait=false"]).await;
    }

    pub(super) async fn custom_and_aggregated_roles(&self) {
        let People { alice, joe, .. } = &self.people;
        with_object(&self.bill, &["apply"], TENANT_RESOURCES).await.success().unwrap();
        self.apply(6).await;
        self.until_roles(alice, &["admin", DELETER, "view", "tenant-resources"]).await;
        let resources = "capsule.clastix.io/v1beta2/namespaces/NAMESPACE/tenantresources";
        self.until_may_list(joe, resources).await;

        with_object(&self.bill, &["apply"], GATEWAY_RESOURCES).await.success().unwrap();
        let gateways = "gateway.networking.k8s.io/v1/namespaces/NAMESPACE/gateways";
        self.until_may_list(alice, gateways).await;
        is_forbidden(joe, &["get", "--raw", &self.people.path_of(gateways)]).await;

        // "Proxy Owner Authorization": joe alone.
        self.apply(7).await;
        self.until_roles(&self.bill, &["view", "tenant-resources"]).await;
        until_forbidden(alice, &["get", "pods", "-n", PRODUCTION]).await;
        self.until_no_owner(alice, "solar-alice").await;
    }

    pub(super) async fn additional_role_bindings(&self) {
        let People { alice, joe, .. } = &self.people;
        with_object(&self.bill, &["apply"], SERVICE_MONITORS).await.success().unwrap();
        self.apply(8).await;
        let monitors = "prometheus-servicemonitors-viewer";
        self.until_roles(alice, &["admin", DELETER, monitors]).await;
        self.until_bound(monitors, &[&self.people.user("joe")]).await;
        let path = "monitoring.coreos.com/v1/namespaces/NAMESPACE/servicemonitors";
        self.until_may_list(joe, path).await;
        until_forbidden(joe, &["get", "pods", "-n", PRODUCTION]).await;
        self.until_no_owner(joe, "solar-joe").await;
    }

    pub(super) async fn custom_resources(&self) {
        let People { alice, joe, .. } = &self.people;
        with_object(&self.bill, &["apply"], ARGOPROJ).await.success().unwrap();
        self.apply(9).await;
        let argo = "argoproj-provisioner";
        self.until_roles(alice, &["admin", DELETER, argo]).await;
        let [alice_name, joe_name] = ["alice", "joe"].map(|name| self.people.user(name));
        let bound = self.until_bound(argo, &[&alice_name, &joe_name]).await;
        assert_eq!(bound["metadata"]["name"], "tenant-solar-argoproj-provisioner");
        for person in [alice, joe] {
            self.until_may_list(person, "argoproj.io/v1alpha1/namespaces/NAMESPACE/applications")
                .await;
        }
        let definition = self.bill.json(["get", "crd", CAPSULE.0]).await.unwrap();
        let tried = with_object(alice, &["create"], definition.to_string()).await;
        assert!(tried.stderr.contains("orbidden"), "{tried:?}");
    }
}
