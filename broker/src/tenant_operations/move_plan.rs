//! The plan of a move of a namespace into a tenant: what changes, and why it is refused. It reads the
//! cluster and changes nothing.

use std::collections::BTreeMap;

use k8s_openapi::api::{core::v1::Namespace, rbac::v1::RoleBinding};
use kube::ResourceExt as _;
use tenant_shared::{
    HOME_LABEL, NamespaceMovePlan, SUSPENDED_LABEL, TENANT_LABEL, TENANT_UID_LABEL,
    WORKSPACE_LABEL, is_stricter_pod_security,
};

use super::{TenantOperations, current_tenant::LiveTenant, error::TenantError};
use crate::{
    access::{MoveNamespaces, Permit},
    cluster::{BindingsDescription, NamespaceLimits, POD_SECURITY, grants_to_other_namespaces},
    tenant::{
        AccountsError, MoveState, NODE_SELECTOR_ANNOTATION, NamespaceRow, NamespaceStatus,
        ProtectedPattern, QuotaScope, Tenant, TenantName, TenantRow, TenantStatus,
        check_namespace_name, is_limits_name, limits_name, pod_security_of, quota_name,
    },
    tenant_controller::is_terminating,
};

/// Label with the version of Kubernetes whose Pod Security rules a namespace enforces.
const POD_SECURITY_VERSION: &str = "pod-security.kubernetes.io/enforce-version";
/// Objects of a kind that a plan names.
const MAX_NAMED: usize = 50;

/// A plan with the rows that it was made from.
#[derive(Debug)]
pub(super) struct PlannedMove {
    pub(super) to: TenantRow,
    /// The tenant that has the namespace, or had it.
    pub(super) from: Option<TenantRow>,
    pub(super) plan: NamespaceMovePlan,
}

/// The state of cluster and database from which a plan is made.
struct MoveInputs<'a> {
    tenant: &'a Tenant,
    to: &'a TenantRow,
    from: Option<&'a TenantRow>,
    row: Option<&'a NamespaceRow>,
    live: &'a Namespace,
    /// RoleBindings that are deleted, and those that stay.
    bindings: (BindingsDescription, BindingsDescription),
    quotas: &'a [NamespaceLimits],
    ranges: &'a [NamespaceLimits],
}

impl TenantOperations {
    /// Plan of the move of a namespace into a tenant.
    ///
    /// # Errors
    /// There is no such tenant or namespace, the Tenant cannot be read, or the cluster or the
    /// database failed.
    #[tracing::instrument(level = "debug", skip_all, fields(tenant = %to))]
    pub async fn plan_move(
        &self,
        _: &Permit<MoveNamespaces>,
        to: &TenantName,
        namespace: &str,
    ) -> Result<NamespaceMovePlan, TenantError> {
        Ok(Box::pin(self.plan(to, namespace)).await?.plan)
    }

    pub(super) async fn plan(
        &self,
        to: &TenantName,
        namespace: &str,
    ) -> Result<PlannedMove, TenantError> {
        let to = self.tenants.by_name(to).await?.ok_or(TenantError::NotFound)?;
        let LiveTenant { tenant, is_terminating, .. } = self.read_tenant(&to).await?;
        let missing = || TenantError::NoNamespace(namespace.to_owned());
        let live = self.cluster.namespace(namespace).await?.ok_or_else(missing)?;
        let row = self.tenants.namespace_row(namespace).await?;
        let row = row.filter(|row| row.status != NamespaceStatus::Gone);
        let from = match &row {
            Some(row) => self.tenants.by_id(row.tenant_id).await?,
            None => None,
        };
        let was_tenants = row.is_some();
        let is_to_be_deleted =
            move |binding: &RoleBinding| was_tenants || grants_to_other_namespaces(binding);
        let (bindings, quotas, ranges) = tokio::try_join!(
            self.cluster.describe_bindings(namespace, is_to_be_deleted),
            self.cluster.quotas_in(namespace),
            self.cluster.limit_ranges_in(namespace),
        )?;
        let inputs = MoveInputs {
            tenant: &tenant,
            to: &to,
            from: from.as_ref(),
            row: row.as_ref(),
            live: &live,
            bindings,
            quotas: &quotas,
            ranges: &ranges,
        };
        let mut refusals = inputs.refusals(&self.settings.protected_names);
        refusals.extend(self.account_rights_elsewhere(&to.name, namespace));
        if to.status != TenantStatus::Active || is_terminating {
            refusals.push(format!("tenant {} is suspended or is being deleted", to.name));
        }
        refusals.extend(self.begun_move(namespace).await?);
        let level = pod_security_of(&tenant, &self.tiers);
        let mut changes = inputs.changes();
        if check_namespace_name(&tenant, namespace, &self.settings).is_err() {
            changes.push(format!(
                "name: {namespace} does not begin with {}-, and stays as it is",
                to.name
            ));
        }
        match self.count_one_more(&to, &tenant).await? {
            Ok(change) => changes.extend(change),
            Err(refusal) => refusals.push(refusal),
        }
        let mut labels = BTreeMap::from([
            (TENANT_LABEL.to_owned(), to.name.to_string()),
            (TENANT_UID_LABEL.to_owned(), to.object_uid.clone()),
        ]);
        if let Some(change) = weaker_level(&live, level) {
            labels.insert(POD_SECURITY.to_owned(), level.to_owned());
            changes.push(change);
        }
        let is_former = from.as_ref().is_some_and(|from| from.status == TenantStatus::Closed);
        let name = from.as_ref().map(|from| from.name.to_string());
        let plan = NamespaceMovePlan {
            namespace: namespace.to_owned(),
            namespace_uid: live.uid().unwrap_or_default(),
            resource_version: live.resource_version().unwrap_or_default(),
            from: name.clone().filter(|_| !is_former),
            former: name.filter(|_| is_former),
            to: to.name.to_string(),
            labels,
            // Administrators of the broker learn nothing about namespaces of others.
            changes: if refusals.is_empty() { changes } else { Vec::new() },
            refusals,
        };
        Ok(PlannedMove { to, from, plan })
    }

    /// A refusal if a move of the namespace is being carried out.
    async fn begun_move(&self, namespace: &str) -> Result<Option<String>, TenantError> {
        let begun = self.tenants.move_of(namespace).await?;
        Ok(begun.filter(|begun| begun.state != MoveState::Announced).map(|_| {
            "a move of the namespace is being carried out: wait, or restore the labels of it".into()
        }))
    }

    /// The number of the tenant's namespaces with one more, if the Tenant limits it; else the refusal.
    async fn count_one_more(
        &self,
        to: &TenantRow,
        tenant: &Tenant,
    ) -> Result<Result<Option<String>, String>, TenantError> {
        let used = self.tenants.counted_namespaces(to.id).await?;
        let quota = tenant.namespace_options.quota.and_then(|quota| usize::try_from(quota).ok());
        let Some(quota) = quota else { return Ok(Ok(None)) };
        let name = &to.name;
        Ok(if used >= quota {
            Err(format!("exceeded namespace quota: tenant {name} has {used} of {quota}"))
        } else {
            Ok(Some(format!("namespaces of tenant {name}: {} of {quota}", used + 1)))
        })
    }

    /// A refusal if Tenants other than the new one name ServiceAccounts of the namespace: the people
    /// of the new tenant can start pods with these accounts.
    fn account_rights_elsewhere(&self, to: &TenantName, namespace: &str) -> Option<String> {
        match self.cache.check_accounts(to, namespace) {
            Ok(()) => None,
            Err(error @ AccountsError::NotSynced) => Some(error.to_string()),
            Err(AccountsError::NamedBy(others)) => {
                let others: Vec<String> = others.iter().map(ToString::to_string).collect();
                Some(format!(
                    "Tenants name ServiceAccounts of the namespace, whose rights would go to tenant \
                     {to}: remove them from spec.owners and spec.additionalRoleBindings of {}",
                    named(&others)
                ))
            }
        }
    }
}

impl MoveInputs<'_> {
    fn has_label(&self, label: &str) -> bool {
        self.live.labels().contains_key(label)
    }

    fn refusals(&self, protected_names: &ProtectedPattern) -> Vec<String> {
        let mut refusals = Vec::new();
        let mut refuse_if = |is_so: bool, text: String| {
            if is_so {
                refusals.push(text);
            }
        };
        let name = self.live.name_any();
        let metadata = &self.live.metadata;
        refuse_if(
            protected_names.matches(&name),
            format!("the operator protects the name {name} (tenants.protected_names)"),
        );
        refuse_if(
            name.starts_with("tenant-") || self.has_label(HOME_LABEL),
            "namespaces tenant-* are homes of tenants and namespaces of persons".to_owned(),
        );
        refuse_if(
            self.has_label(WORKSPACE_LABEL),
            "the namespace is that of a personal workspace".to_owned(),
        );
        refuse_if(is_terminating(self.live), "the namespace is being deleted".to_owned());
        refuse_if(
            self.has_label(SUSPENDED_LABEL),
            format!(
                "the namespace is suspended: resume its tenant, or remove the label \
                 {SUSPENDED_LABEL} if it has none"
            ),
        );
        refuse_if(
            metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty()),
            "the namespace has finalizers, which decide when it is gone: remove them".to_owned(),
        );
        refuse_if(
            metadata.owner_references.as_ref().is_some_and(|all| !all.is_empty()),
            "the namespace has owner references, so it goes with its owner: remove them".to_owned(),
        );
        if let Some(from) = self.from.filter(|from| from.status != TenantStatus::Closed) {
            refuse_if(
                from.id == self.to.id,
                format!("the namespace is one of tenant {} already", self.to.name),
            );
            refuse_if(
                from.status != TenantStatus::Active,
                format!("tenant {} is suspended: resume it, or delete the Tenant", from.name),
            );
        }
        let is_new =
            |row: &NamespaceRow| row.status == NamespaceStatus::Creating && !row.was_seen();
        refuse_if(
            self.row.is_some_and(is_new),
            "the namespace is still being created; try again".to_owned(),
        );
        let version = self.live.labels().get(POD_SECURITY_VERSION);
        refuse_if(
            version.is_some_and(|version| version != "latest"),
            format!("the label {POD_SECURITY_VERSION} pins old rules of Pod Security: remove it"),
        );
        refusals.extend(self.conflicting_limits());
        refusals
    }

    /// Limits of others with the broker's names, and quotas that cannot be changed in place. They
    /// would leave the namespace without a limit for a moment.
    fn conflicting_limits(&self) -> Vec<String> {
        let mut refusals = Vec::new();
        let foreign =
            self.quotas.iter().chain(self.ranges).filter(|limits| !limits.has_tenant_label);
        for NamespaceLimits { name, .. } in foreign.filter(|limits| is_limits_name(&limits.name)) {
            refusals.push(format!(
                "{name} has a name of the broker and was made by others: give it another name"
            ));
        }
        for (index, wanted) in self.tenant.quotas.iter().enumerate() {
            let name = quota_name(index);
            let Some(live) = self.quotas.iter().find(|quota| quota.name == name) else {
                continue;
            };
            if live.scopes != wanted.scopes || live.scope_selector != wanted.scope_selector {
                refusals.push(format!(
                    "ResourceQuota {name} has other scopes than in tenant {}, and they cannot be \
                     changed: order the items of spec.resourceQuotas alike",
                    self.to.name
                ));
            }
        }
        refusals
    }

    fn changes(&self) -> Vec<String> {
        let (go, stay) = &self.bindings;
        let mut changes = Vec::new();
        if !go.is_empty() {
            changes.push(format!("RoleBindings that are deleted: {go}"));
        }
        if !stay.is_empty() {
            changes.push(format!("RoleBindings of programs in the namespace that stay: {stay}"));
        }
        let (quotas, ranges) = (&self.tenant.quotas, &self.tenant.limit_ranges);
        let new: Vec<String> =
            (0..quotas.len()).map(quota_name).chain((0..ranges.len()).map(limits_name)).collect();
        if !new.is_empty() {
            let scope = match self.tenant.quota_scope {
                QuotaScope::Tenant if !quotas.is_empty() => {
                    ", with a share of the amounts of the whole tenant"
                }
                _ => "",
            };
            changes.push(format!("limits of tenant {}: {}{scope}", self.to.name, new.join(", ")));
        }
        let live = self.quotas.iter().chain(self.ranges).map(|limits| limits.name.clone());
        let (old, others): (Vec<String>, Vec<String>) =
            live.filter(|name| !new.contains(name)).partition(|name| is_limits_name(name));
        if !old.is_empty() {
            changes.push(format!("limits that are deleted last: {}", named(&old)));
        }
        if !others.is_empty() {
            changes.push(format!("limits of others that stay: {}", named(&others)));
        }
        let is_replaced =
            |key: &str| key == NODE_SELECTOR_ANNOTATION && !self.tenant.node_selector.is_empty();
        let kept = self.live.annotations().keys();
        let kept: Vec<String> =
            kept.filter(|key| is_of_kubernetes(key) && !is_replaced(key)).cloned().collect();
        if !kept.is_empty() {
            changes.push(format!("annotations of Kubernetes that stay: {}", named(&kept)));
        }
        changes
            .push("pods, Secrets and other objects in the namespace stay, and pods go on".into());
        changes
    }
}

/// Whether Kubernetes reserves the prefix of a key: `kubernetes.io`, or a domain below it.
fn is_of_kubernetes(key: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    prefix == "kubernetes.io" || prefix.ends_with(".kubernetes.io")
}

/// A change if the namespace enforces a weaker Pod Security level than this one.
fn weaker_level(live: &Namespace, level: &str) -> Option<String> {
    let now = live.labels().get(POD_SECURITY).map(String::as_str);
    is_stricter_pod_security(Some(level), now).then(|| {
        let was = now.filter(|now| !now.is_empty()).unwrap_or("none");
        format!("Pod Security level: {level} (was: {was}); pods that break it run until they end")
    })
}

/// The first names, and the number of the others.
fn named(names: &[String]) -> String {
    let first = names[..names.len().min(MAX_NAMED)].join("; ");
    match names.len().saturating_sub(MAX_NAMED) {
        0 => first,
        more => format!("{first}; {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_kubernetes_are_told_from_others() {
        for (key, expected) in [
            ("scheduler.alpha.kubernetes.io/defaultTolerations", true),
            ("kubernetes.io/x", true),
            ("mykubernetes.io/x", false),
            ("example.com/kubernetes.io", false),
            ("kubernetes.io", false),
        ] {
            assert_eq!(is_of_kubernetes(key), expected, "{key}");
        }
    }
}
