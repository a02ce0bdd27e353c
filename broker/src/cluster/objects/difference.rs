//! Drift of an object: the ways in which it can differ from the desired one. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::{
        core::v1::{
            LimitRange, LimitRangeItem, Namespace, ResourceQuota, ResourceQuotaSpec, ServiceAccount,
        },
        networking::v1::NetworkPolicy,
        rbac::v1::{RoleBinding, Subject},
    },
    apimachinery::pkg::api::resource::Quantity,
};
use kube::Resource;
use tenant_shared::{BINDINGS_LABEL, SUSPENDED_LABEL, TENANT_LABEL, TIER_LABEL};

use super::{
    labels::{POD_SECURITY, is_ours, label},
    quantity,
};

/// Labels that the namespace of a tenant has only if they are desired.
const KEPT_LABELS: [&str; 2] = [BINDINGS_LABEL, TIER_LABEL];

/// Type of a limit that holds for each container.
const CONTAINER: &str = "Container";

/// How an object differs from the desired one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Difference {
    /// It does not exist.
    Missing,
    /// It lacks the broker's labels, or carries those of another workspace or tenant.
    Foreign,
    /// It is being deleted.
    Terminating,
    /// The namespace enforces another Pod Security level.
    PodSecurity,
    /// The namespace has the suspended label, or lacks it.
    SuspendedLabel,
    /// The namespace of a tenant has other labels or annotations.
    Metadata,
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

/// The kinds of objects that workspaces and tenants consist of.
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
    pub const ALL: [Self; 11] = [
        Self::Missing,
        Self::Foreign,
        Self::Terminating,
        Self::PodSecurity,
        Self::SuspendedLabel,
        Self::Metadata,
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
            Self::Metadata => "metadata",
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
            Self::Metadata => "has other labels or annotations",
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
        if label(self, POD_SECURITY) != label(wanted, POD_SECURITY) {
            return Some(Difference::PodSecurity);
        }
        // The other metadata of a workspace's namespace is not drift; its suspended label is
        // compared with its status elsewhere.
        label(wanted, TENANT_LABEL).and_then(|_| differs_of_tenant(self, wanted))
    }
}

impl Compared for ResourceQuota {
    const NAME: &'static str = "ResourceQuota";

    fn differs(&self, wanted: &Self) -> Option<Difference> {
        let none = ResourceQuotaSpec::default();
        let (actual, wanted) =
            (self.spec.as_ref().unwrap_or(&none), wanted.spec.as_ref().unwrap_or(&none));
        let same = same_amounts(actual.hard.as_ref(), wanted.hard.as_ref())
            && scopes_of(actual) == scopes_of(wanted)
            && actual.scope_selector == wanted.scope_selector;
        (!same).then_some(Difference::Spec)
    }
}

impl Compared for LimitRange {
    const NAME: &'static str = "LimitRange";

    fn differs(&self, wanted: &Self) -> Option<Difference> {
        let limits = |range: &Self| range.spec.clone().map(|spec| spec.limits).unwrap_or_default();
        let (actual, wanted) = (limits(self), limits(wanted));
        let same = actual.len() == wanted.len()
            && actual.iter().zip(&wanted).all(|(actual, wanted)| {
                same_limits(&with_defaults(actual), &with_defaults(wanted))
            });
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
        (subjects_of(self) != subjects_of(wanted)).then_some(Difference::Subjects)
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

/// How the namespace of a tenant differs in metadata that the broker keeps. Others may add labels
/// and annotations of their own.
fn differs_of_tenant(actual: &Namespace, wanted: &Namespace) -> Option<Difference> {
    if is_marked_suspended(actual) != is_marked_suspended(wanted) {
        return Some(Difference::SuspendedLabel);
    }
    let labels_differ = KEPT_LABELS.iter().any(|name| label(actual, name) != label(wanted, name))
        || !contains(actual.metadata.labels.as_ref(), wanted.metadata.labels.as_ref());
    let annotations_differ =
        !contains(actual.metadata.annotations.as_ref(), wanted.metadata.annotations.as_ref());
    (labels_differ || annotations_differ).then_some(Difference::Metadata)
}

type Texts = BTreeMap<String, String>;

/// Whether all wanted entries exist. The value of the suspended label does not count.
fn contains(actual: Option<&Texts>, wanted: Option<&Texts>) -> bool {
    wanted.into_iter().flatten().filter(|(key, _)| *key != SUSPENDED_LABEL).all(|(key, value)| {
        actual.and_then(|actual| actual.get(key)).is_some_and(|actual| actual == value)
    })
}

/// The scopes of a quota as a set.
fn scopes_of(spec: &ResourceQuotaSpec) -> BTreeSet<&str> {
    spec.scopes.iter().flatten().map(String::as_str).collect()
}

/// The subjects of a binding as a set. The API server keeps their order, and does not remove
/// duplicates.
fn subjects_of(binding: &RoleBinding) -> BTreeSet<[&str; 4]> {
    binding.subjects.iter().flatten().map(fields_of).collect()
}

fn fields_of(subject: &Subject) -> [&str; 4] {
    let Subject { api_group, kind, name, namespace } = subject;
    let api_group = api_group.as_deref().unwrap_or_default();
    [api_group, kind, name, namespace.as_deref().unwrap_or_default()]
}

type Amounts = BTreeMap<String, Quantity>;

pub(in crate::cluster) fn same_amounts(one: Option<&Amounts>, other: Option<&Amounts>) -> bool {
    let empty = Amounts::new();
    let (one, other) = (one.unwrap_or(&empty), other.unwrap_or(&empty));
    one.len() == other.len()
        && one.iter().all(|(name, amount)| {
            other.get(name).is_some_and(|other| quantity::same(amount, other))
        })
}

/// The limits with the values that the API server fills in when they are written (Kubernetes,
/// `SetDefaults_LimitRangeItem`): of containers the default limit is the maximum, and the default
/// request is the default limit, else the minimum.
fn with_defaults(item: &LimitRangeItem) -> LimitRangeItem {
    let mut item = item.clone();
    if item.type_ != CONTAINER {
        return item;
    }
    let LimitRangeItem { default, default_request, max, min, .. } = &mut item;
    fill_in(default, max.as_ref());
    fill_in(default_request, default.as_ref());
    fill_in(default_request, min.as_ref());
    item
}

/// Adds the amounts of the resources that have none.
fn fill_in(amounts: &mut Option<Amounts>, from: Option<&Amounts>) {
    let amounts = amounts.get_or_insert_default();
    for (resource, amount) in from.into_iter().flatten() {
        amounts.entry(resource.clone()).or_insert_with(|| amount.clone());
    }
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

#[cfg(test)]
mod tests {
    use kube::ResourceExt as _;
    use tenant_shared::WORKSPACE_LABEL;

    use super::*;
    use crate::cluster::{labels_of, labels_of_tenant};

    fn of_tenant() -> Namespace {
        let mut namespace = Namespace::default();
        namespace.metadata.labels = Some(labels_of_tenant("solar"));
        let labels = namespace.labels_mut();
        labels.insert(TIER_LABEL.to_owned(), "basic".to_owned());
        labels.insert("team".to_owned(), "a".to_owned());
        namespace.annotations_mut().insert("example.com/cost".to_owned(), "1".to_owned());
        namespace
    }

    /// The namespace after this change of its labels.
    fn changed(change: impl FnOnce(&mut BTreeMap<String, String>)) -> Namespace {
        let mut namespace = of_tenant();
        change(namespace.labels_mut());
        namespace
    }

    #[test]
    fn an_object_of_another_workspace_or_tenant_is_foreign() {
        let wanted = of_tenant();
        let set = |key: &str, value: &str| {
            changed(|labels| {
                labels.insert(key.to_owned(), value.to_owned());
            })
        };
        let unlabelled = changed(|labels| {
            labels.remove(TENANT_LABEL);
        });
        for other in [set(TENANT_LABEL, "lunar"), set(WORKSPACE_LABEL, "x"), unlabelled] {
            assert_eq!(other.compare(&wanted), Some(Difference::Foreign), "{other:?}");
        }
        assert_eq!(wanted.compare(&wanted), None);
    }

    #[test]
    fn metadata_of_a_tenants_namespace_is_compared() {
        let wanted = of_tenant();
        let set = |key: &str, value: &str| {
            changed(|labels| {
                labels.insert(key.to_owned(), value.to_owned());
            })
            .compare(&wanted)
        };
        assert_eq!(set(TIER_LABEL, "other"), Some(Difference::Metadata));
        assert_eq!(set("team", "b"), Some(Difference::Metadata));
        assert_eq!(set(BINDINGS_LABEL, "any"), Some(Difference::Metadata));
        assert_eq!(set(POD_SECURITY, "baseline"), Some(Difference::PodSecurity));
        assert_eq!(set(SUSPENDED_LABEL, "true"), Some(Difference::SuspendedLabel));
        assert_eq!(set("example.com/added-by-others", "x"), None);
        let mut without = of_tenant();
        without.metadata.annotations = None;
        assert_eq!(without.compare(&wanted), Some(Difference::Metadata));
        assert_eq!(wanted.compare(&without), None);
    }

    #[test]
    fn other_metadata_of_a_workspaces_namespace_is_no_drift() {
        let mut wanted = Namespace::default();
        wanted.metadata.labels = Some(labels_of(uuid::Uuid::nil()));
        let mut actual = wanted.clone();
        wanted.labels_mut().insert(TIER_LABEL.to_owned(), "basic".to_owned());
        actual.labels_mut().insert(SUSPENDED_LABEL.to_owned(), "true".to_owned());
        assert_eq!(actual.compare(&wanted), None);
    }

    #[test]
    fn subjects_are_compared_as_sets() {
        let subject =
            |name: &str| Subject { kind: "User".into(), name: name.into(), ..Subject::default() };
        let binding = |names: &[&str]| RoleBinding {
            subjects: Some(names.iter().map(|name| subject(name)).collect()),
            ..RoleBinding::default()
        };
        let wanted = binding(&["alice", "bob"]);
        assert_eq!(binding(&["bob", "alice", "bob"]).compare(&wanted), None);
        for other in [&["alice"][..], &["alice", "bob", "eve"], &[]] {
            let difference = binding(other).compare(&wanted);
            assert_eq!(difference, Some(Difference::Subjects), "{other:?}");
        }
    }

    /// The API server fills them in when the object is written, so that comparing without them would
    /// find a difference for ever.
    #[test]
    fn defaults_of_limits_that_the_api_server_fills_in_are_no_difference() {
        let range = |limits: serde_json::Value| -> LimitRange {
            serde_json::from_value(serde_json::json!({"spec": {"limits": [limits]}})).unwrap()
        };
        let wanted = range(serde_json::json!({
            "type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"},
        }));
        let written = range(serde_json::json!({
            "type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"},
            "default": {"cpu": "2"}, "defaultRequest": {"cpu": "2", "memory": "1Mi"},
        }));
        assert_eq!(written.compare(&wanted), None);
        assert_eq!(wanted.compare(&written), None);
        let altered = range(serde_json::json!({
            "type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"},
            "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1", "memory": "1Mi"},
        }));
        assert_eq!(altered.compare(&wanted), Some(Difference::Spec));
        // Limits of pods have no defaults.
        let pods = range(serde_json::json!({"type": "Pod", "max": {"cpu": "2"}}));
        let with_default =
            range(serde_json::json!({"type": "Pod", "max": {"cpu": "2"}, "default": {"cpu": "2"}}));
        assert_eq!(with_default.compare(&pods), Some(Difference::Spec));
    }

    #[test]
    fn scopes_of_quotas_are_compared() {
        let quota = |scopes: &[&str]| ResourceQuota {
            spec: Some(ResourceQuotaSpec {
                scopes: Some(scopes.iter().map(|scope| (*scope).to_owned()).collect()),
                ..ResourceQuotaSpec::default()
            }),
            ..ResourceQuota::default()
        };
        let none = ResourceQuota::default();
        assert_eq!(quota(&[]).compare(&none), None);
        assert_eq!(quota(&["BestEffort"]).compare(&none), Some(Difference::Spec));
        let wanted = quota(&["BestEffort", "Terminating"]);
        assert_eq!(quota(&["Terminating", "BestEffort"]).compare(&wanted), None);
        assert_eq!(none.compare(&wanted), Some(Difference::Spec));
    }
}
