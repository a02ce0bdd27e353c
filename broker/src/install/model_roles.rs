//! ClusterRoles that give people the kinds of model services (`install --model-services`).
//!
//! Kubernetes adds their rules to its roles `admin`, `edit` and `view` (aggregation). They are rights
//! of people: the broker asks for models with the token of the person, and has none of them. KServe
//! ships no such roles, so without them a tenant gets 403.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};

use super::{
    LLAMA_STACK,
    policy::metadata,
    yaml::{comment, document},
};

/// API group and kinds of KServe.
const KSERVE: (&str, &[&str]) =
    ("serving.kserve.io", &["inferenceservices", "llminferenceservices", "servingruntimes"]);
/// Verbs of those who may look.
const READ: &[&str] = &["get", "list", "watch"];
/// Verbs of those who may also change something.
const WRITE: &[&str] = &["create", "delete"];

/// Names of both ClusterRoles.
pub const MODEL_ROLES: [&str; 2] = ["tenant-model-services-view", "tenant-model-services-edit"];
/// Beginning of the labels that name the roles to which Kubernetes adds the rules of a ClusterRole.
const AGGREGATION: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// Both ClusterRoles as YAML, to be appended to the manifest.
pub fn model_roles() -> String {
    let reasons = [
        "Everybody with the role view, edit or admin in a namespace may see the models of KServe \
         and the Llama Stack there (model services). A right of people, not of the broker.",
        "Everybody with the role edit or admin in a namespace may install a Llama Stack there, and \
         delete it. A right of people, not of the broker.",
    ];
    let mut yaml = String::new();
    for (reason, role) in reasons.into_iter().zip(desired_model_roles()) {
        yaml.push_str("---\n");
        comment(&mut yaml, reason);
        document(&mut yaml, &role);
    }
    yaml
}

/// Both ClusterRoles, in the order of [`MODEL_ROLES`].
pub fn desired_model_roles() -> [ClusterRole; 2] {
    let [view, edit] = MODEL_ROLES;
    [
        cluster_role(
            view,
            &["view", "edit", "admin"],
            vec![rule(KSERVE, READ), rule(LLAMA_STACK, READ)],
        ),
        cluster_role(edit, &["edit", "admin"], vec![rule(LLAMA_STACK, WRITE)]),
    ]
}

/// Whether a ClusterRole of the cluster has the rules of the desired one, and Kubernetes adds them to
/// the same roles.
pub fn grants_the_same(desired: &ClusterRole, found: &ClusterRole) -> bool {
    let aggregation = |role: &ClusterRole| -> BTreeMap<String, String> {
        let labels = role.metadata.labels.clone().unwrap_or_default();
        labels.into_iter().filter(|(key, _)| key.starts_with(AGGREGATION)).collect()
    };
    desired.rules == found.rules && aggregation(desired) == aggregation(found)
}

/// The rights of both ClusterRoles that these rules do not grant, each as `VERB RESOURCE.GROUP`. The
/// rules may be those of a role to which Kubernetes added the ClusterRoles.
pub fn missing_model_rights(rules: &[PolicyRule]) -> Vec<String> {
    let mut missing = Vec::new();
    for ((group, resources), verbs) in [(KSERVE, READ), (LLAMA_STACK, READ), (LLAMA_STACK, WRITE)] {
        for resource in resources {
            let verbs = verbs.iter().filter(|verb| !is_granted(rules, verb, group, resource));
            missing.extend(verbs.map(|verb| format!("{verb} {resource}.{group}")));
        }
    }
    missing
}

fn is_granted(rules: &[PolicyRule], verb: &str, group: &str, resource: &str) -> bool {
    let has = |items: &[String], item: &str| items.iter().any(|it| it == item || it == "*");
    rules.iter().any(|rule| {
        rule.resource_names.as_ref().is_none_or(Vec::is_empty)
            && has(rule.api_groups.as_deref().unwrap_or_default(), group)
            && has(rule.resources.as_deref().unwrap_or_default(), resource)
            && has(&rule.verbs, verb)
    })
}

/// A ClusterRole whose rules Kubernetes adds to these roles.
fn cluster_role(name: &str, aggregated_to: &[&str], rules: Vec<PolicyRule>) -> ClusterRole {
    let mut metadata = metadata(name);
    let labels = metadata.labels.get_or_insert_with(BTreeMap::new);
    let aggregation =
        aggregated_to.iter().map(|role| (format!("{AGGREGATION}{role}"), "true".to_owned()));
    labels.extend(aggregation);
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
    fn missing_rights_are_named() {
        let all = [rule(KSERVE, READ), rule(LLAMA_STACK, READ), rule(LLAMA_STACK, WRITE)];
        assert!(missing_model_rights(&all).is_empty());
        assert!(missing_model_rights(&[rule(("*", &["*"]), &["*"])]).is_empty());
        assert_eq!(missing_model_rights(&[]).len(), 14);
        let mut named = all.clone();
        named[2].resource_names = Some(vec!["one".to_owned()]);
        let write =
            ["create", "delete"].map(|it| format!("{it} llamastackdistributions.llamastack.io"));
        assert_eq!(missing_model_rights(&named), write);
        assert_eq!(missing_model_rights(&all[..2]), write);
    }

    #[test]
    fn changed_rules_and_other_roles_are_noticed() {
        let [view, edit] = desired_model_roles();
        assert!(grants_the_same(&view, &view) && !grants_the_same(&view, &edit));
        let mut annotated = view.clone();
        annotated.metadata.resource_version = Some("7".to_owned());
        annotated.metadata.labels.as_mut().unwrap().insert("team".to_owned(), "a".to_owned());
        assert!(grants_the_same(&view, &annotated));
        let mut elsewhere = view.clone();
        elsewhere.metadata.labels.as_mut().unwrap().remove(&format!("{AGGREGATION}view"));
        assert!(!grants_the_same(&view, &elsewhere));
        let mut fewer = view.clone();
        fewer.rules.as_mut().unwrap()[0].verbs.pop();
        assert!(!grants_the_same(&view, &fewer));
    }

    #[test]
    fn the_roles_of_people() {
        insta::assert_snapshot!(model_roles());
    }
}
