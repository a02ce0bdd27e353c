//! The deletion of a distribution with its ConfigMap.

use futures_util::FutureExt as _;

use super::{
    super::{InNamespace, failure::Failure},
    desired::KIND,
    objects::Metadata,
};
use crate::audit::Action;

impl InNamespace {
    /// Deletes the distribution of this name, if it is one of this API's, and its ConfigMap. The
    /// deletion goes on if the client disconnects.
    ///
    /// # Errors
    /// There is no such distribution; the caller may not delete it, or made too many changes; the API
    /// server refuses the deletion or does not answer; the audit row cannot be written.
    pub(in crate::model_services) async fn delete_distribution(
        self,
        name: String,
    ) -> Result<(), Failure> {
        let what = format!("namespace {}, {name}", self.namespace());
        let mut recorder = self.recorder(Action::DeleteLlamaStack, what).await?;
        let reads = self.distribution_to_delete(&name).boxed();
        let found = match self.admit_change(&recorder, ("delete", &name), reads).await {
            Ok(found) => found,
            Err(failure) => return Err(recorder.refuse(failure).await),
        };
        let services = self.client().services().clone();
        let change = async move {
            recorder.begin(self.client()).await?;
            let path = self.distribution_path(&name);
            let deleted = self.delete_object(&path, &found.metadata.uid).await;
            if deleted.is_ok()
                && let Err(error) = self.delete_config_map(&found.metadata.uid).await
            {
                // The garbage collector takes it, because its owner is gone.
                tracing::debug!(
                    namespace = self.namespace(),
                    error = %error,
                    "the ConfigMap of a deleted distribution is left to the garbage collector"
                );
            }
            let text = format!("the {KIND} {name} was deleted");
            recorder.finish(deleted.map_err(|failure| failure.into_failed(&text))).await
        };
        services.run_to_end(change).await
    }

    async fn distribution_to_delete(&self, name: &str) -> Result<Metadata, Failure> {
        let found = self.metadata(&self.distribution_path(name)).await?;
        let found = found.filter(|found| found.is_labelled() && !found.metadata.uid.is_empty());
        found
            .ok_or_else(|| Failure::not_found(format!("there is no {KIND} {name} of this service")))
    }

    /// Deletes the ConfigMap of the distribution with this uid.
    async fn delete_config_map(&self, owner_uid: &str) -> Result<(), Failure> {
        let path = self.config_map_path();
        match self.metadata_after_write(&path).await? {
            Some(found) if found.is_owned_by(owner_uid) => {
                Ok(self.delete_object(&path, &found.metadata.uid).await?)
            }
            _ => Ok(()),
        }
    }
}
