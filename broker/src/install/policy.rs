//! One admission policy with its binding, as `admissionregistration.k8s.io/v1` has them.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::admissionregistration::v1::{
        MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
        ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec,
        ValidatingAdmissionPolicySpec, Validation, Variable,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};

use super::{INSTALLED_BY_LABEL, INSTALLED_BY_VALUE};

/// A policy and its binding, which have the same name.
///
/// The objects state every field that the API server would fill in, so that what is read back can
/// be compared as a whole.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(super) name: &'static str,
    /// Why it is there, for whoever reads the manifest.
    pub(super) why: &'static str,
    pub(super) rules: Vec<NamedRuleWithOperations>,
    /// Requests that it looks at: name and expression, all must hold.
    pub(super) conditions: Vec<(&'static str, String)>,
    /// Expressions by name, evaluated when they are first used.
    pub(super) variables: Vec<(&'static str, String)>,
    /// What must hold, and what a person is told if it does not.
    pub(super) validations: Vec<(String, Message)>,
    /// Label and value of the namespaces that it is for; all namespaces without it.
    pub(super) namespaces: Option<(&'static str, &'static str)>,
}

/// What a refused person is told.
#[derive(Clone, Debug)]
pub(super) enum Message {
    Fixed(String),
    /// An expression that names what was refused, and what is said if it fails.
    Built(String, String),
}

/// Requests for some resources. `operations` are those of admission: `CREATE`, `UPDATE`, `DELETE`,
/// `CONNECT`.
pub(super) fn rule(
    group: &str,
    resources: &[&str],
    operations: &[&str],
    scope: &str,
) -> NamedRuleWithOperations {
    let owned = |items: &[&str]| Some(items.iter().map(|item| (*item).to_owned()).collect());
    NamedRuleWithOperations {
        api_groups: owned(&[group]),
        // Others of the same resource are converted to one that is listed (matchPolicy).
        api_versions: owned(&[if group == "*" { "*" } else { "v1" }]),
        operations: owned(operations),
        resource_names: None,
        resources: owned(resources),
        scope: Some(scope.to_owned()),
    }
}

impl Policy {
    /// Name of the policy, and of its binding.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The policy.
    pub fn policy(&self) -> ValidatingAdmissionPolicy {
        let condition = |(name, expression): &(&str, String)| MatchCondition {
            name: (*name).to_owned(),
            expression: expression.clone(),
        };
        let variable = |(name, expression): &(&str, String)| Variable {
            name: (*name).to_owned(),
            expression: expression.clone(),
        };
        ValidatingAdmissionPolicy {
            metadata: metadata(self.name),
            spec: Some(ValidatingAdmissionPolicySpec {
                // An expression that fails refuses.
                failure_policy: Some("Fail".to_owned()),
                match_constraints: Some(MatchResources {
                    resource_rules: Some(self.rules.clone()),
                    ..everything()
                }),
                match_conditions: some(self.conditions.iter().map(condition).collect()),
                variables: some(self.variables.iter().map(variable).collect()),
                validations: some(self.validations.iter().map(validation).collect()),
                ..ValidatingAdmissionPolicySpec::default()
            }),
            status: None,
        }
    }

    /// Its binding, which puts it in force.
    pub fn binding(&self) -> ValidatingAdmissionPolicyBinding {
        let match_resources = self.namespaces.map(|(label, value)| MatchResources {
            namespace_selector: Some(LabelSelector {
                match_labels: Some(BTreeMap::from([(label.to_owned(), value.to_owned())])),
                ..LabelSelector::default()
            }),
            ..everything()
        });
        ValidatingAdmissionPolicyBinding {
            metadata: metadata(self.name),
            spec: Some(ValidatingAdmissionPolicyBindingSpec {
                policy_name: Some(self.name.to_owned()),
                // Audit: the refusal is an annotation in the API server's audit log as well.
                validation_actions: Some(vec!["Deny".to_owned(), "Audit".to_owned()]),
                match_resources,
                param_ref: None,
            }),
        }
    }
}

/// The API server's own defaults.
fn everything() -> MatchResources {
    MatchResources {
        match_policy: Some("Equivalent".to_owned()),
        namespace_selector: Some(LabelSelector::default()),
        object_selector: Some(LabelSelector::default()),
        ..MatchResources::default()
    }
}

fn validation((expression, message): &(String, Message)) -> Validation {
    let (message, message_expression) = match message {
        Message::Fixed(text) => (text, None),
        Message::Built(expression, otherwise) => (otherwise, Some(expression.clone())),
    };
    Validation {
        expression: expression.clone(),
        message: Some(message.clone()),
        message_expression,
        // Without it the answer is 422 Invalid, which says that the object is malformed.
        reason: Some("Forbidden".to_owned()),
    }
}

pub(super) fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(BTreeMap::from([(
            INSTALLED_BY_LABEL.to_owned(),
            INSTALLED_BY_VALUE.to_owned(),
        )])),
        ..ObjectMeta::default()
    }
}

fn some<T>(items: Vec<T>) -> Option<Vec<T>> {
    (!items.is_empty()).then_some(items)
}
