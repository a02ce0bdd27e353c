//! Reads that verify the broker's own situation: the identity that the API server sees
//! (`SelfSubjectReview`), and single cluster-scoped objects.

use std::fmt::Debug;

use k8s_openapi::{ClusterResourceScope, api::authentication::v1::SelfSubjectReview};
use kube::{Api, Client, Resource, api::PostParams};
use serde::de::DeserializeOwned;

use crate::cluster::{Cluster, ClusterError};

/// The identity that the API server sees for the broker (`status.userInfo` of a
/// `SelfSubjectReview`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserInfo {
    /// The user name.
    pub user: String,
    pub groups: Vec<String>,
}

impl Cluster {
    /// Asks the API server for the broker's identity (`SelfSubjectReview`, which every
    /// authenticated user may create).
    ///
    /// # Errors
    /// The request failed.
    pub async fn who_am_i(&self) -> Result<UserInfo, ClusterError> {
        user_of(self.client()).await
    }

    /// Gets a cluster-scoped object by name; `None` if it does not exist, or if the API server
    /// does not know its kind.
    ///
    /// # Errors
    /// The request failed for another reason.
    pub async fn get_opt<K>(&self, name: &str) -> Result<Option<K>, ClusterError>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let api: Api<K> = Api::all(self.client());
        match api.get(name).await {
            Ok(object) => Ok(Some(object)),
            Err(error) => match error.into() {
                ClusterError::NotFound(_) => Ok(None),
                error => Err(error),
            },
        }
    }
}

/// The identity that the API server sees for this client.
pub(in crate::cluster) async fn user_of(client: Client) -> Result<UserInfo, ClusterError> {
    let api: Api<SelfSubjectReview> = Api::all(client);
    let review = api.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    let info = review.status.and_then(|status| status.user_info).unwrap_or_default();
    Ok(UserInfo {
        user: info.username.unwrap_or_default(),
        groups: info.groups.unwrap_or_default(),
    })
}
