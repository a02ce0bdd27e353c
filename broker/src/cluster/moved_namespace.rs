//! Objects in a namespace that goes from one tenant to another: bindings and limits from before.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::{
    core::v1::{LimitRange, ResourceQuota},
    rbac::v1::RoleBinding,
};
use kube::{Api, Resource, ResourceExt as _, api::ListParams};
use serde::de::DeserializeOwned;
use tenant_shared::TENANT_LABEL;

use super::{Cluster, ClusterError, Object};

/// Lists of RoleBindings until two in a row have none to delete.
const MAX_ROUNDS: u32 = 20;
/// Pause between rounds, because another API server may lag behind by as much.
const ROUND_INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);
/// Objects per page of a list.
const PAGE_SIZE: u32 = 500;
/// Characters of a text about RoleBindings. Audit rows have it.
const MAX_TEXT_CHARS: usize = 8_000;
/// Deletions that are in flight.
const MAX_IN_FLIGHT: usize = 8;

/// Whether a RoleBinding gives rights to anybody but ServiceAccounts of its namespace.
pub fn binds_outsiders(binding: &RoleBinding) -> bool {
    let namespace = binding.metadata.namespace.as_deref();
    binding.subjects.iter().flatten().any(|subject| {
        subject.kind != "ServiceAccount" || subject.namespace.as_deref() != namespace
    })
}

/// RoleBindings with their roles and subjects, for people; at most [`MAX_TEXT_CHARS`] characters.
pub fn describe_bindings<'a>(bindings: impl IntoIterator<Item = &'a RoleBinding>) -> String {
    let mut text = String::new();
    let mut left_out = 0;
    for binding in bindings {
        let subjects: Vec<String> = binding
            .subjects
            .iter()
            .flatten()
            .map(|subject| format!("{} {}", subject.kind, subject.name))
            .collect();
        let (role, subjects) = (&binding.role_ref, subjects.join(", "));
        let one = format!("{} ({} {}: {subjects})", binding.name_any(), role.kind, role.name);
        if text.chars().count() + one.chars().count() > MAX_TEXT_CHARS {
            left_out += 1;
            continue;
        }
        if !text.is_empty() {
            text.push_str("; ");
        }
        text.push_str(&one);
    }
    match (left_out, text.is_empty()) {
        (0, true) => "none".to_owned(),
        (0, false) => text,
        (_, _) => format!("{text} and {left_out} more"),
    }
}

impl Cluster {
    /// All objects of a kind in a namespace that a selector of labels selects.
    ///
    /// # Errors
    /// The request failed.
    pub async fn list_in_namespace<K>(
        &self,
        namespace: &str,
        selector: &str,
    ) -> Result<Vec<K>, ClusterError>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let api: Api<K> = Api::namespaced(self.client(), namespace);
        let selected = ListParams::default().labels(selector).limit(PAGE_SIZE);
        let (mut objects, mut next) = (Vec::new(), None);
        loop {
            let page = api.list(&ListParams { continue_token: next, ..selected.clone() }).await?;
            objects.extend(page.items);
            next = page.metadata.continue_.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(objects);
            }
        }
    }

    /// Deletes the RoleBindings of a namespace for which `goes` holds, until two lists in a row have
    /// none. Returns those that were deleted.
    ///
    /// # Errors
    /// A request failed; [`ClusterError::Conflict`] if somebody makes such bindings again and again.
    pub async fn delete_bindings_from_before(
        &self,
        namespace: &str,
        goes: impl Fn(&RoleBinding) -> bool,
    ) -> Result<Vec<RoleBinding>, ClusterError> {
        let mut deleted: BTreeMap<String, RoleBinding> = BTreeMap::new();
        let mut empty_lists = 0;
        for round in 0..MAX_ROUNDS {
            if round > 0 {
                tokio::time::sleep(ROUND_INTERVAL).await;
            }
            let all: Vec<RoleBinding> = self.list_in_namespace(namespace, "").await?;
            let left: Vec<RoleBinding> = all.into_iter().filter(&goes).collect();
            if left.is_empty() {
                empty_lists += 1;
                if empty_lists == 2 {
                    return Ok(deleted.into_values().collect());
                }
                continue;
            }
            empty_lists = 0;
            let deletions: Vec<_> = left
                .into_iter()
                .map(|binding| async move {
                    let (name, uid) = (binding.name_any(), binding.uid());
                    self.delete_role_binding(namespace, &name, uid.as_deref()).await?;
                    Ok::<_, ClusterError>(binding)
                })
                .collect();
            let gone: Vec<RoleBinding> =
                stream::iter(deletions).buffer_unordered(MAX_IN_FLIGHT).try_collect().await?;
            deleted.extend(gone.into_iter().map(|it| (it.uid().unwrap_or_default(), it)));
        }
        let text = format!("RoleBindings in {namespace} are made again and again");
        Err(ClusterError::Conflict(text))
    }

    /// The ResourceQuotas and LimitRanges in a namespace that the broker made for other tenants than
    /// this one.
    ///
    /// # Errors
    /// A request failed.
    pub async fn limits_of_other_tenants(
        &self,
        namespace: &str,
        tenant: &str,
        is_own_name: impl Fn(&str) -> bool,
    ) -> Result<Vec<Object>, ClusterError> {
        let selector = format!("{TENANT_LABEL},{TENANT_LABEL}!={tenant}");
        let (quotas, limits) = tokio::try_join!(
            self.list_in_namespace::<ResourceQuota>(namespace, &selector),
            self.list_in_namespace::<LimitRange>(namespace, &selector),
        )?;
        let quotas = quotas.into_iter().map(|it| Object::ResourceQuota(Box::new(it)));
        let limits = limits.into_iter().map(|it| Object::LimitRange(Box::new(it)));
        let is_ours = |object: &Object| object.metadata().name.as_deref().is_some_and(&is_own_name);
        Ok(quotas.chain(limits).filter(is_ours).collect())
    }

    /// Whether the API server enforces the amounts that all of these quotas have now.
    ///
    /// # Errors
    /// A request failed.
    pub async fn are_quotas_enforced(
        &self,
        namespace: &str,
        quotas: &BTreeSet<&str>,
    ) -> Result<bool, ClusterError> {
        for quota in quotas {
            if !self.quota_is_enforced(namespace, quota).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_text_about_bindings_names_subjects_and_says_how_many_it_leaves_out() {
        let binding = |name: &str| -> RoleBinding {
            serde_json::from_value(json!({
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "", "kind": "ClusterRole", "name": "view"},
                "subjects": [{"kind": "User", "name": "bob"}, {"kind": "Group", "name": "dev"}],
            }))
            .unwrap()
        };
        assert_eq!(describe_bindings([]), "none");
        let two = [binding("a"), binding("b")];
        let expected = "a (ClusterRole view: User bob, Group dev); b (ClusterRole view: User bob, \
                        Group dev)";
        assert_eq!(describe_bindings(&two), expected);
        let many = vec![binding(&"x".repeat(250)); 100];
        let text = describe_bindings(&many);
        assert!(text.len() < MAX_TEXT_CHARS + 100 && text.ends_with(" more"), "{text}");
    }

    #[test]
    fn only_accounts_of_the_namespace_are_no_outsiders() {
        let binding = |subjects: Value| -> RoleBinding {
            serde_json::from_value(json!({
                "metadata": {"name": "x", "namespace": "solar-a"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "x"},
                "subjects": subjects,
            }))
            .unwrap()
        };
        let own = json!({"kind": "ServiceAccount", "namespace": "solar-a", "name": "robot"});
        for (subjects, expected) in [
            (json!([]), false),
            (json!([own]), false),
            (json!([own, {"kind": "User", "name": "bob"}]), true),
            (json!([{"kind": "Group", "name": "system:serviceaccounts:solar-a"}]), true),
            (json!([{"kind": "ServiceAccount", "namespace": "tenant-solar", "name": "m"}]), true),
            (json!([{"kind": "ServiceAccount", "name": "robot"}]), true),
        ] {
            assert_eq!(binds_outsiders(&binding(subjects.clone())), expected, "{subjects}");
        }
    }
}
