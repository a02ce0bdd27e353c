//! What the broker may look at to see where it stands.

use std::fmt::Debug;

use k8s_openapi::{ClusterResourceScope, api::authentication::v1::SelfSubjectReview};
use kube::{Api, Resource, api::PostParams};
use serde::de::DeserializeOwned;

use super::{Cluster, ClusterError};

/// Who the API server takes the broker for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownAs {
    /// The user's name.
    pub user: String,
    /// Its groups.
    pub groups: Vec<String>,
}

impl Cluster {
    /// Asks the API server who the broker is (`SelfSubjectReview`, which everybody may).
    ///
    /// # Errors
    /// The cluster's.
    pub async fn who_am_i(&self) -> Result<KnownAs, ClusterError> {
        let api: Api<SelfSubjectReview> = Api::all(self.client.clone());
        let review = api.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
        let info = review.status.and_then(|status| status.user_info).unwrap_or_default();
        Ok(KnownAs {
            user: info.username.unwrap_or_default(),
            groups: info.groups.unwrap_or_default(),
        })
    }

    /// An object of the cluster by its name; `None` if it is not there, or if the API server does
    /// not know its kind.
    ///
    /// # Errors
    /// The cluster's.
    pub async fn look_at<K>(&self, name: &str) -> Result<Option<K>, ClusterError>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let api: Api<K> = Api::all(self.client.clone());
        match api.get(name).await {
            Ok(there) => Ok(Some(there)),
            Err(error) => match error.into() {
                ClusterError::NotFound(_) => Ok(None),
                error => Err(error),
            },
        }
    }
}
