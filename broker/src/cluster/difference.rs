//! Drift of an object: the ways in which it can differ from the desired one. Pure.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        core::v1::{LimitRange, LimitRangeItem, Namespace, ResourceQuota, ServiceAccount},
        networking::v1::NetworkPolicy,
        rbac::v1::RoleBinding,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use kube::Resource;
use tenant_shared::SUSPENDED_LABEL;

use super::{
    labels::{is_ours, label},
    quantity,
};

/// The label that sets the Pod Security level of a namespace.
const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";

/// How an object differs from the desired one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Difference {
    /// It does not exist.
    Missing,
    /// It lacks the broker's labels, or carries those of another workspace.
    Foreign,
    /// It is being deleted.
    Terminating,
    /// The namespace enforces another Pod Security level.
    PodSecurity,
    /// The namespace has the suspended label, or lacks it.
    SuspendedLabel,
    /// Its spec differs, for example the amounts of a quota.
    Spec,
    /// It binds another role.
    Role,
    /// It binds somebody else.
    Subjects,
    /// It was recreated by somebody else: its uid changed.
    Replaced,
    /// It exists and must not.
    Unexpected,
}

/// The kinds of objects that workspaces consist of.
pub const DRIFT_KINDS: [&str; 6] = [
    Namespace::NAME,
    ResourceQuota::NAME,
    LimitRange::NAME,
    ServiceAccount::NAME,
    RoleBinding::NAME,
    NetworkPolicy::NAME,
];

impl Difference {
    /// All differences.
    pub const ALL: [Self; 10] = [
        Self::Missing,
        Self::Foreign,
        Self::Terminating,
        Self::PodSecurity,
        Self::SuspendedLabel,
        Self::Spec,
        Self::Role,
        Self::Subjects,
        Self::Replaced,
        Self::Unexpected,
    ];

    /// The name in the database, the API and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Foreign => "foreign",
            Self::Terminating => "terminating",
            Self::PodSecurity => "pod_security",
            Self::SuspendedLabel => "suspended_label",
            Self::Spec => "spec",
            Self::Role => "role",
            Self::Subjects => "subjects",
            Self::Replaced => "replaced",
            Self::Unexpected => "unexpected",
        }
    }

    /// A description that follows the name of the object.
    pub fn text(self) -> &'static str {
        match self {
            Self::Missing => "does not exist",
            Self::Foreign => "exists and is not managed by the broker",
            Self::Terminating => "is being deleted",
            Self::PodSecurity => "enforces another pod security level",
            Self::SuspendedLabel => "has another suspended label than its workspace",
            Self::Spec => "has another spec",
            Self::Role => "binds another role",
            Self::Subjects => "binds somebody else",
            Self::Replaced => "was recreated by somebody else",
            Self::Unexpected => "exists although the workspace is suspended",
        }
    }
}

/// A kind of object that workspaces consist of.
pub trait Compared: Resource<DynamicType = ()> {
    /// The kind, for example `RoleBinding`.
    const NAME: &'static str;

    /// How an object with the right labels differs from the desired one.
    fn differs(&self, wanted: &Self) -> Option<Difference>;

    /// How the object differs from the desired one.
    fn compare(&self, wanted: &Self) -> Option<Difference>
    where
        Self: Sized,
    {
        if !is_ours(self, wanted) {
            return Some(Difference::Foreign);
        }
        if self.meta().deletion_timestamp.is_some() {
            return Some(Difference::Terminating);
        }
        self.differs(wanted)
    }
}

impl Compared for Namespace {
    const NAME: &'static str = "Namespace";

    fn differs(&self, wanted: &Self) -> Option<Difference> {
        let phase = self.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase.unwrap_or("Active") != "Active" {
            return Some(Difference::Terminating);
        }
        (label(self, POD_SECURITY) != label(wanted, POD_SECURITY))
            .then_some(Difference::PodSecurity)
    }
}

impl Compared for ResourceQuota {
    const NAME: &'static str = "ResourceQuota";

    fn differs(&self, wanted: &Self) -> Option<Difference> {
        let hard = |quota: &Self| quota.spec.as_ref().and_then(|spec| spec.hard.clone());
        let scoped = self.spec.as_ref().is_some_and(|spec| {
            spec.scopes.as_ref().is_some_and(|scopes| !scopes.is_empty())
                || spec.scope_selector.is_some()
        });
        let same = same_amounts(hard(self).as_ref(), hard(wanted).as_ref());
        (!same || scoped).then_some(Difference::Spec)
    }
}

impl Compared for LimitRange {
    const NAME: &'static str = "LimitRange";

    fn differs(&self, wanted: &Self) -> Option<Difference> {
        let limits = |range: &Self| range.spec.clone().map(|spec| spec.limits).unwrap_or_default();
        let (actual, wanted) = (limits(self), limits(wanted));
        let same = actual.len() == wanted.len()
            && actual.iter().zip(&wanted).all(|(actual, wanted)| same_limits(actual, wanted));
        (!same).then_some(Difference::Spec)
    }
}

impl Compared for ServiceAccount {
    const NAME: &'static str = "ServiceAccount";

    fn differs(&self, _: &Self) -> Option<Difference> {
        None
    }
}

impl Compared for RoleBinding {
    const NAME: &'static str = "RoleBinding";

    fn differs(&self, wanted: &Self) -> Option<Difference> {
        if self.role_ref != wanted.role_ref {
            return Some(Difference::Role);
        }
        (self.subjects != wanted.subjects).then_some(Difference::Subjects)
    }
}

impl Compared for NetworkPolicy {
    const NAME: &'static str = "NetworkPolicy";

    fn differs(&self, wanted: &Self) -> Option<Difference> {
        // The API server sets no defaults for the fields that the broker leaves out.
        (self.spec != wanted.spec).then_some(Difference::Spec)
    }
}

/// Whether a namespace carries the suspended label.
pub fn is_marked_suspended(namespace: &Namespace) -> bool {
    label(namespace, SUSPENDED_LABEL).is_some()
}

type Amounts = BTreeMap<String, Quantity>;

pub(super) fn same_amounts(one: Option<&Amounts>, other: Option<&Amounts>) -> bool {
    let empty = Amounts::new();
    let (one, other) = (one.unwrap_or(&empty), other.unwrap_or(&empty));
    one.len() == other.len()
        && one.iter().all(|(name, amount)| {
            other.get(name).is_some_and(|other| quantity::same(amount, other))
        })
}

fn same_limits(one: &LimitRangeItem, other: &LimitRangeItem) -> bool {
    let amounts = |item: &LimitRangeItem| {
        [
            item.default.clone(),
            item.default_request.clone(),
            item.max.clone(),
            item.min.clone(),
            item.max_limit_request_ratio.clone(),
        ]
    };
    one.type_ == other.type_
        && amounts(one)
            .iter()
            .zip(&amounts(other))
            .all(|(one, other)| same_amounts(one.as_ref(), other.as_ref()))
}
