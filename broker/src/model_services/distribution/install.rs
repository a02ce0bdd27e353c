//! The installation: a distribution and its ConfigMap, both or none.

use futures_util::FutureExt as _;
use http::StatusCode;
use serde_json::Value;
use tenant_shared::{DISTRIBUTION_NAME, InstallDistributionRequest, InstalledDistribution};

use super::{
    super::{InNamespace, failure::Failure},
    conflict::{config_map_conflict, deleted_meanwhile, distribution_exists},
    desired::{self, KIND},
    failed::Failed,
    model::ResolvedModel,
    objects::{Metadata, not_installed},
    request::models_of,
    run_yaml::run_yaml,
    write::{Creation, WriteFailure},
};
use crate::audit::Action;

/// An installation that can begin.
#[derive(Debug)]
struct Planned {
    models: Vec<ResolvedModel>,
    run_yaml: String,
}

impl InNamespace {
    /// Creates a distribution for these models. Nothing is created before every model is found; what
    /// fails later is taken back. The creation goes on if the client disconnects.
    ///
    /// # Errors
    /// The request is not valid; the caller may not create a distribution, or made too many changes; a
    /// model cannot be used; there is a distribution already, or a ConfigMap of somebody else; the API
    /// server refuses an object or does not answer; the audit row cannot be written.
    pub(in crate::model_services) async fn install(
        self,
        request: &InstallDistributionRequest,
    ) -> Result<InstalledDistribution, Failure> {
        let names = models_of(request)?;
        let what = format!(
            "namespace {}, {DISTRIBUTION_NAME}, models {}",
            self.namespace(),
            names.join(", ")
        );
        let mut recorder = self.recorder(Action::InstallLlamaStack, what).await?;
        let reads = self.models_to_install(&names).boxed();
        let planned = self.admit_change(&recorder, ("create", DISTRIBUTION_NAME), reads);
        let planned = match planned.await {
            Ok(planned) => planned,
            Err(failure) => return Err(recorder.refuse(failure).await),
        };
        let services = self.client().services().clone();
        let change = async move {
            recorder.begin(self.client()).await?;
            recorder.finish(self.create_both(&planned).await).await
        };
        services.run_to_end(change).await
    }

    /// The models with these names and their configuration, unless there is a distribution already.
    async fn models_to_install(&self, names: &[String]) -> Result<Planned, Failure> {
        let found = self.distributions().await?.ok_or_else(not_installed)?;
        if let Some(existing) = found.first() {
            let name = &existing.metadata.name;
            let existing = self.metadata(&self.distribution_path(name)).await;
            return Err(distribution_exists(name, existing));
        }
        let models = self.resolve(names).await?;
        let run_yaml = run_yaml(&models)?;
        // The text, and the ConfigMap, in which quotation marks take two bytes more.
        self.client().reserve_bytes(run_yaml.len() * 4)?;
        Ok(Planned { models, run_yaml })
    }

    /// Creates the distribution and its ConfigMap. If the second fails, the first is taken back.
    async fn create_both(&self, planned: &Planned) -> Result<InstalledDistribution, Failed> {
        let uid = self.create_distribution(&planned.models).await?;
        if let Err(failure) = self.create_config_map(&uid, &planned.run_yaml).await {
            if self.roll_back(&uid).await {
                return Err(failure.into());
            }
            let left = format!(
                "the {KIND} {DISTRIBUTION_NAME} may be left, perhaps without its ConfigMap; delete it"
            );
            return Err(Failed::leaving(failure, left));
        }
        Ok(InstalledDistribution {
            name: DISTRIBUTION_NAME.to_owned(),
            http_status: "200".to_owned(),
        })
    }

    /// Deletes the distribution with this uid; returns whether it is gone. The garbage collector
    /// takes its ConfigMap.
    async fn roll_back(&self, uid: &str) -> bool {
        let path = self.distribution_path(DISTRIBUTION_NAME);
        let error = match self.delete_object(&path, uid).await {
            Ok(()) => return true,
            Err(WriteFailure::NotDone(failure)) if failure.status() == StatusCode::CONFLICT => {
                if self.is_gone(&path, uid).await {
                    return true;
                }
                failure
            }
            Err(WriteFailure::NotDone(failure) | WriteFailure::Unknown(failure)) => failure,
        };
        tracing::warn!(
            namespace = self.namespace(),
            error = %error,
            "a distribution without its ConfigMap is left"
        );
        false
    }

    /// Creates the distribution; returns its uid.
    async fn create_distribution(&self, models: &[ResolvedModel]) -> Result<String, Failed> {
        let services = &self.client().services().0;
        let installation = services.clock.random_id().to_string();
        let object = desired::distribution(&services.settings.distribution, models, &installation);
        let path = self.distribution_path(DISTRIBUTION_NAME);
        let is_ours = |found: &Metadata| found.is_of_installation(&installation);
        let created = self.create_object(&path, &object, is_ours).await;
        let created = created.map_err(|failure| {
            failure.into_failed(&format!("the {KIND} {DISTRIBUTION_NAME} was created"))
        })?;
        let refused = match created {
            Creation::Created(created) => return Ok(created.metadata.uid),
            Creation::Refused(response) => response,
        };
        let failure = match refused.status {
            _ if refused.is_already_exists() => {
                distribution_exists(DISTRIBUTION_NAME, self.metadata_after_write(&path).await)
            }
            StatusCode::NOT_FOUND => not_installed(),
            _ => self.refused("create the LlamaStackDistribution", &refused),
        };
        Err(failure.into())
    }

    /// Creates the ConfigMap of the distribution with this uid, in the place of one that an earlier
    /// distribution left.
    async fn create_config_map(&self, uid: &str, run_yaml: &str) -> Result<(), Failure> {
        let object = desired::config_map(uid, run_yaml);
        if self.created_config_map(&object, uid).await? {
            return Ok(());
        }
        let path = self.config_map_path();
        match self.metadata_after_write(&path).await? {
            // The garbage collector was faster.
            None => {}
            Some(found) if found.is_remainder_of(DISTRIBUTION_NAME, uid) => {
                // The owner is gone only if its name is ours now. Otherwise ours was deleted, and the
                // ConfigMap is that of another installation.
                let owner = self.distribution_path(DISTRIBUTION_NAME);
                let live = self.metadata_after_write(&owner).await?;
                if live.is_none_or(|live| live.metadata.uid != uid) {
                    return Err(deleted_meanwhile());
                }
                self.delete_unchanged(&path, &found).await?;
            }
            Some(found) => return Err(config_map_conflict(Some(&found))),
        }
        if self.created_config_map(&object, uid).await? {
            return Ok(());
        }
        Err(config_map_conflict(self.metadata_after_write(&path).await?.as_ref()))
    }

    /// Creates the ConfigMap; `false` if there is one.
    async fn created_config_map(&self, object: &Value, uid: &str) -> Result<bool, Failure> {
        let path = self.config_map_path();
        match self.create_object(&path, object, |found| found.is_owned_by(uid)).await? {
            Creation::Created(_) => Ok(true),
            Creation::Refused(response) if response.is_already_exists() => Ok(false),
            Creation::Refused(response) => Err(self.refused("create the ConfigMap", &response)),
        }
    }
}
