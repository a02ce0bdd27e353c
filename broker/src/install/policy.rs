//! An admission policy with its binding (`admissionregistration.k8s.io/v1`).

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

/// Follows the policy's name in the name of its second binding.
pub(super) const SECOND_BINDING: &str = "-tenants";

/// A policy and its bindings. The first binding has the name of the policy.
///
/// The objects set every field that the API server would default, so that the stored objects can be
/// compared as a whole.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(super) name: &'static str,
    /// The purpose of the policy, as a comment in the manifest.
    pub(super) reason: &'static str,
    pub(super) rules: Vec<NamedRuleWithOperations>,
    /// Match conditions: name and expression; the policy applies if all hold.
    pub(super) conditions: Vec<(&'static str, String)>,
    /// Variables: name and expression, evaluated when first used.
    pub(super) variables: Vec<(&'static str, String)>,
    /// Validations: an expression that must hold, and the message if it does not.
    pub(super) validations: Vec<(String, Message)>,
    /// The namespaces that the policy applies to. The API server checks them before it evaluates
    /// any expression.
    pub(super) namespaces: Namespaces,
}

/// The namespaces that a policy applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Namespaces {
    /// All namespaces, and cluster-scoped objects.
    All,
    /// Namespaces with one of these labels, whatever its value: the API server parses a selector
    /// anew for each request, and validates each part of it with a regular expression. The policy
    /// has a binding for each label, because all expressions of one selector have to hold.
    Having(&'static [&'static str]),
    /// Namespaces with none of these labels.
    Lacking(&'static [&'static str]),
}

impl Namespaces {
    /// The label selectors, of which one has to hold.
    fn selectors(self) -> Vec<LabelSelector> {
        match self {
            Self::All => vec![LabelSelector::default()],
            Self::Having(labels) => {
                labels.iter().map(|&label| requiring(&[label], "Exists")).collect()
            }
            Self::Lacking(labels) => vec![requiring(labels, "DoesNotExist")],
        }
    }
}

fn requiring(labels: &[&str], operator: &str) -> LabelSelector {
    let requirement = |label: &&str| LabelSelectorRequirement {
        key: (*label).to_owned(),
        operator: operator.to_owned(),
        values: None,
    };
    LabelSelector {
        match_expressions: Some(labels.iter().map(requirement).collect()),
        ..LabelSelector::default()
    }
}

/// The message of a refusal.
#[derive(Clone, Debug)]
pub(super) enum Message {
    Fixed(String),
    /// An expression that builds the message, and the message if the expression fails.
    Built(String, String),
}

/// A rule that matches requests by resource. `operations` are admission operations: `CREATE`,
/// `UPDATE`, `DELETE`, `CONNECT`.
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
    /// Name of the policy, and of its first binding.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The `ValidatingAdmissionPolicy`.
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
                // An expression that fails to evaluate refuses the request.
                failure_policy: Some("Fail".to_owned()),
                match_constraints: Some(MatchResources {
                    resource_rules: Some(self.rules.clone()),
                    ..match self.selector_of_policy() {
                        Some(selector) => matching(selector),
                        None => match_defaults(),
                    }
                }),
                match_conditions: some(self.conditions.iter().map(condition).collect()),
                variables: some(self.variables.iter().map(variable).collect()),
                validations: some(self.validations.iter().map(validation).collect()),
                ..ValidatingAdmissionPolicySpec::default()
            }),
            status: None,
        }
    }

    /// The bindings, which put the policy in force: one for each selector of namespaces.
    pub fn bindings(&self) -> Vec<ValidatingAdmissionPolicyBinding> {
        if self.namespaces == Namespaces::All || self.selector_of_policy().is_some() {
            return vec![self.binding(self.name, None)];
        }
        let selectors = self.namespaces.selectors().into_iter();
        let names = std::iter::once(self.name.to_owned())
            .chain(std::iter::repeat(format!("{}{SECOND_BINDING}", self.name)));
        names.zip(selectors).map(|(name, it)| self.binding(&name, Some(it))).collect()
    }

    /// Names of the bindings.
    pub(super) fn binding_names(&self) -> Vec<String> {
        self.bindings().into_iter().filter_map(|binding| binding.metadata.name).collect()
    }

    fn binding(
        &self,
        name: &str,
        selector: Option<LabelSelector>,
    ) -> ValidatingAdmissionPolicyBinding {
        ValidatingAdmissionPolicyBinding {
            metadata: metadata(name),
            spec: Some(ValidatingAdmissionPolicyBindingSpec {
                policy_name: Some(self.name.to_owned()),
                // Audit: the API server's audit log has the refusal as an annotation as well.
                validation_actions: Some(vec!["Deny".to_owned(), "Audit".to_owned()]),
                match_resources: selector.map(matching),
                param_ref: None,
            }),
        }
    }

    /// Whether the rules match all resources.
    pub(super) fn matches_all_resources(&self) -> bool {
        let mut resources = self.rules.iter().flat_map(|rule| rule.resources.iter().flatten());
        resources.any(|resource| resource.starts_with('*'))
    }

    /// The selector of namespaces that the policy has instead of its binding. A policy for all
    /// resources has it if one selector is enough: the API server checks the selector before the
    /// rules, which exclude nothing there.
    fn selector_of_policy(&self) -> Option<LabelSelector> {
        let mut selectors = self.namespaces.selectors();
        let is_one = selectors.len() == 1 && self.matches_all_resources();
        if is_one { selectors.pop() } else { None }
    }
}

/// Matches the namespaces of this selector.
fn matching(selector: LabelSelector) -> MatchResources {
    MatchResources { namespace_selector: Some(selector), ..match_defaults() }
}

/// The API server's defaults, except for the match policy. The default `Equivalent` searches the
/// same resource in other groups and versions, which is half of what a policy costs each write in
/// the cluster that it does not apply to. The rules name all versions, and none of their resources
/// is in two groups.
fn match_defaults() -> MatchResources {
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
        // Without a reason the response is 422 Invalid, which means that the object is malformed.
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
