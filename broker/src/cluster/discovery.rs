//! Objects of kinds that not every API server serves.

use kube::{
    Api,
    api::{ApiResource, DynamicObject},
};

use super::{Cluster, ClusterError};

impl Cluster {
    /// Whether the API server serves a resource. `api_version` is group and version, such as
    /// `apps/v1`; `resource` is the plural name, such as `deployments`.
    ///
    /// # Errors
    /// The request failed. Every authenticated user may ask for this.
    pub async fn serves(&self, api_version: &str, resource: &str) -> Result<bool, ClusterError> {
        match self.client().list_api_group_resources(api_version).await {
            Ok(list) => Ok(list.resources.iter().any(|served| served.name == resource)),
            Err(error) => match error.into() {
                ClusterError::NotFound(_) => Ok(false),
                error => Err(error),
            },
        }
    }

    /// Gets a cluster-scoped object of a kind without a Rust type; `None` if it does not exist.
    ///
    /// # Errors
    /// The request failed for another reason.
    pub async fn get_dynamic_opt(
        &self,
        resource: &ApiResource,
        name: &str,
    ) -> Result<Option<DynamicObject>, ClusterError> {
        let api: Api<DynamicObject> = Api::all_with(self.client(), resource);
        match api.get(name).await {
            Ok(object) => Ok(Some(object)),
            Err(error) => match error.into() {
                ClusterError::NotFound(_) => Ok(None),
                error => Err(error),
            },
        }
    }
}
