//! The installation: a distribution and its ConfigMap, both or none.

use std::time::Duration;

use http::StatusCode;
use serde_json::Value;
use tenant_shared::{DISTRIBUTION_NAME, InstallDistributionRequest, InstalledDistribution};

use super::{
    super::{InNamespace, ask::Call, call_kind::CallKind, failure::Failure},
    desired::{self, CONFIG_MAP_NAME},
    model::ResolvedModel,
    objects::{Metadata, not_installed},
    record::Recorder,
    request::models_of,
};
use crate::audit::Action;

/// How long the models may take to be read.
const RESOLVE_TIMEOUT: Duration = Duration::from_mins(1);

impl InNamespace {
    /// Creates a distribution for these models. Nothing is created before every model is found; what
    /// fails later is taken back.
    ///
    /// # Errors
    /// The request is not valid; a model cannot be used; there is a distribution already, or a
    /// ConfigMap of somebody else; the API server refuses an object or does not answer; the audit row
    /// cannot be written.
    pub(in crate::model_services) async fn install(
        &self,
        request: &InstallDistributionRequest,
    ) -> Result<InstalledDistribution, Failure> {
        let names = models_of(request)?;
        let what = format!(
            "namespace {}, {DISTRIBUTION_NAME}, models {}",
            self.namespace(),
            names.join(", ")
        );
        let recorder = self.recorder(Action::InstallLlamaStack, what).await?;
        let installed = self.install_recorded(&names, &recorder).await;
        recorder.finish(installed).await
    }

    async fn install_recorded(
        &self,
        names: &[String],
        recorder: &Recorder<'_>,
    ) -> Result<InstalledDistribution, Failure> {
        let found = self.distributions().await?.ok_or_else(not_installed)?;
        if let Some(existing) = found.first() {
            return Err(exists(&existing.metadata.name));
        }
        let resolved = tokio::time::timeout(RESOLVE_TIMEOUT, self.resolve(names)).await;
        let models =
            resolved.map_err(|_| Failure::internal("the models were not read in time"))??;
        recorder.begin().await?;
        let uid = self.create_distribution(&models).await?;
        if let Err(failure) = self.create_config_map(&uid, &models).await {
            let path = format!("{}/{DISTRIBUTION_NAME}", self.distributions_path());
            let undone = self.delete_object(CallKind::Distributions, path, &uid).await;
            if let Err(error) = undone {
                tracing::warn!(
                    namespace = self.namespace(),
                    error = %error,
                    "a distribution without its ConfigMap is left"
                );
            }
            return Err(failure);
        }
        Ok(InstalledDistribution {
            name: DISTRIBUTION_NAME.to_owned(),
            http_status: "200".to_owned(),
        })
    }

    /// Creates the distribution; returns its uid.
    async fn create_distribution(&self, models: &[ResolvedModel]) -> Result<String, Failure> {
        let settings = &self.asker().services().0.settings.distribution;
        let object = desired::distribution(settings, models);
        // Unknown fields would be dropped silently.
        let path = format!("{}?fieldValidation=Strict", self.distributions_path());
        let answer = self.asker().ask(Call::create(CallKind::Distributions, path, &object)).await?;
        match answer.status {
            status if status.is_success() => {
                let created: Metadata = answer.json().await?;
                match created.metadata.uid {
                    uid if uid.is_empty() => {
                        Err(Failure::internal("the created object has no uid"))
                    }
                    uid => Ok(uid),
                }
            }
            StatusCode::CONFLICT => Err(exists(DISTRIBUTION_NAME)),
            StatusCode::NOT_FOUND => Err(not_installed()),
            _ => Err(self.refused("create the LlamaStackDistribution", &answer)),
        }
    }

    /// Creates the ConfigMap of the distribution with this uid, in the place of one that an earlier
    /// distribution left.
    async fn create_config_map(&self, uid: &str, models: &[ResolvedModel]) -> Result<(), Failure> {
        let object = desired::config_map(uid, models);
        if self.created_config_map(&object).await? {
            return Ok(());
        }
        match self.config_map().await? {
            // The garbage collector was faster.
            None => {}
            Some(found) if found.is_remainder_of(DISTRIBUTION_NAME, uid) => {
                let path = format!("{}/{CONFIG_MAP_NAME}", self.config_maps_path());
                self.delete_object(CallKind::ConfigMap, path, &found.metadata.uid).await?;
            }
            Some(_) => return Err(foreign_config_map()),
        }
        if self.created_config_map(&object).await? { Ok(()) } else { Err(foreign_config_map()) }
    }

    /// Creates the ConfigMap; `false` if there is one.
    async fn created_config_map(&self, object: &Value) -> Result<bool, Failure> {
        let path = format!("{}?fieldValidation=Strict", self.config_maps_path());
        let answer = self.asker().ask(Call::create(CallKind::ConfigMap, path, object)).await?;
        match answer.status {
            status if status.is_success() => Ok(true),
            StatusCode::CONFLICT => Ok(false),
            _ => Err(self.refused("create the ConfigMap", &answer)),
        }
    }
}

fn exists(name: &str) -> Failure {
    Failure::conflict(format!(
        "there is a LlamaStackDistribution already, {name}; delete it first to install another one"
    ))
}

fn foreign_config_map() -> Failure {
    Failure::conflict(format!(
        "there is a ConfigMap {CONFIG_MAP_NAME} that belongs to something else; delete or rename it"
    ))
}
