//! ClusterRoles that give people the kinds of model services (`install --model-services`).
//!
//! Kubernetes adds their rules to its roles `admin`, `edit` and `view` (aggregation). They are rights
//! of people: the broker asks for models with the token of the person, and has none of them. KServe
//! ships no such roles, so without them a tenant gets 403.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};

use super::{
    policy::metadata,
    yaml::{comment, document},
};

/// API group and kinds of KServe.
const KSERVE: (&str, &[&str]) =
    ("serving.kserve.io", &["inferenceservices", "llminferenceservices", "servingruntimes"]);
/// API group and kind of the Llama Stack operator.
const LLAMA_STACK: (&str, &[&str]) = ("llamastack.io", &["llamastackdistributions"]);
/// Verbs of those who may look.
const READ: &[&str] = &["get", "list", "watch"];
/// Verbs of those who may also change something.
const WRITE: &[&str] = &["create", "delete"];

/// Both ClusterRoles as YAML, to be appended to the manifest.
pub fn model_roles() -> String {
    let roles = [
        (
            "Everybody with the role view, edit or admin in a namespace may see the models of KServe \
             and the Llama Stack there (model services). A right of people, not of the broker.",
            cluster_role(
                "tenant-model-services-view",
                &["view", "edit", "admin"],
                vec![rule(KSERVE, READ), rule(LLAMA_STACK, READ)],
            ),
        ),
        (
            "Everybody with the role edit or admin in a namespace may install a Llama Stack there, \
             and delete it. A right of people, not of the broker.",
            cluster_role(
                "tenant-model-services-edit",
                &["edit", "admin"],
                vec![rule(LLAMA_STACK, WRITE)],
            ),
        ),
    ];
    let mut yaml = String::new();
    for (reason, role) in roles {
        yaml.push_str("---\n");
        comment(&mut yaml, reason);
        document(&mut yaml, &role);
    }
    yaml
}

/// A ClusterRole whose rules Kubernetes adds to these roles.
fn cluster_role(name: &str, aggregated_to: &[&str], rules: Vec<PolicyRule>) -> ClusterRole {
    let mut metadata = metadata(name);
    let labels = metadata.labels.get_or_insert_with(BTreeMap::new);
    labels.extend(
        aggregated_to.iter().map(|role| {
            (format!("rbac.authorization.k8s.io/aggregate-to-{role}"), "true".to_owned())
        }),
    );
    ClusterRole { metadata, rules: Some(rules), ..ClusterRole::default() }
}

fn rule((group, resources): (&str, &[&str]), verbs: &[&str]) -> PolicyRule {
    let owned = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
    PolicyRule {
        api_groups: Some(owned(&[group])),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roles_of_people() {
        insta::assert_snapshot!(model_roles());
    }
}
