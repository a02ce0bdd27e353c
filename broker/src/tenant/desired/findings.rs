//! Parts of a Tenant that are not carried out, because the broker or its operator does not allow
//! them.

use std::collections::BTreeSet;

use super::{Inputs, bindings::is_bindable};
use crate::{
    cluster::ClusterList,
    tenant::{ClusterRoleName, Condition, Subject},
};

/// The annotation of the namespace is written, so that it counts once the API server has the plugin.
const NODE_SELECTOR_WITHOUT_PLUGIN: &str = "spec.nodeSelector for pods (the API server needs the \
     admission plugin PodNodeSelector; if it has it, set tenants.pod_node_selector = true)";

pub(super) fn conditions(inputs: &Inputs<'_>) -> Vec<Condition> {
    let Inputs { tenant, settings, tiers, .. } = *inputs;
    let mut conditions = Vec::new();
    let labels = tenant.namespace_options.additional_metadata.labels.keys();
    let protected = labels
        .filter(|key| settings.protects_label(key))
        .map(|key| format!("spec.namespaceOptions.additionalMetadata.labels[{key}]"));
    let has_no_plugin = !tenant.node_selector.is_empty() && !settings.pod_node_selector;
    let selector = has_no_plugin.then(|| NODE_SELECTOR_WITHOUT_PLUGIN.to_owned());
    let not_carried_out: Vec<String> =
        tenant.not_carried_out.iter().cloned().chain(protected).chain(selector).collect();
    if !not_carried_out.is_empty() {
        conditions.push(Condition::not_carried_out(&tenant.name, &not_carried_out));
    }
    let additional = &tenant.additional_role_bindings;
    let roles: BTreeSet<&ClusterRoleName> = tenant
        .owners
        .iter()
        .flat_map(|owner| &owner.cluster_roles)
        .chain(additional.iter().map(|binding| &binding.cluster_role))
        .filter(|role| !settings.cluster_roles.contains(role))
        .collect();
    if !roles.is_empty() {
        conditions.push(Condition::role_not_allowed(&tenant.name, &roles));
    }
    let subjects: BTreeSet<&Subject> = tenant
        .owners
        .iter()
        .map(|owner| &owner.subject)
        .chain(additional.iter().flat_map(|binding| &binding.subjects))
        .filter(|subject| !is_bindable(subject))
        .collect();
    if !subjects.is_empty() {
        conditions.push(Condition::subject_not_allowed(&tenant.name, &subjects));
    }
    let lists: BTreeSet<ClusterList> = tenant
        .owners
        .iter()
        .flat_map(|owner| owner.cluster_lists.iter().copied())
        .filter(|list| !settings.cluster_lists.contains(list))
        .collect();
    if !lists.is_empty() {
        conditions.push(Condition::list_not_allowed(&tenant.name, &lists));
    }
    if let Some(tier) = tenant.tier.as_deref().filter(|tier| tiers.get(tier).is_none()) {
        conditions.push(Condition::unknown_tier(&tenant.name, tier, &tiers.names()));
    }
    conditions
}
