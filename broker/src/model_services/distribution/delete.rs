//! The deletion of a distribution with its ConfigMap.

use super::{
    super::{InNamespace, call_kind::CallKind, failure::Failure},
    desired::{CONFIG_MAP_NAME, KIND},
    record::Recorder,
};
use crate::audit::Action;

impl InNamespace {
    /// Deletes the distribution of this name, if it is one of this API's, and its ConfigMap.
    ///
    /// # Errors
    /// There is no such distribution; the API server refuses the deletion or does not answer; the
    /// audit row cannot be written.
    pub(in crate::model_services) async fn delete_distribution(
        &self,
        name: &str,
    ) -> Result<(), Failure> {
        let what = format!("namespace {}, {name}", self.namespace());
        let recorder = self.recorder(Action::DeleteLlamaStack, what).await?;
        let deleted = self.delete_recorded(name, &recorder).await;
        recorder.finish(deleted).await
    }

    async fn delete_recorded(&self, name: &str, recorder: &Recorder<'_>) -> Result<(), Failure> {
        let path = format!("{}/{name}", self.distributions_path());
        let found = self.metadata(CallKind::Distributions, path.clone()).await?;
        let found = found.filter(|found| found.is_labelled() && !found.metadata.uid.is_empty());
        let Some(found) = found else {
            return Err(Failure::not_found(format!("there is no {KIND} {name} of this service")));
        };
        recorder.begin().await?;
        let uid = found.metadata.uid;
        self.delete_object(CallKind::Distributions, path, &uid).await?;
        if let Err(error) = self.delete_config_map(&uid).await {
            // The garbage collector takes it, because its owner is gone.
            tracing::debug!(
                namespace = self.namespace(),
                error = %error,
                "the ConfigMap of a deleted distribution is left to the garbage collector"
            );
        }
        Ok(())
    }

    /// Deletes the ConfigMap of the distribution with this uid.
    async fn delete_config_map(&self, owner_uid: &str) -> Result<(), Failure> {
        let Some(found) = self.config_map().await? else { return Ok(()) };
        if !found.metadata.is_owned_by(owner_uid) {
            return Ok(());
        }
        let path = format!("{}/{CONFIG_MAP_NAME}", self.config_maps_path());
        self.delete_object(CallKind::ConfigMap, path, &found.metadata.uid).await
    }
}
