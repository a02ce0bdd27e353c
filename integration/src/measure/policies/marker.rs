//! Policies that mark which set of policies is in force: they refuse objects of the kind
//! `RuntimeClass`, and name the set.
//!
//! The API server reads validating and mutating policies apart from each other. So if a set has
//! mutating policies, one of the marker labels the object with the set, and the refusal names both.

use serde_json::{Value, json};

/// Name of the policies and of their bindings, and key of the label.
const NAME: &str = "measure-set";
const API_VERSION: &str = "admissionregistration.k8s.io/v1";
/// The label in the refusal of an object that has none.
const NO_LABEL: &str = "none";

/// Returns the policies and bindings that name this set.
pub(super) fn objects(set: &str, mutates: bool) -> Vec<Value> {
    let mut objects = Vec::new();
    if mutates {
        let mutation =
            format!("Object{{metadata: Object.metadata{{labels: {{\"{NAME}\": \"{set}\"}}}}}}");
        objects.extend([
            object(
                "MutatingAdmissionPolicy",
                &json!({
                    "matchConstraints": match_constraints(),
                    "failurePolicy": "Fail",
                    "reinvocationPolicy": "Never",
                    "mutations": [{"patchType": "ApplyConfiguration",
                        "applyConfiguration": {"expression": mutation}}]}),
            ),
            object("MutatingAdmissionPolicyBinding", &json!({"policyName": NAME})),
        ]);
    }
    let label = format!("object.metadata.?labels[\"{NAME}\"].orValue(\"{NO_LABEL}\")");
    objects.extend([
        object(
            "ValidatingAdmissionPolicy",
            &json!({
                "matchConstraints": match_constraints(),
                "validations": [{"expression": "false", "message": set,
                    "messageExpression": format!("\"{set} after \" + {label}")}]}),
        ),
        object(
            "ValidatingAdmissionPolicyBinding",
            &json!({"policyName": NAME, "validationActions": ["Deny"]}),
        ),
    ]);
    objects
}

/// Returns the text of a refusal once all policies of the marker name this set.
pub(super) fn refusal(set: &str, mutates: bool) -> String {
    format!("{set} after {}", if mutates { set } else { NO_LABEL })
}

/// Returns an object of the kind `RuntimeClass`, without labels.
pub(super) fn runtime_class() -> Value {
    json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": "measured"}, "handler": "measured"})
}

fn object(kind: &str, spec: &Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": NAME}, "spec": spec})
}

fn match_constraints() -> Value {
    json!({"matchPolicy": "Exact", "resourceRules": [{
        "apiGroups": ["node.k8s.io"], "apiVersions": ["v1"],
        "operations": ["CREATE"], "resources": ["runtimeclasses"]}]})
}
