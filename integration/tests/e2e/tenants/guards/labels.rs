//! `tenant-guard-labels`: the labels by which the broker lists its objects.

use serde_json::{Value, json};

use crate::tenants::cluster::{
    CREATE, TenantCluster, account, are_accepted, are_refused, is_refused, namespace, role_binding,
    send, until_allowed,
};

const OWN: &str = "solar-production";
const ELSEWHERE: &str = "elsewhere";
const POLICY: &str = "tenant-guard-labels";

fn labelled(mut object: Value, label: &str) -> Value {
    object["metadata"]["labels"] = json!({(label): "solar"});
    object
}

/// Alice is an administrator in a namespace of a tenant, and carol in one that is not managed.
pub(super) async fn only_the_broker_labels_what_it_lists(cluster: &TenantCluster) {
    cluster.make(&namespace(ELSEWHERE, &json!({}))).await;
    let of_carol = role_binding(ELSEWHERE, "carol", "admin", &json!([super::user("carol")]));
    cluster.make(&of_carol).await;
    let carol = cluster.person("carol", None);
    let may = json!({"namespace": ELSEWHERE, "group": "rbac.authorization.k8s.io",
        "verb": "create", "resource": "rolebindings"});
    until_allowed(&carol, &may).await;
    let alice = cluster.person("alice", None);
    for (person, namespace) in [(&alice, OWN), (&carol, ELSEWHERE)] {
        let binding =
            role_binding(namespace, "mine", "view", &json!([account(namespace, "robot")]));
        let program = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"namespace": namespace, "name": "mine"}});
        let network = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"namespace": namespace, "name": "mine"}, "spec": {"podSelector": {}}});
        for object in [binding, program, network] {
            for label in ["tenant-broker.io/tenant", "tenant-broker.io/workspace"] {
                let object = labelled(object.clone(), label);
                is_refused(&send(person, CREATE, &object).await, &object.to_string(), POLICY);
            }
            send(person, CREATE, &labelled(object, "example.com/tenant")).await.success().unwrap();
        }
        let label = |label| ["label", "rolebinding", "mine", "-n", namespace, label];
        let add = label("tenant-broker.io/tenant=lunar");
        are_refused(person, &[(&add, POLICY)]).await;
        // An administrator of the policies may, and what is there may stay or go.
        cluster.as_admin(&add).await;
        let change = ["--overwrite", "tenant-broker.io/tenant=solar"];
        let change = [&add[..5], &change].concat();
        are_refused(person, &[(&change, POLICY)]).await;
        are_accepted(person, &[&label("a=b"), &label("tenant-broker.io/tenant-")]).await;
        are_refused(person, &[(&add, POLICY)]).await;
        let all = "rolebinding/mine serviceaccount/mine networkpolicy/mine".split(' ');
        let delete: Vec<&str> = ["delete", "-n", namespace].into_iter().chain(all).collect();
        are_accepted(person, &[&delete]).await;
    }
}
