//! Changes of one object of a tenant to its desired state.
//!
//! | object | change |
//! |---|---|
//! | does not exist | created |
//! | has another spec or other subjects | changed with the version that was read |
//! | binds another role, or has other scopes | replaced, because these fields are immutable |
//! | is a limit of the tenant that had the namespace before | changed, so that the namespace is never without limits |
//! | was made by others under a name of the broker | replaced |
//! | namespace | its labels and annotations are changed; never those of tenant and Pod Security |

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::ResourceExt as _;
use tenant_shared::{
    BINDINGS_LABEL, FORMER_TENANT_LABEL, HOME_LABEL, MANAGED_BY_LABEL, SUSPENDED_LABEL,
    TENANT_LABEL, TENANT_UID_LABEL, TIER_LABEL, WORKSPACE_LABEL, is_stricter_pod_security,
};

use super::snapshot::{name_of, namespace_of};
use crate::{
    cluster::{Cluster, ClusterError, Difference, Object, POD_SECURITY, POD_SECURITY_PREFIX},
    tenant::{ADDED_KEYS, AddedKeys},
};

/// How often a change begins anew because somebody changed the object meanwhile.
const MAX_ATTEMPTS: u32 = 3;
/// Labels of a namespace that the broker does not change: they decide which policies apply to it.
const FIXED_LABELS: [&str; 6] = [
    MANAGED_BY_LABEL,
    TENANT_LABEL,
    TENANT_UID_LABEL,
    HOME_LABEL,
    WORKSPACE_LABEL,
    SUSPENDED_LABEL,
];
/// Labels that a namespace has only if they are desired.
const OPTIONAL_LABELS: [&str; 3] = [BINDINGS_LABEL, TIER_LABEL, FORMER_TENANT_LABEL];

/// Change that brings an object to its desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectChange {
    Keep,
    Create,
    Update,
    Replace,
}

fn change_of(live: Option<&Object>, desired: &Object) -> ObjectChange {
    let Some(live) = live else { return ObjectChange::Create };
    match live.difference(desired) {
        None => ObjectChange::Keep,
        Some(Difference::Missing) => ObjectChange::Create,
        // The namespace was moved. The limits of the earlier tenant hold until they are changed.
        Some(Difference::Foreign)
            if is_limit_of_other_tenant(live) && !has_other_scopes(live, desired) =>
        {
            ObjectChange::Update
        }
        Some(
            Difference::Foreign
            | Difference::Replaced
            | Difference::Role
            | Difference::Terminating
            | Difference::Unexpected,
        ) => ObjectChange::Replace,
        Some(_) if has_other_scopes(live, desired) => ObjectChange::Replace,
        Some(_) => ObjectChange::Update,
    }
}

/// Whether an object does not exist, or has to be made again.
pub(in crate::tenant_controller) fn is_to_be_made(live: Option<&Object>, desired: &Object) -> bool {
    matches!(change_of(live, desired), ObjectChange::Create | ObjectChange::Replace)
}

/// Whether an object lacks nothing of the desired one, or differs only by what is too much, so that
/// no right or limit is missing as long as it stays as it is.
pub(in crate::tenant_controller) fn only_grants_more(
    live: Option<&Object>,
    desired: &Object,
) -> bool {
    live.is_some_and(|live| match live.difference(desired) {
        None => true,
        Some(Difference::Subjects) => !desired.binds_more_than(live),
        Some(_) => false,
    })
}

/// Brings an object other than a namespace to its desired state. Returns the object as the API server
/// has it then.
///
/// # Errors
/// A request failed; [`ClusterError::Conflict`] if the object was changed during every attempt.
pub(in crate::tenant_controller) async fn ensure(
    cluster: &Cluster,
    live: Option<&Object>,
    desired: &Object,
) -> Result<Object, ClusterError> {
    let mut live = live.cloned();
    let mut attempt = 1;
    loop {
        let result = match (change_of(live.as_ref(), desired), &live) {
            (ObjectChange::Keep, Some(live)) => return Ok(live.clone()),
            (ObjectChange::Update, Some(live)) => cluster.update_object(live, desired).await,
            (ObjectChange::Replace, Some(live)) => match cluster.delete_object(live).await {
                Ok(()) => cluster.create_object(desired).await,
                Err(error) => Err(error),
            },
            (_, _) => cluster.create_object(desired).await,
        };
        match result {
            Ok(written) => {
                tracing::info!(
                    kind = desired.kind(),
                    namespace = namespace_of(desired),
                    object = name_of(desired),
                    "object of a tenant changed to its desired state"
                );
                return Ok(written);
            }
            // Somebody made, changed or deleted it meanwhile.
            Err(ClusterError::Conflict(_) | ClusterError::NotFound(_))
                if attempt < MAX_ATTEMPTS =>
            {
                attempt += 1;
                live = cluster.get_object(desired).await?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether an object is a ResourceQuota or LimitRange that the broker made for another tenant, is not
/// being deleted, and has neither finalizers nor owner references.
fn is_limit_of_other_tenant(live: &Object) -> bool {
    let metadata = live.metadata();
    let has = |label: &str| metadata.labels.as_ref().is_some_and(|all| all.contains_key(label));
    matches!(live, Object::ResourceQuota(_) | Object::LimitRange(_))
        && has(TENANT_LABEL)
        && !has(WORKSPACE_LABEL)
        && metadata.deletion_timestamp.is_none()
        && metadata.finalizers.as_ref().is_none_or(Vec::is_empty)
        && metadata.owner_references.as_ref().is_none_or(Vec::is_empty)
}

/// Whether a quota has other scopes than the desired one. They are immutable.
fn has_other_scopes(live: &Object, desired: &Object) -> bool {
    let (Object::ResourceQuota(live), Object::ResourceQuota(desired)) = (live, desired) else {
        return false;
    };
    let scopes = |quota: &ResourceQuota| {
        let spec = quota.spec.clone().unwrap_or_default();
        (spec.scopes.unwrap_or_default(), spec.scope_selector)
    };
    scopes(live) != scopes(desired)
}

/// Whether the API server enforces all limits of a quota. Quota admission reads `status.hard`,
/// which the quota controller writes some time after the quota is created.
pub(in crate::tenant_controller) fn is_enforced(quota: &ResourceQuota) -> bool {
    let resources = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
    let enforced = quota.status.as_ref().and_then(|status| status.hard.as_ref());
    resources
        .into_iter()
        .flatten()
        .all(|(resource, _)| enforced.is_some_and(|enforced| enforced.contains_key(resource)))
}

/// Labels or annotations to set, and with `None` those to remove.
pub(in crate::tenant_controller) type MetadataChange = BTreeMap<String, Option<String>>;

/// The labels and annotations that a namespace needs, and those that the broker set and that are not
/// desired any more.
pub(in crate::tenant_controller) fn namespace_change(
    live: &Namespace,
    desired: &Namespace,
) -> (MetadataChange, MetadataChange) {
    let is_ours =
        |label: &str| !FIXED_LABELS.contains(&label) && !label.starts_with(POD_SECURITY_PREFIX);
    let mut labels =
        missing(live.metadata.labels.as_ref(), desired.metadata.labels.as_ref(), is_ours);
    let has = |namespace: &Namespace, label: &str| namespace.labels().contains_key(label);
    let added = AddedKeys::read(live);
    for label in added.labels.iter().map(String::as_str).chain(OPTIONAL_LABELS) {
        if has(live, label) && !has(desired, label) {
            labels.insert(label.to_owned(), None);
        }
    }
    let mut annotations =
        missing(live.metadata.annotations.as_ref(), desired.metadata.annotations.as_ref(), |_| {
            true
        });
    let has = |namespace: &Namespace, key: &str| {
        namespace.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(key))
    };
    for key in added.annotations.iter().map(String::as_str).chain([ADDED_KEYS]) {
        if has(live, key) && !has(desired, key) {
            annotations.insert(key.to_owned(), None);
        }
    }
    (labels, annotations)
}

fn missing(
    live: Option<&BTreeMap<String, String>>,
    desired: Option<&BTreeMap<String, String>>,
    is_ours: impl Fn(&str) -> bool,
) -> MetadataChange {
    let has = |key: &str, value: &String| live.and_then(|live| live.get(key)) == Some(value);
    let desired = desired.into_iter().flatten();
    desired
        .filter(|(key, value)| is_ours(key) && !has(key, value))
        .map(|(key, value)| (key.clone(), Some(value.clone())))
        .collect()
}

/// Whether a namespace enforces a weaker Pod Security level than the desired one. The broker may
/// not change the level.
pub(in crate::tenant_controller) fn has_weaker_pod_security(
    live: &Namespace,
    desired: &Namespace,
) -> bool {
    fn level(namespace: &Namespace) -> Option<&str> {
        namespace.labels().get(POD_SECURITY).map(String::as_str)
    }
    is_stricter_pod_security(level(desired), level(live))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn binding(subjects: &[&str], role: &str, label: &str) -> Object {
        let subjects: Vec<Value> = subjects
            .iter()
            .map(|name| {
                json!({"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"})
            })
            .collect();
        let binding = json!({
            "metadata": {
                "name": "tenant-solar-view",
                "namespace": "solar-a",
                "labels": {TENANT_LABEL: label},
            },
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": subjects,
        });
        Object::RoleBinding(serde_json::from_value(binding).unwrap())
    }

    fn quota(spec: &Value, status: &Value) -> ResourceQuota {
        let metadata = json!({"name": "tenant-quota-0", "namespace": "solar-a"});
        let quota = json!({"metadata": metadata, "spec": spec, "status": status});
        serde_json::from_value(quota).unwrap()
    }

    fn namespace(labels: &Value, annotations: &Value) -> Namespace {
        let metadata = json!({"name": "solar-a", "labels": labels, "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn common_subjects_add_nobody() {
        let live = binding(&["alice", "bob"], "view", "solar");
        let common =
            |desired: &[&str], role| live.with_common_subjects(&binding(desired, role, "solar"));
        let less = common(&["bob", "carol"], "view").unwrap();
        assert_eq!(less.difference(&binding(&["bob"], "view", "solar")), None);
        assert!(common(&["carol"], "view").is_none());
        assert!(common(&["bob"], "edit").is_none());
        assert!(live.with_common_subjects(&binding(&["bob"], "view", "lunar")).is_none());
    }

    #[test]
    fn immutable_fields_need_a_replacement_and_others_an_update() {
        let desired = binding(&["alice"], "view", "solar");
        assert_eq!(change_of(None, &desired), ObjectChange::Create);
        for (live, change) in [
            (binding(&["alice"], "view", "solar"), ObjectChange::Keep),
            (binding(&["alice", "joe"], "view", "solar"), ObjectChange::Update),
            (binding(&[], "view", "solar"), ObjectChange::Update),
            (binding(&["alice"], "edit", "solar"), ObjectChange::Replace),
            (binding(&["alice"], "view", "lunar"), ObjectChange::Replace),
        ] {
            assert_eq!(change_of(Some(&live), &desired), change, "{live:?}");
        }
        let quota = |spec: Value| Object::ResourceQuota(Box::new(quota(&spec, &json!({}))));
        let desired = quota(json!({"hard": {"pods": "2"}}));
        let other = quota(json!({"hard": {"pods": "1"}}));
        assert_eq!(change_of(Some(&other), &desired), ObjectChange::Update);
        let scoped = quota(json!({"hard": {"pods": "1"}, "scopes": ["Terminating"]}));
        assert_eq!(change_of(Some(&scoped), &desired), ObjectChange::Replace);
    }

    /// A replacement would leave the namespace without limits for a moment.
    #[test]
    fn limits_of_the_tenant_that_had_a_namespace_are_changed_in_place() {
        let of = |tenant: &str, metadata: Value, spec: &Value| {
            let mut quota = quota(spec, &json!({}));
            quota.metadata = serde_json::from_value(metadata).unwrap();
            let label = (TENANT_LABEL.to_owned(), tenant.to_owned());
            quota.metadata.labels.get_or_insert_default().extend([label]);
            Object::ResourceQuota(Box::new(quota))
        };
        let pods = json!({"hard": {"pods": "2"}});
        let desired = of("lunar", json!({}), &pods);
        for (metadata, spec, change) in [
            (json!({}), &pods, ObjectChange::Update),
            (json!({"finalizers": ["example.com/x"]}), &pods, ObjectChange::Replace),
            (json!({"labels": {WORKSPACE_LABEL: "x"}}), &pods, ObjectChange::Replace),
            (
                json!({}),
                &json!({"hard": {"pods": "2"}, "scopes": ["Terminating"]}),
                ObjectChange::Replace,
            ),
        ] {
            let live = of("solar", metadata, spec);
            assert_eq!(change_of(Some(&live), &desired), change, "{live:?}");
        }
        let others = Object::ResourceQuota(Box::new(quota(&pods, &json!({}))));
        assert_eq!(change_of(Some(&others), &desired), ObjectChange::Replace);
    }

    #[test]
    fn a_binding_with_subjects_too_many_only_grants_more() {
        let desired = binding(&["alice"], "view", "solar");
        assert!(!only_grants_more(None, &desired));
        for (subjects, more) in
            [(&["alice"][..], true), (&["alice", "joe"], true), (&["joe"], false), (&[], false)]
        {
            let live = binding(subjects, "view", "solar");
            assert_eq!(only_grants_more(Some(&live), &desired), more, "{subjects:?}");
        }
        assert!(!only_grants_more(Some(&binding(&["alice"], "edit", "solar")), &desired));
    }

    #[test]
    fn a_quota_is_enforced_once_its_status_has_all_resources() {
        let spec = json!({"hard": {"pods": "2", "services": "1"}});
        for (status, enforced) in [
            (json!({}), false),
            (json!({"hard": {"pods": "2"}}), false),
            (json!({"hard": {"pods": "1", "services": "1"}}), true),
        ] {
            assert_eq!(is_enforced(&quota(&spec, &status)), enforced, "{status}");
        }
        assert!(is_enforced(&quota(&json!({}), &json!({}))));
    }

    #[test]
    fn labels_that_decide_on_policies_are_not_changed() {
        let desired = namespace(
            &json!({
                MANAGED_BY_LABEL: "tenant-broker", TENANT_LABEL: "solar", POD_SECURITY: "baseline",
                "tenant-broker.io/tier": "basic", "team": "a",
            }),
            &json!({"example.com/cost": "7"}),
        );
        let live = namespace(
            &json!({
                TENANT_LABEL: "lunar", POD_SECURITY: "privileged", BINDINGS_LABEL: "any",
                "team": "b", "others": "stay",
            }),
            &json!({"example.com/owner": "x"}),
        );
        let (labels, annotations) = namespace_change(&live, &desired);
        let set = |value: &str| Some(value.to_owned());
        assert_eq!(
            labels,
            MetadataChange::from([
                (BINDINGS_LABEL.to_owned(), None),
                ("team".to_owned(), set("a")),
                ("tenant-broker.io/tier".to_owned(), set("basic")),
            ])
        );
        assert_eq!(annotations, MetadataChange::from([("example.com/cost".to_owned(), set("7"))]));
        let (labels, annotations) = namespace_change(&desired, &desired);
        assert!(labels.is_empty() && annotations.is_empty());
    }

    /// A label that somebody else set stays, and so does one that decides on policies, even if the
    /// list was forged.
    #[test]
    fn only_what_the_tenant_added_is_removed_with_it() {
        let keys = json!({
            "labels": ["team", "cost-center", TENANT_LABEL, POD_SECURITY],
            "annotations": ["example.com/cost", "example.com/gone"],
        });
        let live = namespace(
            &json!({"team": "a", "cost-center": "7", "others": "x", TENANT_LABEL: "solar",
                POD_SECURITY: "baseline"}),
            &json!({"example.com/cost": "7", "example.com/owner": "x", ADDED_KEYS: keys.to_string()}),
        );
        let desired = namespace(
            &json!({"cost-center": "7", TENANT_LABEL: "solar", POD_SECURITY: "baseline"}),
            &json!({}),
        );
        let (labels, annotations) = namespace_change(&live, &desired);
        assert_eq!(labels, MetadataChange::from([("team".to_owned(), None)]));
        let removed = ["example.com/cost", ADDED_KEYS].map(|key| (key.to_owned(), None));
        assert_eq!(annotations, MetadataChange::from(removed));
    }

    #[test]
    fn a_stronger_pod_security_level_is_accepted() {
        let of = |labels: Value| namespace(&labels, &json!({}));
        let desired = of(json!({POD_SECURITY: "baseline"}));
        for (labels, weaker) in [
            (json!({}), true),
            (json!({POD_SECURITY: "privileged"}), true),
            (json!({POD_SECURITY: "unknown"}), true),
            (json!({POD_SECURITY: "baseline"}), false),
            (json!({POD_SECURITY: "restricted"}), false),
        ] {
            assert_eq!(has_weaker_pod_security(&of(labels.clone()), &desired), weaker, "{labels}");
        }
    }
}
