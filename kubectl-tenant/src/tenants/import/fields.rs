//! The fields of `spec` that the kind `Tenant` of `tenant-broker.io` has. Others are left out,
//! because kubectl refuses an object with a field that the definition does not have.

use serde_norway::Value;

/// The fields of a part of the specification.
enum Shape {
    /// Any content.
    Any,
    /// An object with these fields.
    Object(&'static [(&'static str, Shape)]),
    /// A list of such parts.
    List(&'static Shape),
}

use Shape::{Any, List, Object};

/// The fields of `spec`; a test compares them with the table in `docs/tenants.md`.
static SPEC: Shape = Object(&[
    (
        "owners",
        List(&Object(&[
            ("kind", Any),
            ("name", Any),
            ("clusterRoles", Any),
            ("proxySettings", List(&Object(&[("kind", Any), ("operations", Any)]))),
        ])),
    ),
    (
        "additionalRoleBindings",
        List(&Object(&[
            ("clusterRoleName", Any),
            (
                "subjects",
                List(&Object(&[
                    ("apiGroup", Any),
                    ("kind", Any),
                    ("name", Any),
                    ("namespace", Any),
                ])),
            ),
        ])),
    ),
    (
        "namespaceOptions",
        Object(&[
            ("quota", Any),
            ("forceTenantPrefix", Any),
            ("additionalMetadata", Object(&[("labels", Any), ("annotations", Any)])),
            ("requiredMetadata", Object(&[("labels", Any), ("annotations", Any)])),
        ]),
    ),
    (
        "resourceQuotas",
        Object(&[
            ("scope", Any),
            ("items", List(&Object(&[("hard", Any), ("scopes", Any), ("scopeSelector", Any)]))),
        ]),
    ),
    (
        "limitRanges",
        Object(&[(
            "items",
            List(&Object(&[(
                "limits",
                List(&Object(&[
                    ("type", Any),
                    ("max", Any),
                    ("min", Any),
                    ("default", Any),
                    ("defaultRequest", Any),
                    ("maxLimitRequestRatio", Any),
                ])),
            )])),
        )]),
    ),
    ("nodeSelector", Any),
    ("bindings", Any),
    ("tier", Any),
    ("networkPolicies", Any),
    ("ingressOptions", Any),
    ("containerRegistries", Any),
]);

/// Removes the fields of a `spec` that the kind does not have, and returns the paths of those that
/// had a value.
pub(super) fn remove_unknown(spec: &mut Value) -> Vec<String> {
    let mut removed = Vec::new();
    remove(spec, &SPEC, "spec", &mut removed);
    removed
}

fn remove(value: &mut Value, shape: &Shape, path: &str, removed: &mut Vec<String>) {
    match (shape, value) {
        (Object(fields), Value::Mapping(mapping)) => {
            mapping.retain(|key, value| {
                let name = key.as_str().unwrap_or_default();
                let path = format!("{path}.{name}");
                if let Some((_, shape)) = fields.iter().find(|(known, _)| *known == name) {
                    remove(value, shape, &path, removed);
                    return true;
                }
                if !is_empty(value) {
                    removed.push(path);
                }
                false
            });
        }
        (List(shape), Value::Sequence(items)) => {
            for (index, item) in items.iter_mut().enumerate() {
                remove(item, shape, &format!("{path}[{index}]"), removed);
            }
        }
        // The API server says what is wrong with a value of another type.
        _ => {}
    }
}

/// Whether a value is the same as none.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Sequence(items) => items.is_empty(),
        Value::Mapping(fields) => fields.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_removed_at_every_depth() {
        let text = "owners:\n- {kind: User, name: alice, labels: {a: b}}\n- {kind: User, name: bob}\n\
                    storageClasses: {allowed: [a]}\nserviceOptions: {}\ncordoned: false\n\
                    networkPolicies: {items: [{podSelector: {}}]}\n\
                    namespaceOptions: {quota: 3, forbiddenLabels: {denied: [x]}}\n\
                    limitRanges: {items: [{limits: [{type: Pod, x: 1}]}]}\n";
        let mut spec: Value = serde_norway::from_str(text).unwrap();
        let mut removed = remove_unknown(&mut spec);
        removed.sort();
        assert_eq!(
            removed,
            [
                "spec.cordoned",
                "spec.limitRanges.items[0].limits[0].x",
                "spec.namespaceOptions.forbiddenLabels",
                "spec.owners[0].labels",
                "spec.storageClasses",
            ]
        );
        let expected = "owners:\n- {kind: User, name: alice}\n- {kind: User, name: bob}\n\
                        networkPolicies: {items: [{podSelector: {}}]}\n\
                        namespaceOptions: {quota: 3}\n\
                        limitRanges: {items: [{limits: [{type: Pod}]}]}\n";
        assert_eq!(spec, serde_norway::from_str::<Value>(expected).unwrap());
    }

    fn paths(shape: &Shape, path: &str, all: &mut Vec<String>) {
        match shape {
            Any => {}
            List(shape) => paths(shape, &format!("{path}[]"), all),
            Object(fields) => {
                for (name, shape) in *fields {
                    let path = format!("{path}.{name}");
                    all.push(path.clone());
                    paths(shape, &path, all);
                }
            }
        }
    }

    #[test]
    fn the_fields_are_those_of_the_documentation() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tenants.md");
        let page = std::fs::read_to_string(page).unwrap();
        let documented = page.lines().filter_map(|line| line.strip_prefix("| `spec."));
        let mut documented: Vec<String> = documented
            .map(|line| format!("spec.{}", line.split('`').next().unwrap()))
            // The only field of these options that has a rule; the others are any content.
            .filter(|path| path != "spec.ingressOptions.hostnameCollisionScope")
            .collect();
        let mut known = Vec::new();
        paths(&SPEC, "spec", &mut known);
        documented.sort();
        known.sort();
        assert_eq!(known, documented);
    }
}
