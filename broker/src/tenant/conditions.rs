//! Conditions of a Tenant: what could not be done, and what to do about it.

use std::collections::BTreeSet;

use super::{ApiGroup, ClusterRoleName, ExceededLimit, Subject, TenantName, Violation, home_name};
use crate::cluster::ClusterList;

/// Limits that a message names.
const MAX_NAMED_LIMITS: usize = 10;

/// Type of a condition. A type that does not hold is left out of the status, except for `Ready`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionType {
    /// Everything is as the Tenant says; `status` determines it.
    Ready,
    /// The Tenant breaks a rule of the definition, so that nothing of it is carried out.
    Invalid,
    /// Fields have a value and are not carried out.
    NotCarriedOut,
    /// A ClusterRole is not in `tenants.cluster_roles`.
    RoleNotAllowed,
    /// A subject belongs to the broker or to Kubernetes.
    SubjectNotAllowed,
    /// A cluster-scoped resource is not in `tenants.cluster_lists`.
    ListNotAllowed,
    /// The tier is not configured.
    UnknownTier,
    /// A Tenant of the same name exists in the other API group, and is older.
    NameTaken,
    /// The home exists, and the broker did not make it for this tenant.
    HomeTaken,
    /// The tenant has more namespaces than its quota allows.
    QuotaExceeded,
    /// A namespace has a name that the tenant may not have, or belongs to another tenant.
    NamespaceConflict,
    /// The namespaces use more of a resource than `spec.resourceQuotas` allows.
    ResourceQuotaExceeded,
    /// Amounts for the whole tenant are not divided anew, because of a namespace without a quota.
    QuotaPending,
    /// The API server refused an object.
    ApplyFailed,
}

impl ConditionType {
    /// All types.
    pub const ALL: [Self; 14] = [
        Self::Ready,
        Self::Invalid,
        Self::NotCarriedOut,
        Self::RoleNotAllowed,
        Self::SubjectNotAllowed,
        Self::ListNotAllowed,
        Self::UnknownTier,
        Self::NameTaken,
        Self::HomeTaken,
        Self::QuotaExceeded,
        Self::NamespaceConflict,
        Self::ResourceQuotaExceeded,
        Self::QuotaPending,
        Self::ApplyFailed,
    ];

    /// The `type` in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Invalid => "Invalid",
            Self::NotCarriedOut => "NotCarriedOut",
            Self::RoleNotAllowed => "RoleNotAllowed",
            Self::SubjectNotAllowed => "SubjectNotAllowed",
            Self::ListNotAllowed => "ListNotAllowed",
            Self::UnknownTier => "UnknownTier",
            Self::NameTaken => "NameTaken",
            Self::HomeTaken => "HomeTaken",
            Self::QuotaExceeded => "QuotaExceeded",
            Self::NamespaceConflict => "NamespaceConflict",
            Self::ResourceQuotaExceeded => "ResourceQuotaExceeded",
            Self::QuotaPending => "QuotaPending",
            Self::ApplyFailed => "ApplyFailed",
        }
    }

    /// Whether the tenant is `Degraded` by it. Fields that are not carried out do not degrade it,
    /// because files that were written for Capsule often have them, and neither does the deletion
    /// of a namespace that takes its time.
    pub fn degrades(self) -> bool {
        !matches!(self, Self::Ready | Self::NotCarriedOut | Self::QuotaPending)
    }
}

/// A condition that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub kind: ConditionType,
    /// The `reason`, an identifier for programs.
    pub reason: &'static str,
    /// What could not be done, and what to do about it.
    pub message: String,
}

impl Condition {
    fn new(kind: ConditionType, reason: &'static str, message: String) -> Self {
        Self { kind, reason, message }
    }

    /// The Tenant breaks rules. Its name may be one of them, so it is a text.
    pub fn invalid(tenant: &str, violations: &[Violation]) -> Self {
        let violations = list(violations.iter(), "; ");
        let message = format!(
            "tenant {tenant} breaks rules of its definition, and nothing of it is carried out; \
             change these fields: {violations}"
        );
        Self::new(ConditionType::Invalid, "RuleBroken", message)
    }

    /// Fields of the Tenant are not carried out.
    pub fn not_carried_out(tenant: &TenantName, fields: &[String]) -> Self {
        let fields = list(fields.iter(), ", ");
        let message = format!(
            "the broker does not carry out these fields of tenant {tenant}; remove them, or see to \
             it in another way: {fields}"
        );
        Self::new(ConditionType::NotCarriedOut, "NotSupported", message)
    }

    /// The Tenant gives ClusterRoles that the operator does not allow.
    pub fn role_not_allowed(tenant: &TenantName, roles: &BTreeSet<&ClusterRoleName>) -> Self {
        let (noun, them) = number(roles.len(), "ClusterRole", "it");
        let roles = list(roles.iter(), ", ");
        let message = format!(
            "tenant {tenant} gives {noun} {roles}, which the operator does not allow; add {them} \
             to tenants.cluster_roles and run install --apply"
        );
        Self::new(ConditionType::RoleNotAllowed, "NotInClusterRoles", message)
    }

    /// The Tenant names ServiceAccounts of homes, of personal workspaces or of Kubernetes.
    pub fn subject_not_allowed(tenant: &TenantName, subjects: &BTreeSet<&Subject>) -> Self {
        let subjects = list(subjects.iter(), ", ");
        let message = format!(
            "tenant {tenant} names ServiceAccounts of the namespaces kube-* or of tenants' members, \
             which the broker does not bind; name the person or a ServiceAccount of another \
             namespace: {subjects}"
        );
        Self::new(ConditionType::SubjectNotAllowed, "ReservedNamespace", message)
    }

    /// The Tenant lets owners list resources that the operator did not switch on.
    pub fn list_not_allowed(tenant: &TenantName, lists: &BTreeSet<ClusterList>) -> Self {
        let lists = list(lists.iter(), ", ");
        let message = format!(
            "tenant {tenant} lets owners list {lists}, which the operator does not allow; add it \
             to tenants.cluster_lists and run install --apply"
        );
        Self::new(ConditionType::ListNotAllowed, "NotInClusterLists", message)
    }

    /// The tier is not configured.
    pub fn unknown_tier(tenant: &TenantName, tier: &str, known: &[&str]) -> Self {
        let message = format!(
            "tenant {tenant} has the tier {tier}, which is not configured, so its new namespaces \
             have the strictest Pod Security level and no tier; choose one of: {}",
            known.join(", ")
        );
        Self::new(ConditionType::UnknownTier, "NotConfigured", message)
    }

    /// A Tenant of another API group has the name.
    pub fn name_taken(tenant: &TenantName, owner: ApiGroup) -> Self {
        let message = format!(
            "there is an older tenant {tenant} in the API group {}, so nothing of this one is \
             carried out; delete one of them",
            owner.name()
        );
        Self::new(ConditionType::NameTaken, "OlderTenant", message)
    }

    /// The home exists already, and is not the tenant's.
    pub fn home_taken(tenant: &TenantName) -> Self {
        let message = format!(
            "the namespace {} exists and was not made for this tenant, so nobody has rights in the \
             tenant; delete the namespace, or give the tenant another name",
            home_name(tenant)
        );
        Self::new(ConditionType::HomeTaken, "ForeignNamespace", message)
    }

    /// Namespaces came directly to the API server, and are more than the quota allows.
    pub fn quota_exceeded(tenant: &TenantName, over: &[&str], quota: u32) -> Self {
        let over = list(over.iter(), ", ");
        let message = format!(
            "exceeded namespace quota: tenant {tenant} may have {quota} namespaces, so nobody has \
             rights in these; delete some, or raise spec.namespaceOptions.quota: {over}"
        );
        Self::new(ConditionType::QuotaExceeded, "OverQuota", message)
    }

    /// The quota was set below the number of namespaces that the tenant had.
    pub fn quota_lowered(tenant: &TenantName, used: usize, quota: u32) -> Self {
        let message = format!(
            "tenant {tenant} has {used} namespaces and a quota of {quota}: they stay with their \
             rights, and it gets no further one; delete some, or raise \
             spec.namespaceOptions.quota"
        );
        Self::new(ConditionType::QuotaExceeded, "QuotaBelowUse", message)
    }

    /// Namespaces carry the label of the tenant and cannot be its own, or are its own and carry the
    /// label of another one.
    pub fn namespace_conflict(
        tenant: &TenantName,
        conflicts: &[&str],
        relabelled: &[&str],
    ) -> Self {
        let mut messages = Vec::new();
        if !conflicts.is_empty() {
            let namespaces = list(conflicts.iter(), ", ");
            messages.push(format!(
                "these namespaces have the label of tenant {tenant}, but another name than it may \
                 use, another owner, or ServiceAccounts that other Tenants name, so nobody has \
                 rights in them; delete them, or let an administrator adopt them (kubectl tenant \
                 namespaces adopt) or remove the label: {namespaces}"
            ));
        }
        if !relabelled.is_empty() {
            let namespaces = list(relabelled.iter(), ", ");
            messages.push(format!(
                "these namespaces of tenant {tenant} have the label of another tenant, so nobody \
                 has rights in them; let an administrator restore the label, or transfer them \
                 (kubectl tenant namespaces transfer): {namespaces}"
            ));
        }
        Self::new(ConditionType::NamespaceConflict, "NotItsOwn", messages.join("; "))
    }

    /// Limits are below what is used. The message has no amounts that are used, because the status
    /// would change with each use.
    pub fn resource_quota_exceeded(tenant: &TenantName, limits: &[ExceededLimit]) -> Self {
        let first = limits.iter().take(MAX_NAMED_LIMITS);
        let mut named: Vec<String> = first.map(ToString::to_string).collect();
        if limits.len() > MAX_NAMED_LIMITS {
            named.push(format!("and {} more", limits.len() - MAX_NAMED_LIMITS));
        }
        let message = format!(
            "more is used in tenant {tenant} than these limits allow, so nothing more is admitted \
             that they count; raise them in spec.resourceQuotas, or let the owners delete objects \
             in its namespaces (status.used of their ResourceQuotas says what each uses): {}",
            named.join(", ")
        );
        Self::new(ConditionType::ResourceQuotaExceeded, "LimitBelowUse", message)
    }

    /// Namespaces that are being deleted have lost their ResourceQuota, and may still use what it
    /// allowed.
    pub fn quota_pending(tenant: &TenantName, namespaces: &BTreeSet<&str>) -> Self {
        let namespaces = list(namespaces.iter(), ", ");
        let message = format!(
            "quotas for all namespaces of tenant {tenant} do not grow, because these namespaces are \
             being deleted and may still use a part; if the deletion does not end, remove what \
             keeps it (status.conditions of the namespace): {namespaces}"
        );
        Self::new(ConditionType::QuotaPending, "NamespaceTerminating", message)
    }

    /// The API server refused objects; the failures name them.
    pub fn apply_failed(tenant: &TenantName, failures: &[String]) -> Self {
        let failures = list(failures.iter(), "; ");
        let message = format!(
            "some objects of tenant {tenant} could not be written; the broker tries again: \
             {failures}"
        );
        Self::new(ConditionType::ApplyFailed, "Refused", message)
    }
}

fn list<T: ToString>(items: impl Iterator<Item = T>, separator: &str) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(separator)
}

/// A noun and a pronoun for one or several things.
fn number(count: usize, noun: &str, it: &'static str) -> (String, &'static str) {
    if count == 1 { (noun.to_owned(), it) } else { (format!("{noun}s"), "them") }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use super::*;

    fn solar() -> TenantName {
        "solar".parse().unwrap()
    }

    #[test]
    fn a_role_that_is_not_allowed_is_named_with_the_setting() {
        let role: ClusterRoleName = "argoproj-provisioner".parse().unwrap();
        let other: ClusterRoleName = "other".parse().unwrap();
        let one = Condition::role_not_allowed(&solar(), &BTreeSet::from([&role]));
        assert_eq!(
            one.message,
            "tenant solar gives ClusterRole argoproj-provisioner, which the operator does not \
             allow; add it to tenants.cluster_roles and run install --apply"
        );
        let both = Condition::role_not_allowed(&solar(), &BTreeSet::from([&role, &other]));
        assert!(both.message.contains("ClusterRoles argoproj-provisioner, other, which"));
        assert!(both.message.contains("add them to"));
    }

    fn exceeded(resource: &str) -> ExceededLimit {
        ExceededLimit {
            quota: "tenant-quota-0".to_owned(),
            resource: resource.to_owned(),
            limit: Quantity("3".to_owned()),
            namespace: None,
        }
    }

    #[test]
    fn of_many_limits_below_the_use_the_first_are_named() {
        let limits: Vec<ExceededLimit> =
            (0..12).map(|number| exceeded(&format!("r{number:02}"))).collect();
        let message =
            |count: usize| Condition::resource_quota_exceeded(&solar(), &limits[..count]).message;
        assert!(message(1).ends_with(": r00 3 (tenant-quota-0)"), "{}", message(1));
        assert!(message(10).ends_with(", r09 3 (tenant-quota-0)"), "{}", message(10));
        assert!(message(12).ends_with(", r09 3 (tenant-quota-0), and 2 more"), "{}", message(12));
    }

    #[test]
    fn every_message_names_the_tenant_and_the_objects() {
        let subject = Subject::owner("ServiceAccount", "system:serviceaccount:kube-x:y").unwrap();
        let violation = Violation::new("spec.owners", "at least one item");
        for (condition, object) in [
            (Condition::invalid("solar", &[violation]), "spec.owners: at least one item"),
            (Condition::not_carried_out(&solar(), &["spec.x".to_owned()]), "spec.x"),
            (Condition::subject_not_allowed(&solar(), &BTreeSet::from([&subject])), "kube-x:y"),
            (Condition::list_not_allowed(&solar(), &BTreeSet::from([ClusterList::Nodes])), "nodes"),
            (Condition::unknown_tier(&solar(), "gold", &["basic"]), "basic"),
            (Condition::name_taken(&solar(), ApiGroup::Capsule), "capsule.clastix.io"),
            (Condition::home_taken(&solar()), "tenant-solar"),
            (Condition::quota_exceeded(&solar(), &["solar-6"], 5), "solar-6"),
            (Condition::quota_lowered(&solar(), 3, 2), "quota of 2"),
            (Condition::namespace_conflict(&solar(), &["lunar-x"], &[]), "lunar-x"),
            (Condition::namespace_conflict(&solar(), &[], &["solar-x"]), "solar-x"),
            (Condition::resource_quota_exceeded(&solar(), &[exceeded("secrets")]), "secrets 3"),
            (Condition::quota_pending(&solar(), &BTreeSet::from(["solar-z"])), "solar-z"),
            (Condition::apply_failed(&solar(), &["RoleBinding x".to_owned()]), "RoleBinding x"),
        ] {
            let text = &condition.message;
            assert!(text.contains("solar") && text.contains(object), "{condition:?}");
            assert!(!condition.reason.is_empty() && !text.ends_with('.'), "{condition:?}");
        }
    }

    #[test]
    fn types_are_distinct_and_in_order() {
        assert!(ConditionType::ALL.is_sorted_by(|one, other| one < other));
        let names: BTreeSet<&str> =
            ConditionType::ALL.into_iter().map(super::ConditionType::as_str).collect();
        assert_eq!(names.len(), ConditionType::ALL.len());
        assert!(ConditionType::ALL.len() <= crate::tenant::limits::MAX_CONDITIONS);
    }
}
