//! Objects in a namespace that goes from one tenant to another: bindings and limits from before.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::ControlFlow,
};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{LimitRange, ResourceQuota, ScopeSelector},
        rbac::v1::RoleBinding,
    },
};
use kube::{
    Resource, ResourceExt as _,
    api::{ListParams, ObjectMeta},
};
use serde::de::DeserializeOwned;
use tenant_shared::TENANT_LABEL;

use crate::cluster::{
    Cluster, ClusterError, Object,
    objects::{
        deletion_rounds::{DeletionRounds, TooManyRounds},
        messages::RoleBindingMessage,
    },
    pages::{Pages, Representation},
};

/// Lists of RoleBindings until two in a row have none to delete.
const MAX_ROUNDS: u32 = 20;
/// Subjects of one RoleBinding that a text names.
const MAX_SUBJECTS: usize = 20;
/// Characters of a name in a text.
const MAX_NAME_CHARS: usize = 100;
/// Characters of a text about RoleBindings. Audit rows have it.
const MAX_TEXT_CHARS: usize = 8_000;
/// Deletions that are in flight.
const MAX_IN_FLIGHT: usize = 8;

/// Whether a RoleBinding gives rights to anybody but ServiceAccounts of its namespace.
pub fn grants_to_other_namespaces(binding: &RoleBinding) -> bool {
    let namespace = binding.metadata.namespace.as_deref();
    binding.subjects.iter().flatten().any(|subject| {
        subject.kind != "ServiceAccount" || subject.namespace.as_deref() != namespace
    })
}

/// RoleBindings with their roles and subjects, for people. It keeps at most [`MAX_TEXT_CHARS`]
/// characters, and counts the others. Names are quoted, and cut to [`MAX_NAME_CHARS`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BindingsDescription {
    entries: Vec<String>,
    chars: usize,
    left_out: usize,
}

impl BindingsDescription {
    /// The text about these RoleBindings.
    #[cfg(test)]
    pub(crate) fn of<'a>(bindings: impl IntoIterator<Item = &'a RoleBinding>) -> Self {
        let mut text = Self::default();
        bindings.into_iter().for_each(|binding| text.add(binding));
        text
    }

    /// Whether there was no RoleBinding.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.left_out == 0
    }

    fn add(&mut self, binding: &RoleBinding) {
        let all = binding.subjects.as_deref().unwrap_or_default();
        let mut subjects: Vec<String> = all
            .iter()
            .take(MAX_SUBJECTS)
            .map(|subject| format!("{} {}", subject.kind, quoted(&subject.name)))
            .collect();
        if all.len() > MAX_SUBJECTS {
            subjects.push(format!("{} more", all.len() - MAX_SUBJECTS));
        }
        let (name, role, subjects) =
            (quoted(&binding.name_any()), &binding.role_ref, subjects.join(", "));
        let one = format!("{name} ({} {}: {subjects})", role.kind, quoted(&role.name));
        let chars = one.chars().count();
        // A list of another API server may have it once more.
        if self.entries.contains(&one) {
            return;
        }
        if self.chars + chars > MAX_TEXT_CHARS {
            self.left_out += 1;
            return;
        }
        self.entries.push(one);
        self.chars += chars + 2;
    }
}

impl fmt::Display for BindingsDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.entries.join("; ");
        match (self.left_out, self.entries.is_empty()) {
            (0, true) => f.write_str("none"),
            (0, false) => f.write_str(&text),
            (more, _) => write!(f, "{text} and {more} more"),
        }
    }
}

/// A ResourceQuota or LimitRange in a namespace, without its amounts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespaceLimits {
    pub name: String,
    pub has_tenant_label: bool,
    /// Those of a ResourceQuota.
    pub scopes: Vec<String>,
    pub scope_selector: Option<ScopeSelector>,
}

fn has_tenant_label(labels: Option<&BTreeMap<String, String>>) -> bool {
    labels.is_some_and(|labels| labels.contains_key(TENANT_LABEL))
}

/// The first characters of a name, because the API server accepts nearly any name for RBAC objects.
fn quoted(name: &str) -> String {
    let first: String = name.chars().take(MAX_NAME_CHARS).collect();
    let more = if first.len() < name.len() { "…" } else { "" };
    format!("{first:?}{more}")
}

impl Cluster {
    /// The ResourceQuotas in a namespace.
    ///
    /// # Errors
    /// A request failed.
    pub async fn quotas_in(&self, namespace: &str) -> Result<Vec<NamespaceLimits>, ClusterError> {
        self.list_in_namespace(namespace, "", |quota: ResourceQuota| {
            let spec = quota.spec.unwrap_or_default();
            Some(NamespaceLimits {
                name: quota.metadata.name.unwrap_or_default(),
                has_tenant_label: has_tenant_label(quota.metadata.labels.as_ref()),
                scopes: spec.scopes.unwrap_or_default(),
                scope_selector: spec.scope_selector,
            })
        })
        .await
    }

    /// The LimitRanges in a namespace.
    ///
    /// # Errors
    /// A request failed.
    pub async fn limit_ranges_in(
        &self,
        namespace: &str,
    ) -> Result<Vec<NamespaceLimits>, ClusterError> {
        self.list_in_namespace(namespace, "", |range: LimitRange| {
            Some(NamespaceLimits {
                name: range.metadata.name.unwrap_or_default(),
                has_tenant_label: has_tenant_label(range.metadata.labels.as_ref()),
                ..NamespaceLimits::default()
            })
        })
        .await
    }

    /// What `keep` returns of the objects of a kind in a namespace that a selector of labels selects.
    async fn list_in_namespace<K, T>(
        &self,
        namespace: &str,
        selector: &str,
        keep: impl Fn(K) -> Option<T>,
    ) -> Result<Vec<T>, ClusterError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + DeserializeOwned
            + Send
            + 'static,
    {
        let selected = ListParams::default().labels(selector);
        let mut pages: Pages<K> = Pages::new::<K>(self.client(), Representation::Full, selected);
        pages = pages.in_namespace::<K>(namespace);
        let mut kept = Vec::new();
        while let Some(page) = pages.next().await? {
            kept.extend(page.into_iter().filter_map(&keep));
        }
        Ok(kept)
    }

    /// Texts about the RoleBindings of a namespace for which `is_to_be_deleted` holds, and about
    /// the others.
    ///
    /// # Errors
    /// A request failed.
    pub async fn describe_bindings(
        &self,
        namespace: &str,
        is_to_be_deleted: impl Fn(&RoleBinding) -> bool,
    ) -> Result<(BindingsDescription, BindingsDescription), ClusterError> {
        let (mut to_delete, mut others) =
            (BindingsDescription::default(), BindingsDescription::default());
        let mut pages = self.bindings_in(namespace);
        while let Some(page) = pages.next().await? {
            for binding in &page {
                if is_to_be_deleted(binding) { to_delete.add(binding) } else { others.add(binding) }
            }
        }
        Ok((to_delete, others))
    }

    /// Deletes the RoleBindings of a namespace for which `is_to_be_deleted` holds, until two lists
    /// in a row have none. Adds those that were deleted to a text, also if others could not be
    /// deleted.
    ///
    /// # Errors
    /// A request failed; [`ClusterError::Conflict`] if somebody makes such bindings repeatedly.
    pub async fn delete_role_bindings_where(
        &self,
        namespace: &str,
        is_to_be_deleted: impl Fn(&RoleBinding) -> bool,
        deleted: &mut BindingsDescription,
    ) -> Result<(), ClusterError> {
        let mut rounds = DeletionRounds::at_most(MAX_ROUNDS);
        loop {
            let listed = self.delete_listed_bindings(namespace, &is_to_be_deleted, deleted).await?;
            match rounds.end_round(listed == 0).await {
                Ok(ControlFlow::Break(())) => return Ok(()),
                Ok(ControlFlow::Continue(())) => {}
                Err(TooManyRounds) => break,
            }
        }
        let text = format!(
            "RoleBindings in {namespace} keep appearing: a program there has the right to create them; \
             suspend the tenant and resume it, which ends that right, and announce the move again"
        );
        Err(ClusterError::Conflict(text))
    }

    /// Deletes the RoleBindings of one list, page by page. Returns their number.
    async fn delete_listed_bindings(
        &self,
        namespace: &str,
        is_to_be_deleted: &impl Fn(&RoleBinding) -> bool,
        deleted: &mut BindingsDescription,
    ) -> Result<usize, ClusterError> {
        let (mut number, mut pages) = (0, self.bindings_in(namespace));
        while let Some(mut page) = pages.next().await? {
            page.retain(is_to_be_deleted);
            number += page.len();
            let deletions: Vec<_> = page
                .into_iter()
                .map(|binding| async move {
                    let (name, uid) = (binding.name_any(), binding.uid());
                    let result = self.delete_role_binding(namespace, &name, uid.as_deref()).await;
                    result.map(|()| binding)
                })
                .collect();
            let results: Vec<_> = stream::iter(deletions).buffered(MAX_IN_FLIGHT).collect().await;
            let mut failure = None;
            for result in results {
                match result {
                    Ok(binding) => deleted.add(&binding),
                    Err(error) => failure = failure.or(Some(error)),
                }
            }
            if let Some(error) = failure {
                return Err(error);
            }
        }
        Ok(number)
    }

    /// The RoleBindings of a namespace. Owners make any number of them, with up to a megabyte each, so
    /// no more than a page is in memory.
    fn bindings_in(&self, namespace: &str) -> Pages<RoleBinding> {
        let selected = ListParams::default();
        Pages::from_protobuf::<RoleBinding, RoleBindingMessage>(self.client(), selected)
            .in_namespace::<RoleBinding>(namespace)
            .with_small_pages()
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
        let is_own = |it: &ObjectMeta| it.name.as_deref().is_some_and(&is_own_name);
        let (quotas, limits) = tokio::try_join!(
            self.list_in_namespace(namespace, &selector, |quota: ResourceQuota| {
                is_own(&quota.metadata).then(|| Object::ResourceQuota(Box::new(quota)))
            }),
            self.list_in_namespace(namespace, &selector, |range: LimitRange| {
                is_own(&range.metadata).then(|| Object::LimitRange(Box::new(range)))
            }),
        )?;
        Ok(quotas.into_iter().chain(limits).collect())
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
        let text = |bindings: &[RoleBinding]| BindingsDescription::of(bindings).to_string();
        assert_eq!(text(&[]), "none");
        // The second entry is a part of the first one.
        let part = [binding("x\"a"), binding("a")];
        assert_eq!(text(&part).matches("; ").count(), 1);
        let two = [binding("a"), binding("b\u{1b}"), binding("a")];
        let expected = "\"a\" (ClusterRole \"view\": User \"bob\", Group \"dev\"); \"b\\u{1b}\" \
                        (ClusterRole \"view\": User \"bob\", Group \"dev\")";
        assert_eq!(text(&two), expected, "each binding is named once");
        let long = format!("\"{}\"… (", "x".repeat(100));
        assert!(text(&[binding(&"x".repeat(250))]).starts_with(&long));
        let mut crowd = binding("a");
        let subject = crowd.subjects.as_ref().unwrap()[0].clone();
        crowd.subjects = Some(vec![subject; 1_000]);
        assert!(text(&[crowd]).ends_with(", 980 more)"));
        let many: Vec<_> = (0..1_000).map(|n| binding(&format!("{n}{}", "x".repeat(99)))).collect();
        let text = text(&many);
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
            assert_eq!(
                grants_to_other_namespaces(&binding(subjects.clone())),
                expected,
                "{subjects}"
            );
        }
    }
}
