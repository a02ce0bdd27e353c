//! Withdrawals: subjects of bindings, and objects that are not desired. They come after all
//! additions and before the amounts of quotas, and a failed addition does not keep them from being
//! done.

use futures_util::{StreamExt as _, stream};
use tenant_shared::{MANAGED_BY_LABEL, MANAGED_BY_VALUE, TENANT_OWNER_ROLE};

use super::{
    apply::{ensure, only_grants_more},
    snapshot::{Snapshot, is_binding_name, name_of, namespace_of},
};
use crate::{
    cluster::{ClusterError, Object},
    tenant::{Desired, TenantName, home_name},
    tenant_controller::TenantController,
};

/// Requests for one tenant that are in flight.
pub(in crate::tenant_controller) const MAX_IN_FLIGHT: usize = 8;

/// Something to take away.
#[derive(Clone, Copy, Debug)]
pub(in crate::tenant_controller) enum Withdrawal<'a> {
    /// The object is deleted.
    Delete(&'a Object),
    /// The live RoleBinding gets the subjects of the desired one.
    Narrow { live: &'a Object, desired: &'a Object },
}

impl<'a> Withdrawal<'a> {
    fn object(&self) -> &'a Object {
        match self {
            Self::Delete(object) | Self::Narrow { live: object, .. } => object,
        }
    }
}

/// Withdrawals from the live objects that a desired state needs. In namespaces in which nobody
/// may have rights only bindings are deleted, and limits stay.
pub(in crate::tenant_controller) fn withdrawals<'a>(
    tenant: &TenantName,
    snapshot: &'a Snapshot,
    desired: &'a Desired,
) -> Vec<Withdrawal<'a>> {
    let desired_objects = || desired.home.iter().chain(desired.namespaces.values().flatten());
    let narrower = desired_objects().filter(|object| matches!(object, Object::RoleBinding(_)));
    let narrower = narrower.filter_map(|object| {
        let live = snapshot.get(object)?;
        let too_much = only_grants_more(Some(live), object) && live.difference(object).is_some();
        too_much.then_some(Withdrawal::Narrow { live, desired: object })
    });
    let others = snapshot.others(desired_objects()).filter(|object| match object {
        Object::RoleBinding(_) => is_binding_of(tenant, object),
        Object::ResourceQuota(_) | Object::LimitRange(_) => {
            is_managed(object)
                && name_of(object).starts_with("tenant-")
                && desired.namespaces.contains_key(namespace_of(object))
        }
        Object::Namespace(_) | Object::ServiceAccount(_) | Object::NetworkPolicy(_) => false,
    });
    narrower.chain(others.map(Withdrawal::Delete)).collect()
}

/// Whether an object is a RoleBinding that the broker alone writes for this tenant: by its name, or
/// because it makes owners. Labels do not count, because others write them, too.
pub(in crate::tenant_controller) fn is_binding_of(tenant: &TenantName, object: &Object) -> bool {
    let Object::RoleBinding(binding) = object else { return false };
    let (kind, role) = (binding.role_ref.kind.as_str(), binding.role_ref.name.as_str());
    let makes_owners = (kind, role) == ("ClusterRole", TENANT_OWNER_ROLE)
        && namespace_of(object) == home_name(tenant);
    makes_owners || is_binding_name(tenant, name_of(object))
}

fn is_managed(object: &Object) -> bool {
    let labels = object.metadata().labels.as_ref();
    labels.and_then(|labels| labels.get(MANAGED_BY_LABEL)).is_some_and(|it| it == MANAGED_BY_VALUE)
}

impl TenantController {
    /// Takes away everything, whatever fails. Returns the failures with the objects.
    pub(in crate::tenant_controller) async fn withdraw<'a>(
        &self,
        withdrawals: Vec<Withdrawal<'a>>,
    ) -> Vec<(&'a Object, ClusterError)> {
        let requests: Vec<_> = withdrawals.into_iter().map(|it| self.withdraw_one(it)).collect();
        let results: Vec<_> =
            stream::iter(requests).buffer_unordered(MAX_IN_FLIGHT).collect().await;
        results.into_iter().filter_map(Result::err).collect()
    }

    async fn withdraw_one<'a>(
        &self,
        withdrawal: Withdrawal<'a>,
    ) -> Result<(), (&'a Object, ClusterError)> {
        let object = withdrawal.object();
        let result = match withdrawal {
            Withdrawal::Delete(object) => {
                tracing::info!(
                    kind = object.kind(),
                    namespace = namespace_of(object),
                    object = name_of(object),
                    "object of a tenant deleted, because it is not desired"
                );
                self.cluster.delete_object(object).await
            }
            Withdrawal::Narrow { live, desired } => {
                ensure(&self.cluster, Some(live), desired).await.map(drop)
            }
        };
        result.map_err(|error| (object, error))
    }
}

/// Kind, name and namespace of an object, for people.
pub(in crate::tenant_controller) fn title(object: &Object) -> String {
    format!("{} {} in {}", object.kind(), name_of(object), namespace_of(object))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};
    use tenant_shared::TENANT_LABEL;

    use super::*;

    fn labels() -> Value {
        json!({MANAGED_BY_LABEL: MANAGED_BY_VALUE, TENANT_LABEL: "solar"})
    }

    fn binding(namespace: &str, name: &str, users: &[&str], labels: &Value) -> Object {
        let group = "rbac.authorization.k8s.io";
        let subjects: Vec<Value> = users
            .iter()
            .map(|name| json!({"kind": "User", "name": name, "apiGroup": group}))
            .collect();
        let binding = json!({
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "view"},
            "subjects": subjects,
        });
        Object::RoleBinding(serde_json::from_value(binding).unwrap())
    }

    fn quota(namespace: &str) -> Object {
        let metadata =
            json!({"name": "tenant-quota-0", "namespace": namespace, "labels": labels()});
        let quota = json!({"metadata": metadata, "spec": {"hard": {"pods": "1"}}});
        Object::ResourceQuota(serde_json::from_value(quota).unwrap())
    }

    fn desired(namespaces: &[(&str, &[Object])]) -> Desired {
        let of = |(name, objects): &(&str, &[Object])| ((*name).to_owned(), objects.to_vec());
        Desired {
            home: Vec::new(),
            namespaces: namespaces.iter().map(of).collect(),
            shared_quotas: BTreeMap::new(),
            conditions: Vec::new(),
        }
    }

    /// Titles of what is taken away; `-` for subjects.
    fn taken(live: Vec<Object>, namespaces: &[(&str, &[Object])]) -> Vec<String> {
        let (snapshot, desired) = (Snapshot::new(live), desired(namespaces));
        let solar = "solar".parse().unwrap();
        let all = withdrawals(&solar, &snapshot, &desired);
        all.iter()
            .map(|it| match it {
                Withdrawal::Delete(object) => title(object),
                Withdrawal::Narrow { desired, .. } => format!("- {}", title(desired)),
            })
            .collect()
    }

    #[test]
    fn subjects_too_many_and_bindings_that_are_not_desired_go() {
        let ours = |namespace, name, users: &[&str]| binding(namespace, name, users, &labels());
        let desired_binding = ours("solar-a", "tenant-solar-view", &["alice"]);
        let live = vec![
            ours("solar-a", "tenant-solar-view", &["alice", "joe"]),
            ours("solar-a", "tenant-solar-edit", &["alice"]),
            ours("solar-over", "tenant-solar-view", &["alice"]),
        ];
        assert_eq!(
            taken(live, &[("solar-a", std::slice::from_ref(&desired_binding))]),
            [
                "- RoleBinding tenant-solar-view in solar-a",
                "RoleBinding tenant-solar-edit in solar-a",
                "RoleBinding tenant-solar-view in solar-over",
            ]
        );
        // What has to be added or replaced is no withdrawal.
        for users in [&["alice"][..], &["joe"], &[]] {
            let live = vec![ours("solar-a", "tenant-solar-view", users)];
            assert!(taken(live, &[("solar-a", std::slice::from_ref(&desired_binding))]).is_empty());
        }
    }

    /// Helm and other tools write their own name.
    #[test]
    fn a_binding_goes_whatever_manages_it() {
        let labels = json!({TENANT_LABEL: "solar", MANAGED_BY_LABEL: "Helm"});
        let live = vec![binding("solar-a", "tenant-solar-view", &["x"], &labels)];
        assert_eq!(taken(live, &[("solar-a", &[])]), ["RoleBinding tenant-solar-view in solar-a"]);
    }

    #[test]
    fn bindings_of_owners_stay() {
        let live = vec![
            binding("solar-a", "own", &["x"], &labels()),
            binding("solar-a", "tenant-lunar-view", &["x"], &labels()),
        ];
        assert!(taken(live, &[("solar-a", &[])]).is_empty());
    }

    /// The Tenant alone says who owns it.
    #[test]
    fn a_binding_that_makes_owners_goes_whatever_its_name_is() {
        let bound = |namespace, role: &str| match binding(namespace, "own", &["x"], &json!({})) {
            Object::RoleBinding(mut binding) => {
                role.clone_into(&mut binding.role_ref.name);
                Object::RoleBinding(binding)
            }
            other => other,
        };
        let live = vec![bound("tenant-solar", TENANT_OWNER_ROLE)];
        assert_eq!(taken(live, &[]), ["RoleBinding own in tenant-solar"]);
        for (namespace, role) in [
            ("tenant-solar", "view"),
            ("tenant-lunar", TENANT_OWNER_ROLE),
            ("solar-a", TENANT_OWNER_ROLE),
        ] {
            assert!(taken(vec![bound(namespace, role)], &[]).is_empty(), "{namespace} {role}");
        }
    }

    #[test]
    fn limits_go_only_where_people_may_have_rights() {
        let live = vec![quota("solar-a"), quota("solar-over")];
        assert_eq!(taken(live, &[("solar-a", &[])]), ["ResourceQuota tenant-quota-0 in solar-a"]);
    }
}
