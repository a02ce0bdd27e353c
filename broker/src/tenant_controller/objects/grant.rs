//! Additions in one namespace: its labels, then its limits, and last its bindings. If anything
//! before the bindings fails, nobody gets a right in the namespace that they do not have yet. Labels that
//! let owners or programs do more come to a namespace from elsewhere only after its bindings from before
//! are gone.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::ResourceExt as _;
use tenant_shared::{BINDINGS_LABEL, SUSPENDED_LABEL, TIER_LABEL};

use super::{
    apply::{
        MetadataChange, ensure, has_weaker_pod_security, is_enforced, is_to_be_made,
        namespace_change, only_grants_more,
    },
    snapshot::{Snapshot, name_of},
    withdraw::title,
};
use crate::{
    base::error_chain,
    cluster::{ClusterError, Object, is_marked_suspended},
    tenant::{MoveState, NamespaceMove},
    tenant_controller::TenantController,
};

/// How long the quota controller may take until a new quota limits its namespace, in milliseconds,
/// before that is a failure.
const ENFORCEMENT_GRACE_MS: i64 = 10_000;

/// Result of the additions in a namespace.
#[derive(Debug, Default)]
pub(in crate::tenant_controller) struct Granted {
    /// Texts of failures.
    pub(in crate::tenant_controller) failures: Vec<String>,
    /// Nothing failed, but the quotas of the namespace do not limit it yet.
    pub(in crate::tenant_controller) waits: bool,
    /// The namespace could not be created, because one of that name exists.
    pub(in crate::tenant_controller) is_name_taken: bool,
}

impl Granted {
    /// Whether everything that is desired exists.
    pub(in crate::tenant_controller) fn is_complete(&self) -> bool {
        self.failures.is_empty() && !self.waits
    }

    fn fail(&mut self, object: &Object, error: &ClusterError) {
        self.failures.push(format!("{}: {}", title(object), error_chain(error)));
    }
}

impl TenantController {
    /// Takes away what the live bindings of a namespace give beyond the desired ones, and adds
    /// nothing, because a request does that.
    pub(in crate::tenant_controller) async fn reduce_all(
        &self,
        snapshot: &Snapshot,
        desired: &[Object],
    ) -> Granted {
        let mut granted = Granted { waits: true, ..Granted::default() };
        for object in desired.iter().filter(|object| matches!(object, Object::RoleBinding(_))) {
            if let Err(error) = self.reduce(snapshot.get(object), object).await {
                granted.fail(object, &error);
            }
        }
        granted
    }

    /// Adds what the desired objects of one namespace have more than the live ones. Amounts of the
    /// quotas in `shared` are not changed, because they are divided between namespaces. In a
    /// namespace that comes from elsewhere the bindings from before go in between.
    pub(in crate::tenant_controller) async fn grant(
        &self,
        snapshot: &Snapshot,
        desired: &[Object],
        shared: &BTreeSet<&str>,
        is_suspended: bool,
        incoming: Option<&NamespaceMove>,
    ) -> Granted {
        let mut granted = Granted::default();
        let mut to_clear = incoming.filter(|it| it.state != MoveState::Cleared);
        let mut labels_wait = false;
        for object in desired {
            let live = snapshot.get(object);
            let is_right = matches!(object, Object::RoleBinding(_));
            if is_right
                && granted.is_complete()
                && let Some(received) = to_clear.take()
            {
                Box::pin(self.delete_earlier_bindings(received, desired, &mut granted)).await;
                granted.waits |= labels_wait;
            }
            if is_right && (!granted.is_complete() || only_grants_more(live, object)) {
                if let Err(error) = self.reduce(live, object).await {
                    granted.fail(object, &error);
                }
                continue;
            }
            let result = match object {
                Object::Namespace(namespace) => {
                    let gets_rights = (is_suspended, to_clear.is_none());
                    let written = self.grant_namespace(live, object, namespace, gets_rights).await;
                    written.map(|all| labels_wait = !all)
                }
                Object::ResourceQuota(_)
                    if shared.contains(name_of(object)) && !is_to_be_made(live, object) =>
                {
                    Ok(())
                }
                _ => ensure(&self.cluster, live, object).await.map(drop),
            };
            if let Err(error) = result {
                granted.fail(object, &error);
                // Nothing can be created in a namespace that does not exist.
                if matches!(object, Object::Namespace(_)) && live.is_none() {
                    granted.is_name_taken = matches!(error, ClusterError::Conflict(_));
                    return granted;
                }
            } else if let Object::ResourceQuota(_) = object {
                self.check_enforcement(live, object, &mut granted);
            }
        }
        if granted.is_complete()
            && let Some(received) = to_clear
        {
            Box::pin(self.delete_earlier_bindings(received, desired, &mut granted)).await;
            granted.waits |= labels_wait;
        }
        granted
    }

    /// Takes away what a live binding gives beyond the desired one, although the desired one also
    /// gives more and cannot be written yet: a lasting failure must not keep anybody's rights. One
    /// that only gives too much is left to the withdrawals, which come last.
    async fn reduce(&self, live: Option<&Object>, desired: &Object) -> Result<(), ClusterError> {
        let Some(live) = live.filter(|live| !only_grants_more(Some(live), desired)) else {
            return Ok(());
        };
        match live.with_common_subjects(desired) {
            Some(less) if live.difference(&less).is_none() => Ok(()),
            Some(less) => self.cluster.update_object(live, &less).await.map(drop),
            None => self.cluster.delete_object(live).await,
        }
    }

    /// Creates a namespace, or sets its labels and annotations. Fails also if nobody may get a right
    /// in it; what takes something away is changed even so. Returns false if labels are left to the
    /// next run, because the bindings from before are not deleted yet.
    async fn grant_namespace(
        &self,
        live: Option<&Object>,
        object: &Object,
        desired: &Namespace,
        (is_suspended, is_cleared): (bool, bool),
    ) -> Result<bool, ClusterError> {
        let Some(Object::Namespace(live)) = live else {
            return self.cluster.create_object(object).await.map(|_| true);
        };
        let fault = fault_of(live, desired, is_suspended);
        let (mut labels, annotations) = namespace_change(live, desired);
        let all = labels.len();
        if fault.is_some() || !is_cleared {
            labels.retain(|label, value| !grants(label, value.as_deref()));
        }
        let mut are_all_written = labels.len() == all;
        if !is_cleared {
            are_all_written &= remove_bindings_label(&mut labels, live, desired);
        }
        if !labels.is_empty() || !annotations.is_empty() {
            self.cluster.patch_namespace(live, &labels, &annotations).await?;
        }
        fault.map_or(Ok(are_all_written), |fault| Err(ClusterError::Conflict(fault)))
    }

    /// A quota that is not enforced limits nothing, so bindings have to wait for it.
    fn check_enforcement(&self, live: Option<&Object>, desired: &Object, granted: &mut Granted) {
        let Some(Object::ResourceQuota(live)) = live else {
            granted.waits = true;
            return;
        };
        if is_enforced(live) {
            return;
        }
        if self.clock.now_ms() - created_at(live) < ENFORCEMENT_GRACE_MS {
            granted.waits = true;
            return;
        }
        let metadata = desired.metadata();
        let error = ClusterError::QuotaNotEnforced {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            quota: metadata.name.clone().unwrap_or_default(),
        };
        granted.fail(desired, &error);
    }
}

/// Reason why nobody may get a right in a namespace.
fn fault_of(live: &Namespace, desired: &Namespace, is_suspended: bool) -> Option<String> {
    if has_weaker_pod_security(live, desired) {
        let fault = "it enforces a weaker Pod Security level than the tier of the tenant; an \
                     administrator has to set its label pod-security.kubernetes.io/enforce";
        return Some(fault.to_owned());
    }
    (!is_suspended && is_marked_suspended(live)).then(|| {
        format!(
            "it has the label {SUSPENDED_LABEL} although the tenant is not suspended; an \
             administrator has to remove the label, or to suspend the tenant"
        )
    })
}

/// Whether a change of a label may give owners or programs more than before: policies look at the
/// tier, and whether owners may bind anybody.
fn grants(label: &str, value: Option<&str>) -> bool {
    label == TIER_LABEL || (label == BINDINGS_LABEL && value.is_some())
}

/// Removes the label for bindings of the earlier tenant of a namespace. Its programs could otherwise
/// bind subjects from outside while their bindings are deleted. Returns false if the namespace needs
/// the label afterwards.
fn remove_bindings_label(
    labels: &mut MetadataChange,
    live: &Namespace,
    desired: &Namespace,
) -> bool {
    if !live.labels().contains_key(BINDINGS_LABEL) {
        return true;
    }
    labels.insert(BINDINGS_LABEL.to_owned(), None);
    !desired.labels().contains_key(BINDINGS_LABEL)
}

/// When an object was created, in milliseconds since 1970.
fn created_at(quota: &ResourceQuota) -> i64 {
    let created = quota.metadata.creation_timestamp.as_ref();
    created.map_or(0, |created| created.0.as_millisecond())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn namespace(labels: &Value) -> Namespace {
        serde_json::from_value(json!({"metadata": {"name": "solar-a", "labels": labels}})).unwrap()
    }

    #[test]
    fn nobody_gets_a_right_under_weaker_pod_security_or_a_label_of_a_suspension() {
        let level = |level: &str| json!({"pod-security.kubernetes.io/enforce": level});
        let desired = namespace(&level("baseline"));
        assert_eq!(fault_of(&namespace(&level("restricted")), &desired, false), None);
        assert!(fault_of(&namespace(&level("privileged")), &desired, true).is_some());
        let mut labels = level("baseline");
        labels[SUSPENDED_LABEL] = json!("true");
        let marked = namespace(&labels);
        assert!(fault_of(&marked, &desired, false).is_some());
        assert_eq!(fault_of(&marked, &desired, true), None);
    }

    #[test]
    fn the_label_for_bindings_of_an_earlier_tenant_is_removed() {
        let (any, none) = (namespace(&json!({ BINDINGS_LABEL: "any" })), namespace(&json!({})));
        for (live, desired, is_removed, are_all_written) in [
            (&any, &any, true, false),
            (&any, &none, true, true),
            (&none, &any, false, true),
            (&none, &none, false, true),
        ] {
            let mut labels = MetadataChange::new();
            assert_eq!(remove_bindings_label(&mut labels, live, desired), are_all_written);
            assert_eq!(labels.get(BINDINGS_LABEL) == Some(&None), is_removed);
        }
    }

    #[test]
    fn only_the_removal_of_the_label_for_bindings_takes_something_away() {
        assert!(grants(BINDINGS_LABEL, Some("any")));
        assert!(!grants(BINDINGS_LABEL, None));
        for value in [Some("basic"), None] {
            assert!(grants(TIER_LABEL, value));
            assert!(!grants("team", value));
        }
    }
}
