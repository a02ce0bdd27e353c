//! Homes of tenants, where the ServiceAccounts of their members are.

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _};
use tenant_shared::{HOME_LABEL, TENANT_LABEL};

use crate::cluster::{
    Cluster, ClusterError,
    objects::{is_marked_suspended, labels::label},
};

/// The namespace of the name of a tenant's home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HomeState {
    /// It is the tenant's home.
    Ready {
        /// Uid of the namespace.
        uid: String,
    },
    /// It is the tenant's home, and the tenant is suspended.
    Suspended,
    /// It lacks the labels of the tenant's home, so no admission policy keeps others out of it.
    Foreign,
    /// It does not exist, or is being deleted.
    Missing,
}

impl HomeState {
    /// The state of a namespace with the name of this tenant's home.
    pub fn of(namespace: &Namespace, tenant: &str) -> Self {
        let is_home = label(namespace, TENANT_LABEL).as_deref() == Some(tenant)
            && label(namespace, HOME_LABEL).as_deref() == Some("true");
        if !is_home {
            Self::Foreign
        } else if namespace.metadata.deletion_timestamp.is_some() {
            Self::Missing
        } else if is_marked_suspended(namespace) {
            Self::Suspended
        } else {
            Self::Ready { uid: namespace.uid().unwrap_or_default() }
        }
    }
}

impl Cluster {
    /// Gets the home of this tenant, and determines its state.
    ///
    /// # Errors
    /// The request failed.
    pub async fn home_state(&self, home: &str, tenant: &str) -> Result<HomeState, ClusterError> {
        let api: Api<Namespace> = Api::all(self.client());
        Ok(api.get_opt(home).await?.map_or(HomeState::Missing, |it| HomeState::of(&it, tenant)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tenant_shared::SUSPENDED_LABEL;

    use super::*;

    #[test]
    fn only_a_namespace_with_both_labels_of_the_tenant_is_its_home() {
        let state = |mut metadata: Value| {
            metadata["uid"] = json!("ns-1");
            let namespace: Namespace =
                serde_json::from_value(json!({"metadata": metadata})).unwrap();
            HomeState::of(&namespace, "solar")
        };
        let labels = |labels: Value| json!({"labels": labels});
        let home = json!({TENANT_LABEL: "solar", HOME_LABEL: "true"});
        assert_eq!(state(labels(home.clone())), HomeState::Ready { uid: "ns-1".to_owned() });
        for foreign in [
            json!({}),
            json!({TENANT_LABEL: "solar"}),
            json!({HOME_LABEL: "true"}),
            json!({TENANT_LABEL: "solar", HOME_LABEL: "false"}),
            json!({TENANT_LABEL: "lunar", HOME_LABEL: "true"}),
        ] {
            assert_eq!(state(labels(foreign.clone())), HomeState::Foreign, "{foreign}");
        }
        let mut suspended = home.clone();
        suspended[SUSPENDED_LABEL] = json!("true");
        assert_eq!(state(labels(suspended)), HomeState::Suspended);
        let deleted = json!({"labels": home, "deletionTimestamp": "2026-01-02T03:04:05Z"});
        assert_eq!(state(deleted), HomeState::Missing);
    }
}
