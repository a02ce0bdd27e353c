//! Fields of an object that other managers have set (Kubernetes, "Server-Side Apply", field
//! management), and that a write of the broker for a person would change.

use std::collections::BTreeSet;

use kube::api::DynamicObject;
use serde_json::Value;

/// Field manager of the broker's writes for people.
pub(in crate::cluster) const FIELD_MANAGER: &str = "tenant-broker";

/// A field that a write would change although another manager has set it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldConflict {
    /// Path of the field: `spec.owners[kind=User,name=joe].clusterRoles`.
    pub field: String,
    /// The manager, such as `argocd-controller`.
    pub manager: String,
}

/// The fields below `spec` that other managers have set, and that differ between the object and the
/// new `spec`. A field that nobody has set, such as a default of the definition, conflicts with
/// nobody.
pub fn field_conflicts(object: &DynamicObject, spec: &Value) -> BTreeSet<FieldConflict> {
    let mut conflicts = BTreeSet::new();
    for entry in object.metadata.managed_fields.iter().flatten() {
        let manager = entry.manager.as_deref().unwrap_or_default();
        let is_status = entry.subresource.as_deref().is_some_and(|it| !it.is_empty());
        if manager == FIELD_MANAGER || is_status {
            continue;
        }
        let Some(fields) = entry.fields_v1.as_ref().and_then(|fields| fields.0.get("f:spec"))
        else {
            continue;
        };
        let mut changed = BTreeSet::new();
        compare(fields, "spec", object.data.get("spec"), Some(spec), &mut changed);
        conflicts.extend(
            changed.into_iter().map(|field| FieldConflict { field, manager: manager.to_owned() }),
        );
    }
    conflicts
}

/// Collects the paths of a set of fields (`FieldsV1`) whose values differ.
fn compare(
    fields: &Value,
    path: &str,
    before: Option<&Value>,
    after: Option<&Value>,
    changed: &mut BTreeSet<String>,
) {
    if before == after {
        return;
    }
    let children: Vec<(&String, &Value)> =
        fields.as_object().into_iter().flatten().filter(|(key, _)| *key != ".").collect();
    if children.is_empty() || before.is_none() || after.is_none() {
        changed.insert(path.to_owned());
        return;
    }
    for (key, fields) in children {
        let (path, select) = child(path, key);
        let value = |parent: Option<&Value>| parent.and_then(|it| select.of(it)).cloned();
        compare(fields, &path, value(before).as_ref(), value(after).as_ref(), changed);
    }
}

/// How to find the value of a key of a set of fields.
enum Select {
    Field(String),
    /// The item of a list that has these fields.
    Item(Value),
    /// The item of a list that has this value.
    Value(Value),
    Index(usize),
    Unknown,
}

impl Select {
    fn of<'a>(&self, parent: &'a Value) -> Option<&'a Value> {
        match self {
            Self::Field(name) => parent.get(name),
            Self::Item(keys) => parent.as_array()?.iter().find(|item| {
                keys.as_object()
                    .into_iter()
                    .flatten()
                    .all(|(key, value)| item.get(key) == Some(value))
            }),
            Self::Value(value) => parent.as_array()?.iter().find(|item| *item == value),
            Self::Index(index) => parent.get(index),
            // Compared as a whole.
            Self::Unknown => Some(parent),
        }
    }
}

/// The path of a key of a set of fields, and how to find its value.
fn child(path: &str, key: &str) -> (String, Select) {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    match key.split_once(':') {
        Some(("f", name)) => (format!("{path}.{name}"), Select::Field(name.to_owned())),
        Some(("k", keys)) => {
            let keys = parsed(keys);
            let shown: Vec<String> = keys
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, value)| {
                    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    format!("{key}={value}")
                })
                .collect();
            (format!("{path}[{}]", shown.join(",")), Select::Item(keys))
        }
        Some(("v", value)) => (format!("{path}[{value}]"), Select::Value(parsed(value))),
        Some(("i", index)) => {
            (format!("{path}[{index}]"), index.parse().map_or(Select::Unknown, Select::Index))
        }
        _ => (path.to_owned(), Select::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// An object of which a GitOps tool has set the quota and an owner, and the broker another one.
    fn object() -> DynamicObject {
        let joe = r#"k:{"kind":"User","name":"joe"}"#;
        let ann = r#"k:{"kind":"User","name":"ann"}"#;
        let owner = json!({".": {}, "f:kind": {}, "f:name": {}});
        serde_json::from_value(json!({
            "apiVersion": "tenant-broker.io/v1alpha1",
            "kind": "Tenant",
            "metadata": {"name": "solar", "managedFields": [
                {"manager": "argocd", "operation": "Apply", "fieldsV1": {"f:spec": {
                    "f:namespaceOptions": {"f:quota": {}},
                    "f:owners": {joe: owner},
                    "f:resourceQuotas": {"f:items": {}},
                }}},
                {"manager": "tenant-broker", "operation": "Update", "fieldsV1": {"f:spec": {
                    "f:owners": {ann: owner}, "f:tier": {},
                }}},
                {"manager": "status", "operation": "Update", "subresource": "status",
                 "fieldsV1": {"f:spec": {"f:bindings": {}}}},
            ]},
            "spec": spec(),
        }))
        .unwrap()
    }

    fn spec() -> Value {
        json!({
            "owners": [
                {"kind": "User", "name": "joe", "clusterRoles": ["admin"]},
                {"kind": "User", "name": "ann", "clusterRoles": ["admin"]},
            ],
            "namespaceOptions": {"quota": 3, "forceTenantPrefix": true},
            "resourceQuotas": {"scope": "Tenant", "items": [{"hard": {"pods": "4"}}]},
            "bindings": "Own",
            "tier": "basic",
        })
    }

    /// The conflicts of a change of the specification.
    fn conflicts(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut wanted = spec();
        change(&mut wanted);
        let found = field_conflicts(&object(), &wanted);
        assert!(found.iter().all(|conflict| conflict.manager == "argocd"), "{found:?}");
        found.into_iter().map(|conflict| conflict.field).collect()
    }

    #[test]
    fn fields_of_others_conflict_when_they_change_or_go() {
        assert_eq!(
            conflicts(|spec| spec["namespaceOptions"]["quota"] = json!(5)),
            ["spec.namespaceOptions.quota"]
        );
        assert_eq!(
            conflicts(|spec| drop(spec["owners"].as_array_mut().unwrap().remove(0))),
            ["spec.owners[kind=User,name=joe]"]
        );
        assert_eq!(
            conflicts(|spec| drop(spec.as_object_mut().unwrap().remove("namespaceOptions"))),
            ["spec.namespaceOptions"]
        );
        // The list is atomic.
        assert_eq!(
            conflicts(|spec| spec["resourceQuotas"]["items"][0]["hard"]["pods"] = json!("5")),
            ["spec.resourceQuotas.items"]
        );
        assert_eq!(conflicts(|spec| *spec = json!({})).len(), 3);
    }

    #[test]
    fn other_fields_conflict_with_nobody() {
        assert!(conflicts(|_| {}).is_empty());
        assert!(
            conflicts(|spec| drop(spec["owners"].as_array_mut().unwrap().remove(1))).is_empty()
        );
        assert!(conflicts(|spec| spec["tier"] = json!("gold")).is_empty());
        assert!(conflicts(|spec| spec["bindings"] = json!("Any")).is_empty());
        assert!(conflicts(|spec| spec["nodeSelector"] = json!({"pool": "gpu"})).is_empty());
        assert!(
            conflicts(|spec| spec["namespaceOptions"]["forceTenantPrefix"] = json!(false))
                .is_empty()
        );
        // The order of the owners has no meaning.
        assert!(conflicts(|spec| spec["owners"].as_array_mut().unwrap().reverse()).is_empty());
    }

    proptest! {
        /// The API server writes `fieldsV1`, but everybody who may write the object can, too.
        #[test]
        fn no_set_of_fields_causes_a_panic(key in "[fkvi.]?:?.{0,12}", inner in "[fkvi]:.{0,8}") {
            let mut object = object();
            let fields = json!({"f:spec": {key: {inner: {}}}});
            let entries = object.metadata.managed_fields.as_mut().unwrap();
            entries[0].fields_v1.as_mut().unwrap().0 = fields;
            let _ = field_conflicts(&object, &json!({"owners": [1], "bindings": {"x": 1}}));
        }
    }
}
