//! One admission policy with its binding, as `admissionregistration.k8s.io/v1` has them.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::admissionregistration::v1::{
        MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
        ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec,
        ValidatingAdmissionPolicySpec, Validation, Variable,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta},
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
    /// The namespaces that it is for. The API server sorts requests out by them before it
    /// evaluates anything.
    pub(super) namespaces: Namespaces,
}

/// Which namespaces a policy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Namespaces {
    /// All, and what is in none.
    All,
    /// Those with this label, whatever its value: the API server reads a selector anew for each
    /// request, and takes a regular expression to each part of it.
    Having(&'static str),
    /// Those without this label.
    Lacking(&'static str),
}

impl Namespaces {
    /// Of a label selector; none is needed for all.
    fn selector(self) -> Option<LabelSelector> {
        match self {
            Self::All => None,
            Self::Having(label) => Some(requiring(label, "Exists")),
            Self::Lacking(label) => Some(requiring(label, "DoesNotExist")),
        }
    }
}

fn requiring(label: &str, operator: &str) -> LabelSelector {
    let (key, operator) = (label.to_owned(), operator.to_owned());
    LabelSelector {
        match_expressions: Some(vec![LabelSelectorRequirement { key, operator, values: None }]),
        ..LabelSelector::default()
    }
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
        api_versions: owned(&["*"]),
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
                    ..if self.is_wild() { self.in_namespaces() } else { everything() }
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
        let is_limited = self.namespaces != Namespaces::All && !self.is_wild();
        ValidatingAdmissionPolicyBinding {
            metadata: metadata(self.name),
            spec: Some(ValidatingAdmissionPolicyBindingSpec {
                policy_name: Some(self.name.to_owned()),
                // Audit: the refusal is an annotation in the API server's audit log as well.
                validation_actions: Some(vec!["Deny".to_owned(), "Audit".to_owned()]),
                match_resources: is_limited.then(|| self.in_namespaces()),
                param_ref: None,
            }),
        }
    }

    /// Whether its rules are for everything. The namespaces are then asked for with the rules
    /// instead of in the binding: the API server looks at them before the rules, which sort nothing
    /// out here, and does so for every request as it is.
    pub(super) fn is_wild(&self) -> bool {
        let mut resources = self.rules.iter().flat_map(|rule| rule.resources.iter().flatten());
        resources.any(|resource| resource.starts_with('*'))
    }

    fn in_namespaces(&self) -> MatchResources {
        let selector = self.namespaces.selector().unwrap_or_default();
        MatchResources { namespace_selector: Some(selector), ..everything() }
    }
}

/// The API server's own defaults, but for the match policy. `Equivalent`, which looks for the same
/// resource in other groups and versions, is half of what a policy costs every write in the cluster
/// that it is not for. The rules name all versions, and no resource of theirs is in two groups.
fn everything() -> MatchResources {
    MatchResources {
        match_policy: Some("Exact".to_owned()),
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
