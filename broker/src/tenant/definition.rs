//! The `CustomResourceDefinition` of the kind `Tenant` (`apiextensions.k8s.io/v1`).

use serde_json::{Value, json};

use super::{ApiGroup, name, schema, status_schema};

const PLURAL: &str = "tenants";

/// The `CustomResourceDefinition` of Tenants in an API group. Both groups have the same schema.
pub fn custom_resource_definition(group: ApiGroup) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": group.resource().definition_name()},
        "spec": {
            "group": group.name(),
            "scope": "Cluster",
            "names": {
                "kind": "Tenant",
                "listKind": "TenantList",
                "plural": PLURAL,
                "singular": "tenant",
                "shortNames": ["tnt"],
            },
            "versions": [{
                "name": group.version(),
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns(),
                "schema": {"openAPIV3Schema": tenant()},
            }],
        },
    })
}

fn tenant() -> Value {
    json!({
        "description": "A tenant: its owners, who make namespaces, and the rights in these.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": schema::spec(),
            "status": status_schema::status(),
        },
        "x-kubernetes-validations": name::rules(),
    })
}

/// The columns of `kubectl get`, which prints their names in capitals.
fn columns() -> Value {
    let column =
        |name: &str, kind: &str, path: &str| json!({"name": name, "type": kind, "jsonPath": path});
    json!([
        column("State", "string", ".status.state"),
        column("Namespace quota", "integer", ".spec.namespaceOptions.quota"),
        column("Namespace count", "integer", ".status.size"),
        column("Node selector", "string", ".spec.nodeSelector"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `visit` for a schema and all schemas in it, with their paths, such as
    /// `spec.owners[].kind`.
    fn walk(path: &str, schema: &Value, visit: &mut impl FnMut(&str, &Value)) {
        visit(path, schema);
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            walk(&below, property, visit);
        }
        for (key, suffix) in [("items", "[]"), ("additionalProperties", ".*")] {
            if let Some(inner) = schema.get(key) {
                walk(&format!("{path}{suffix}"), inner, visit);
            }
        }
    }

    fn every_schema(mut visit: impl FnMut(&str, &Value)) {
        let tenant = tenant();
        for part in ["spec", "status"] {
            walk(part, &tenant["properties"][part], &mut visit);
        }
    }

    #[test]
    fn every_text_list_and_map_has_a_limit() {
        let mut without = Vec::new();
        every_schema(|path, schema| {
            let has = |key: &str| schema.get(key).is_some();
            let is_limited = match schema["type"].as_str() {
                Some("string") => has("maxLength") || has("enum") || has("format"),
                Some("array") => has("maxItems"),
                Some("object") => has("properties") || has("maxProperties"),
                Some("integer") => has("minimum"),
                Some("boolean") => true,
                _ => schema["x-kubernetes-int-or-string"] == true && has("maxLength"),
            };
            if !is_limited {
                without.push(path.to_owned());
            }
        });
        assert!(without.is_empty(), "{without:?}");
    }

    #[test]
    fn every_rule_has_a_message_of_one_line() {
        let mut rules = 0;
        let mut visit = |path: &str, schema: &Value| {
            for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
                rules += 1;
                let message = rule["message"].as_str().unwrap();
                assert!(!message.is_empty() && !message.contains('\n'), "{path}: {message}");
                // The API server refuses a definition whose rule names another field.
                if let Some(field) = rule["fieldPath"].as_str() {
                    let property = &schema["properties"][field.trim_start_matches('.')];
                    assert!(property.is_object(), "{path}: {field}");
                }
            }
        };
        walk("", &tenant(), &mut visit);
        // Three on the name, three on owners, five on subjects, one on each kind of role name.
        assert_eq!(rules, 13);
    }

    /// `kubectl explain` shows the descriptions.
    #[test]
    fn every_field_is_described_in_the_schema_and_in_the_documentation() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tenants.md");
        let page = std::fs::read_to_string(page).unwrap();
        let mut missing = Vec::new();
        every_schema(|path, schema| {
            let is_field = !path.ends_with("[]") && !path.ends_with(".*");
            // Conditions have the fields of every condition of Kubernetes.
            if !is_field || path.starts_with("status.conditions[]") {
                return;
            }
            let in_page = page.contains(&format!("\n| `{path}` |")) || !path.contains('.');
            if !in_page || schema["description"].as_str().is_none_or(str::is_empty) {
                missing.push(path.to_owned());
            }
        });
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn both_groups_have_the_same_schema() {
        let [ours, capsule] =
            [ApiGroup::TenantBroker, ApiGroup::Capsule].map(custom_resource_definition);
        let schema = |definition: &Value| definition["spec"]["versions"][0]["schema"].clone();
        assert_eq!(schema(&ours), schema(&capsule));
        assert_eq!(ours["metadata"]["name"], "tenants.tenant-broker.io");
        assert_eq!(capsule["metadata"]["name"], "tenants.capsule.clastix.io");
    }

    /// Document 003 puts a tenant's own API server there.
    #[test]
    fn the_field_space_is_free() {
        for part in ["spec", "status"] {
            assert!(tenant()["properties"][part]["properties"].get("space").is_none());
        }
    }
}
