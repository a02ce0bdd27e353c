//! The objects of the cluster that attacks are about, compared before and after.

use std::collections::{BTreeMap, BTreeSet};

use integration::world::World;
use serde_json::{Value, json};

/// Kinds of objects that say who has rights and what limits them.
const KINDS: &str = "namespaces,rolebindings,serviceaccounts,resourcequotas,limitranges,\
                     tenants.tenant-broker.io,clusterrolebindings,validatingadmissionpolicies,\
                     validatingadmissionpolicybindings";

/// What decides of each object, by its kind, namespace and name.
pub(super) struct ClusterState(BTreeMap<String, Value>);

impl ClusterState {
    pub(super) async fn read(world: &World) -> Self {
        let objects = crate::object_list(world, &[KINDS, "-A"]).await.unwrap();
        Self(objects.iter().map(|object| (key(object), facts(object))).collect())
    }

    /// Leaves out the ServiceAccounts of a namespace.
    pub(super) fn without_accounts_of(mut self, namespace: &str) -> Self {
        let accounts = format!("ServiceAccount {namespace}/");
        self.0.retain(|key, _| !key.starts_with(&accounts));
        self
    }

    /// Fails with the objects that are new, gone or different now.
    pub(super) fn assert_same(&self, now: &Self) {
        let keys: BTreeSet<&String> = self.0.keys().chain(now.0.keys()).collect();
        let changed = keys.into_iter().filter(|key| self.0.get(*key) != now.0.get(*key));
        let changed: Vec<String> = changed
            .map(|key| format!("{key}: {:?} became {:?}", self.0.get(key), now.0.get(key)))
            .collect();
        assert!(changed.is_empty(), "{}", changed.join("\n"));
    }
}

fn key(object: &Value) -> String {
    let of = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    format!("{kind} {}/{}", of("namespace"), of("name"))
}

/// The specification and all metadata that somebody reads. The uid shows an object that was deleted
/// and made again. The API server admits by the amounts in the status of a quota.
fn facts(object: &Value) -> Value {
    let metadata = &object["metadata"];
    json!({
        "spec": object["spec"],
        "roleRef": object["roleRef"],
        "subjects": object["subjects"],
        "secrets": object["secrets"],
        "hard": object["status"]["hard"],
        "labels": metadata["labels"],
        "annotations": metadata["annotations"],
        "finalizers": metadata["finalizers"],
        "ownerReferences": metadata["ownerReferences"],
        "deletionTimestamp": metadata["deletionTimestamp"],
        "uid": metadata["uid"],
    })
}
