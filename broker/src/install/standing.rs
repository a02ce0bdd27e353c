//! Whether the cluster is as `install` left it, as far as the broker may see.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use serde::Serialize;
use tokio::task::JoinSet;

use super::{Parameters, Policy, fence, role::SECRET_VERBS};
use crate::cluster::{Cluster, ClusterError, Question};

/// Group that RBAC does not hold at all.
const ALMIGHTY: &str = "system:masters";

/// Compares the cluster with what this configuration would install. Every fault is a sentence; none
/// if all is well.
///
/// # Errors
/// The cluster does not answer. What it refuses to show is a fault.
pub async fn faults(
    cluster: &Cluster,
    parameters: &Parameters,
) -> Result<Vec<String>, ClusterError> {
    let known_as = cluster.who_am_i().await?;
    let mut faults = Vec::new();
    let wanted = parameters.broker.to_string();
    if known_as.user != wanted {
        faults.push(format!(
            "the API server knows the broker as {}, but the policies fence in {wanted} \
             (cluster.identity)",
            known_as.user
        ));
    }
    if known_as.groups.iter().any(|group| group == ALMIGHTY) {
        faults.push(format!("the broker is in the group {ALMIGHTY}: it may do everything"));
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
        && !look(cluster, &fence::secrets(parameters)).await?.is_empty()
    {
        faults.push(
            "the broker may create or delete Secrets although cluster.bind_tokens_to_secrets is \
             off, and nothing fences that in"
                .to_owned(),
        );
    }
    let mut looks = JoinSet::new();
    for (place, policy) in parameters.policies().into_iter().enumerate() {
        let cluster = cluster.clone();
        looks.spawn(async move { (place, look(&cluster, &policy).await) });
    }
    let mut looked = looks.join_all().await;
    looked.sort_by_key(|(place, _)| *place);
    for (_, result) in looked {
        faults.extend(result?);
    }
    Ok(faults)
}

/// Whether the broker has the right on Secrets, which it does not need, though the fence holds it: so it
/// is for two hours after `cluster.bind_tokens_to_secrets` was switched off, while the last Secrets go.
///
/// # Errors
/// The cluster's.
pub async fn spare_right(cluster: &Cluster, parameters: &Parameters) -> Result<bool, ClusterError> {
    Ok(!parameters.bind_tokens && may_write_secrets(cluster).await?.contains(&true))
}

/// Whether the broker may create and delete Secrets.
async fn may_write_secrets(cluster: &Cluster) -> Result<[bool; 2], ClusterError> {
    let ask = |verb| cluster.may(Question { verb, resource: "secrets", ..Question::default() });
    let [create, delete] = SECRET_VERBS.map(ask);
    let (create, delete) = tokio::try_join!(create, delete)?;
    Ok([create, delete])
}

async fn look(cluster: &Cluster, policy: &Policy) -> Result<Vec<String>, ClusterError> {
    let name = policy.name();
    let mut faults = Vec::new();
    let there: Result<Option<ValidatingAdmissionPolicy>, _> = cluster.look_at(name).await;
    let wanted = policy.policy().spec;
    faults.extend(compare("policy", name, &wanted, there.map(|there| there.map(|it| it.spec)))?);
    let there: Result<Option<ValidatingAdmissionPolicyBinding>, _> = cluster.look_at(name).await;
    let wanted = policy.binding().spec;
    faults.extend(compare("binding", name, &wanted, there.map(|there| there.map(|it| it.spec)))?);
    Ok(faults)
}

fn compare<S: Serialize + PartialEq>(
    kind: &str,
    name: &str,
    wanted: &S,
    there: Result<Option<S>, ClusterError>,
) -> Result<Option<String>, ClusterError> {
    Ok(match there {
        Ok(Some(there)) if there == *wanted => None,
        Ok(Some(there)) => Some(format!(
            "the {kind} {name} is not as this version makes it (spec.{})",
            differing(wanted, &there).join(", spec.")
        )),
        Ok(None) => Some(format!("the {kind} {name} is missing")),
        Err(ClusterError::Refused(_)) => Some(format!("the broker may not read the {kind} {name}")),
        Err(error) => return Err(error),
    })
}

/// The fields of two objects that are not alike.
fn differing<S: Serialize>(one: &S, other: &S) -> Vec<String> {
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
