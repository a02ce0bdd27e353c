//! The wait until a new member has the rights that the Tenant gives.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::rbac::v1::RoleBinding;
use tenant_shared::TENANT_LABEL;
use uuid::Uuid;

use super::{TenantOperations, current_tenant::CurrentTenant, error::TenantError};
use crate::{
    base::error_chain,
    tenant::{NamespaceStatus, TenantName, home_name, member_account_name, role_binding_name},
};

/// How long a request waits for the bindings of a new member.
const BOUND_TIMEOUT: Duration = Duration::from_secs(5);
/// RoleBindings of others with the label of the tenant, before their list is given up.
const MAX_OTHERS: usize = 200;
/// First pause between two looks at the bindings. It doubles up to [`MAX_POLL_INTERVAL`].
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Longest pause between two looks at the bindings.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(200);

impl TenantOperations {
    /// Waits until the bindings of the tenant name the ServiceAccount of a member. Whatever keeps
    /// them from it is the controller's to finish and to report.
    pub(super) async fn wait_until_bound(&self, current: &CurrentTenant, user: Uuid) {
        if current.rights.roles.is_empty() {
            return;
        }
        let error = match tokio::time::timeout(BOUND_TIMEOUT, self.poll_bound(current, user)).await
        {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error_chain(&error),
            Err(_) => format!("no binding within {BOUND_TIMEOUT:?}"),
        };
        tracing::info!(
            tenant = %current.row.name, user_id = %user, error,
            "a new member of a tenant has no rights yet"
        );
    }

    async fn poll_bound(&self, current: &CurrentTenant, user: Uuid) -> Result<(), TenantError> {
        let rows = self.tenants.namespaces(current.row.id).await?;
        if rows.iter().all(|row| row.status != NamespaceStatus::Active) {
            return Ok(());
        }
        let name = &current.row.name;
        let names: BTreeSet<String> = current
            .rights
            .roles
            .keys()
            .map(|role| role_binding_name(name, role.as_str()))
            .collect();
        // Owners may make any number of others with the label.
        let keys: Vec<(String, String)> = rows
            .iter()
            .filter(|row| row.status == NamespaceStatus::Active)
            .flat_map(|row| names.iter().map(|name| (row.name.clone(), name.clone())))
            .collect();
        let is_ours = |binding: &RoleBinding| {
            binding.metadata.name.as_ref().is_some_and(|it| names.contains(it))
        };
        let mut pause = MIN_POLL_INTERVAL;
        loop {
            let cluster = &self.cluster;
            let listed =
                cluster.role_bindings_within(TENANT_LABEL, name.as_str(), MAX_OTHERS, is_ours);
            let bindings = match listed.await? {
                Some(bindings) => bindings,
                None => cluster.role_bindings_named(&keys).await?,
            };
            if is_bound(&bindings, name, user) {
                return Ok(());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_POLL_INTERVAL);
        }
    }
}

/// Whether the bindings of these roles in the namespaces of a tenant name the member. A namespace
/// without such a binding gives nobody rights, and is not waited for.
fn is_bound(bindings: &[RoleBinding], tenant: &TenantName, user: Uuid) -> bool {
    let (home, account) = (home_name(tenant), member_account_name(user));
    let names_member = |binding: &RoleBinding| {
        binding.subjects.iter().flatten().any(|subject| {
            subject.kind == "ServiceAccount"
                && subject.name == account
                && subject.namespace.as_deref() == Some(home.as_str())
        })
    };
    !bindings.is_empty() && bindings.iter().all(names_member)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const USER: Uuid = Uuid::nil();

    fn member(home: &str, user: Uuid) -> Value {
        json!({"kind": "ServiceAccount", "name": format!("member-{user}"), "namespace": home})
    }

    fn binding(namespace: &str, role: &str, subjects: &[Value]) -> RoleBinding {
        let role_ref =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
        let metadata = json!({"name": format!("tenant-solar-{role}"), "namespace": namespace});
        let binding = json!({"metadata": metadata, "roleRef": role_ref, "subjects": subjects});
        serde_json::from_value(binding).unwrap()
    }

    #[test]
    fn a_member_is_bound_if_every_binding_of_their_roles_names_them() {
        let solar: TenantName = "solar".parse().unwrap();
        let bound = |bindings: &[RoleBinding]| is_bound(bindings, &solar, USER);
        let me = [member("tenant-solar", USER)];
        let nobody: [Value; 0] = [];
        let in_a = binding("solar-a", "admin", &me);
        assert!(bound(std::slice::from_ref(&in_a)));
        assert!(!bound(&[]));
        assert!(!bound(&[in_a, binding("solar-b", "admin", &nobody)]));
        let users = json!({"kind": "User", "name": format!("member-{USER}")});
        for other in [member("tenant-lunar", USER), member("tenant-solar", Uuid::max()), users] {
            assert!(!bound(&[binding("solar-a", "admin", &[other])]));
        }
    }
}
