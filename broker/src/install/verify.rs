//! Verification of the installed objects: compares the cluster with what `install` would apply, as
//! far as the broker may read.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::api::{ApiResource, GroupVersionKind};
use serde::Serialize;
use tokio::task::JoinSet;

use super::{Parameters, Policy, broker_policies, direct_namespaces, role::SECRET_VERBS};
use crate::cluster::{AccessReview, Cluster, ClusterError};

/// The group that RBAC does not restrict.
const SYSTEM_MASTERS: &str = "system:masters";
/// The API group of admission policies.
const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";

/// Compares the cluster with what this configuration would install. Returns one sentence for each
/// fault.
///
/// # Errors
/// The cluster does not answer. A refused read is a fault.
pub async fn faults(
    cluster: &Cluster,
    parameters: &Parameters,
) -> Result<Vec<String>, ClusterError> {
    let known_as = cluster.who_am_i().await?;
    let mut faults = Vec::new();
    let wanted = parameters.broker.to_string();
    if known_as.user != wanted {
        faults.push(format!(
            "the API server knows the broker as {}, but the policies restrict {wanted} \
             (cluster.identity)",
            known_as.user
        ));
    }
    if known_as.groups.iter().any(|group| group == SYSTEM_MASTERS) {
        faults.push(format!("the broker is in the group {SYSTEM_MASTERS}: it may do everything"));
    }
    let may_write = may_write_secrets(cluster).await?;
    if parameters.bind_tokens && may_write != [true, true] {
        faults.push(
            "the broker may not create and delete Secrets, which cluster.bind_tokens_to_secrets \
             needs"
                .to_owned(),
        );
    }
    if !parameters.bind_tokens
        && may_write.contains(&true)
        && !check_policy(cluster, &broker_policies::secrets(parameters)).await?.is_empty()
    {
        faults.push(
            "the broker may create or delete Secrets although cluster.bind_tokens_to_secrets is \
             off, and no admission policy restricts that"
                .to_owned(),
        );
    }
    let mut checks = JoinSet::new();
    for (index, policy) in parameters.policies().into_iter().enumerate() {
        let cluster = cluster.clone();
        checks.spawn(async move { (index, check_policy(&cluster, &policy).await) });
    }
    let mut results = checks.join_all().await;
    results.sort_by_key(|(index, _)| *index);
    for (_, result) in results {
        faults.extend(result?);
    }
    faults.extend(check_mutation(cluster, parameters).await?);
    Ok(faults)
}

/// Whether the broker may write Secrets although it does not need to. That is expected for two
/// hours after `cluster.bind_tokens_to_secrets` was switched off, until the last Secrets are
/// deleted; the admission policy for Secrets still restricts it.
///
/// # Errors
/// The cluster does not answer.
pub async fn unneeded_permission(
    cluster: &Cluster,
    parameters: &Parameters,
) -> Result<bool, ClusterError> {
    Ok(!parameters.bind_tokens && may_write_secrets(cluster).await?.contains(&true))
}

/// Whether the broker may create Secrets, and whether it may delete them.
async fn may_write_secrets(cluster: &Cluster) -> Result<[bool; 2], ClusterError> {
    let ask = |verb| {
        cluster.is_allowed(AccessReview { verb, resource: "secrets", ..AccessReview::default() })
    };
    let [create, delete] = SECRET_VERBS.map(ask);
    let (create, delete) = tokio::try_join!(create, delete)?;
    Ok([create, delete])
}

/// Compares a policy and its bindings with the cluster's. Returns one sentence for each fault.
async fn check_policy(cluster: &Cluster, policy: &Policy) -> Result<Vec<String>, ClusterError> {
    let name = policy.name();
    let mut faults = Vec::new();
    let found: Result<Option<ValidatingAdmissionPolicy>, _> = cluster.get_opt(name).await;
    let wanted = policy.policy().spec;
    faults.extend(compare("policy", name, &wanted, found.map(|found| found.map(|it| it.spec)))?);
    for binding in policy.bindings() {
        let name = binding.metadata.name.as_deref().unwrap_or_default();
        let found: Result<Option<ValidatingAdmissionPolicyBinding>, _> =
            cluster.get_opt(name).await;
        let found = found.map(|found| found.map(|it| it.spec));
        faults.extend(compare("binding", name, &binding.spec, found)?);
    }
    Ok(faults)
}

/// Compares the mutating policy and its binding with the cluster's, if the API server serves them.
/// Where it does not, nothing is missing: the validating policy decides alone.
async fn check_mutation(
    cluster: &Cluster,
    parameters: &Parameters,
) -> Result<Vec<String>, ClusterError> {
    let mut faults = Vec::new();
    let wanted = direct_namespaces::mutation(parameters);
    if wanted.is_empty()
        || !cluster.serves(direct_namespaces::API_VERSION, direct_namespaces::POLICIES).await?
    {
        return Ok(faults);
    }
    for (kind, (_, wanted)) in ["policy", "binding"].into_iter().zip(wanted) {
        let gvk = GroupVersionKind::gvk(
            ADMISSION_GROUP,
            "v1",
            wanted["kind"].as_str().unwrap_or_default(),
        );
        let name = direct_namespaces::MUTATION_NAME;
        let found = cluster.get_dynamic_opt(&ApiResource::from_gvk(&gvk), name).await;
        let found = found.map(|found| found.map(|object| object.data["spec"].clone()));
        faults.extend(compare(kind, name, &wanted["spec"], found)?);
    }
    Ok(faults)
}

fn compare<S: Serialize + PartialEq>(
    kind: &str,
    name: &str,
    wanted: &S,
    found: Result<Option<S>, ClusterError>,
) -> Result<Option<String>, ClusterError> {
    Ok(match found {
        Ok(Some(found)) if found == *wanted => None,
        Ok(Some(found)) => Some(format!(
            "the {kind} {name} is not as this version makes it (spec.{})",
            differing_fields(wanted, &found).join(", spec.")
        )),
        Ok(None) => Some(format!("the {kind} {name} is missing")),
        Err(ClusterError::Refused(_)) => Some(format!("the broker may not read the {kind} {name}")),
        Err(error) => return Err(error),
    })
}

/// Names of the top-level fields in which two objects differ.
fn differing_fields<S: Serialize>(one: &S, other: &S) -> Vec<String> {
    let fields = |object: &S| match serde_json::to_value(object) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (one, other) = (fields(one), fields(other));
    let mut names: Vec<String> = one
        .keys()
        .chain(other.keys())
        .filter(|name| one.get(*name) != other.get(*name))
        .cloned()
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}
