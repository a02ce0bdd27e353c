//! The policy that labels namespaces of owners (`MutatingAdmissionPolicy`, Kubernetes API reference
//! `admissionregistration.k8s.io/v1`). It fills labels in, so that the selectors of the other
//! policies match from the first moment; what it writes is checked by `tenant-guard-creation`.

use serde_json::{Value, json};
use tenant_shared::{MANAGED_BY_LABEL, MANAGED_BY_VALUE, TENANT_LABEL};

use super::{Explained, metadata};
use crate::{
    cluster::POD_SECURITY,
    install::{
        Parameters,
        cel::label,
        quoted,
        tenant_policies::{TENANTS_OF_CALLER, not_system, weakest_level},
    },
};

/// Name of the policy and of its binding.
pub(in crate::install) const NAME: &str = "tenant-namespace-labels";
/// The first version that is on by default, since Kubernetes 1.36.
pub(in crate::install) const API_VERSION: &str = "admissionregistration.k8s.io/v1";
/// The resource of the policy.
pub(in crate::install) const POLICIES: &str = "mutatingadmissionpolicies";
/// The resource of the binding.
pub(in crate::install) const POLICY_BINDINGS: &str = "mutatingadmissionpolicybindings";

/// How many parts of a name, with dashes between them, are tried as the name of a tenant.
const MAX_PARTS: usize = 4;

pub(super) fn objects(parameters: &Parameters) -> [Explained; 2] {
    let conditions = not_system(parameters).into_iter();
    let conditions: Vec<Value> = conditions.map(|(name, it)| named(name, &it)).collect();
    let variables: Vec<Value> = variables().iter().map(|(name, it)| named(name, it)).collect();
    let policy = json!({
        "apiVersion": API_VERSION,
        "kind": "MutatingAdmissionPolicy",
        "metadata": metadata(NAME),
        // With every field that the API server would default, so that the stored object can be
        // compared as a whole.
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "matchPolicy": "Exact",
                "namespaceSelector": {},
                "objectSelector": {},
                "resourceRules": [{
                    "apiGroups": [""],
                    "apiVersions": ["*"],
                    "operations": ["CREATE"],
                    "resources": ["namespaces"],
                    "scope": "Cluster",
                }],
            },
            "matchConditions": conditions,
            "variables": variables,
            "mutations": [{
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": mutation(weakest_level(parameters))},
            }],
            "reinvocationPolicy": "Never",
        },
    });
    let binding = json!({
        "apiVersion": API_VERSION,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": metadata(NAME),
        "spec": {"policyName": NAME},
    });
    [
        (
            "A namespace that an owner creates gets the label of the tenant whose name its name \
             begins with; the longest of four wins. Leave this policy and its binding out where \
             the API server does not serve them (before Kubernetes 1.36). Owners then write the \
             labels themselves.",
            policy,
        ),
        ("The binding, which puts the policy in force.", binding),
    ]
}

/// A match condition or a variable.
fn named(name: &str, expression: &str) -> Value {
    json!({"name": name, "expression": expression})
}

/// The variables. Each check of the authorizer is a variable of its own, because it costs 350,000 of
/// the 1,000,000 units that one expression may cost.
fn variables() -> Vec<(String, String)> {
    let mut variables = vec![
        // A caller who owns all tenants, such as an administrator with the verb `*`, owns none in
        // particular: no label is guessed.
        ("ownsAll".to_owned(), format!("{TENANTS_OF_CALLER}.check(\"own\").allowed()")),
        // A generated name is still missing.
        (
            "name".to_owned(),
            "object.metadata.?name.orValue(\"\") != \"\" ? object.metadata.name : \
             object.metadata.?generateName.orValue(\"\")"
                .to_owned(),
        ),
        ("parts".to_owned(), "variables.name.split(\"-\")".to_owned()),
    ];
    for parts in 1..=MAX_PARTS {
        let rest = format!("variables.name.split(\"-\", {})[{parts}]", parts + 1);
        variables.push((
            format!("prefix{parts}"),
            format!(
                "size(variables.parts) > {parts} ? variables.name.substring(0, \
                 size(variables.name) - size({rest}) - 1) : \"\""
            ),
        ));
        let prefix = format!("variables.prefix{parts}");
        variables.push((
            format!("owns{parts}"),
            format!(
                "{prefix} != \"\" && {TENANTS_OF_CALLER}.namespace(\"tenant-\" + {prefix})\
                 .name({prefix}).check(\"own\").allowed()"
            ),
        ));
    }
    variables.push(("given".to_owned(), label("object", TENANT_LABEL)));
    let mut tenant = "\"\"".to_owned();
    for parts in 1..=MAX_PARTS {
        tenant = format!("variables.owns{parts} ? variables.prefix{parts} : {tenant}");
    }
    variables.push((
        "tenant".to_owned(),
        format!("variables.given != \"\" ? variables.given : variables.ownsAll ? \"\" : {tenant}"),
    ));
    variables
}

/// The labels of a tenant's namespace. A label that is given wins, and the validating policy
/// decides on it. The policy does not know the tier of the tenant, so `level` is the weakest Pod
/// Security level that is allowed.
fn mutation(level: &str) -> String {
    let given_or = |key: &str, value: &str| {
        let key = quoted(key);
        format!("{key}: string(object.metadata.?labels[{key}].orValue({}))", quoted(value))
    };
    format!(
        "variables.tenant != \"\" ? Object{{metadata: Object.metadata{{labels: {{{}: \
         string(variables.tenant), {}, {}}}}}}} : Object{{}}",
        quoted(TENANT_LABEL),
        given_or(MANAGED_BY_LABEL, MANAGED_BY_VALUE),
        given_or(POD_SECURITY, level),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_that_the_caller_owns_wins() {
        let variables = variables();
        let tenant = &variables.iter().find(|(name, _)| name == "tenant").unwrap().1;
        let order = ["given", "ownsAll", "owns4", "owns3", "owns2", "owns1"]
            .map(|name| tenant.find(&format!("variables.{name} ")).unwrap());
        assert!(order.is_sorted(), "{tenant}");
        assert!(tenant.ends_with("variables.owns1 ? variables.prefix1 : \"\""), "{tenant}");
    }

    #[test]
    fn each_variable_has_one_check_and_uses_those_before_it() {
        let variables = variables();
        for (number, (name, expression)) in variables.iter().enumerate() {
            assert!(expression.matches(".check(").count() <= 1, "{name}: {expression}");
            for (later, _) in &variables[number..] {
                // `owns1` is not a part of another name, because no name has two digits.
                assert!(!expression.contains(&format!("variables.{later} ")), "{name}");
            }
        }
    }

    #[test]
    fn an_expression_has_balanced_braces() {
        let mutation = mutation("baseline");
        assert_eq!(mutation.matches('{').count(), mutation.matches('}').count(), "{mutation}");
        assert!(mutation.ends_with(" : Object{}"), "{mutation}");
    }
}
