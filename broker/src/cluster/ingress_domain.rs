//! The domain of the routes of an `OpenShift` cluster.

use kube::api::{ApiResource, GroupVersionKind};

use super::{Cluster, ClusterError};

/// API group of the configuration of an `OpenShift` cluster.
pub const CLUSTER_CONFIG: &str = "config.openshift.io";
/// Plural name of the kind with the domain.
pub const INGRESSES: &str = "ingresses";
/// Name of its only object.
pub const INGRESS: &str = "cluster";
/// Maximum length of a domain, in bytes.
const MAX_DOMAIN_BYTES: usize = 253;

impl Cluster {
    /// `spec.domain` of the object `cluster` of `ingresses.config.openshift.io`, read with the
    /// broker's own credential; `None` if the API server does not serve the kind, there is no such
    /// object, or it names no domain.
    ///
    /// # Errors
    /// The request failed; [`ClusterError::Refused`] if the broker may not read the object.
    pub async fn ingress_domain(&self) -> Result<Option<String>, ClusterError> {
        let kind = GroupVersionKind::gvk(CLUSTER_CONFIG, "v1", "Ingress");
        let found = self.get_dynamic_opt(&ApiResource::from_gvk(&kind), INGRESS).await?;
        let domain = found.and_then(|it| it.data["spec"]["domain"].as_str().map(str::to_owned));
        Ok(domain.filter(|domain| is_domain(domain)))
    }
}

fn is_domain(text: &str) -> bool {
    text.len() <= MAX_DOMAIN_BYTES && text.split('.').all(tenant_shared::is_dns_label)
}
