//! Fields of `spec` that the definition keeps and the broker does not carry out.

use serde_json::Value;

/// The fields that are carried out, at least in part.
const CARRIED_OUT: [&str; 8] = [
    "owners",
    "additionalRoleBindings",
    "namespaceOptions",
    "resourceQuotas",
    "limitRanges",
    "nodeSelector",
    "bindings",
    "tier",
];

/// Paths of all other fields of a `spec` that have a value other than the default of the
/// definition.
pub(super) fn unsupported_fields(spec: &Value) -> Vec<String> {
    let mut fields = Vec::new();
    for (name, value) in spec.as_object().into_iter().flatten() {
        if name == "ingressOptions" {
            let options = value.as_object().into_iter().flatten();
            let set = options.filter(|(name, value)| !is_default_option(name, value));
            fields.extend(set.map(|(name, _)| format!("spec.ingressOptions.{name}")));
        } else if !CARRIED_OUT.contains(&name.as_str()) && !is_empty(value) {
            fields.push(format!("spec.{name}"));
        }
    }
    fields
}

fn is_default_option(name: &str, value: &Value) -> bool {
    is_empty(value) || (name == "hostnameCollisionScope" && value == "Disabled")
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_with_a_value_are_named() {
        let spec = json!({
            "owners": [],
            "networkPolicies": {"items": [{}]},
            "ingressOptions": {
                "hostnameCollisionScope": "Cluster",
                "allowedHostnames": {"allowed": ["a"]},
            },
            "containerRegistries": {"allowed": ["b"]},
            "storageClasses": {"allowed": ["c"]},
        });
        let mut fields = unsupported_fields(&spec);
        fields.sort();
        assert_eq!(
            fields,
            [
                "spec.containerRegistries",
                "spec.ingressOptions.allowedHostnames",
                "spec.ingressOptions.hostnameCollisionScope",
                "spec.networkPolicies",
                "spec.storageClasses",
            ]
        );
    }

    #[test]
    fn defaults_of_the_definition_are_no_fields() {
        let spec = json!({
            "networkPolicies": {},
            "ingressOptions": {"hostnameCollisionScope": "Disabled"},
            "containerRegistries": {},
        });
        assert_eq!(unsupported_fields(&spec), [""; 0]);
        assert_eq!(unsupported_fields(&json!(null)), [""; 0]);
    }
}
