//! The models of an installation: each with its endpoint and token, before anything is created.

use futures_util::future::try_join_all;
use http::StatusCode;

use super::{
    super::{
        InNamespace,
        call::Call,
        call_kind::CallKind,
        endpoint::{self, EndpointError, Service},
        failure::Failure,
        inference::{InferenceService, LlmInferenceService, ObjectMeta},
        lenient::Lenient,
        list::{List, Listed},
        models::{INFERENCE_SERVICES, LLM_INFERENCE_SERVICES, ModelKind},
        owners::ModelOwner,
    },
    model::ResolvedModel,
};

impl From<EndpointError> for Failure {
    fn from(error: EndpointError) -> Self {
        match error {
            EndpointError::NotReady(_) | EndpointError::Unusable(_) => {
                Self::conflict(error.to_string())
            }
            EndpointError::Placeholder { .. } => Self::bad_request(error.to_string()),
        }
    }
}

impl InNamespace {
    /// The models with these names, with endpoints and tokens, side by side.
    ///
    /// # Errors
    /// One does not exist, has no address, or cannot be read by the caller; the API server does not
    /// answer.
    pub(super) async fn resolve(&self, names: &[String]) -> Result<Vec<ResolvedModel>, Failure> {
        let models = try_join_all(names.iter().map(|name| self.resolve_one(name)));
        let (models, secrets) = tokio::try_join!(models, self.token_secrets())?;
        Ok(models
            .into_iter()
            .map(|(model, owner)| ResolvedModel { token_secret: secrets.of_model(&owner), ..model })
            .collect())
    }

    /// The model of this name, which of both kinds is the InferenceService.
    async fn resolve_one(&self, name: &str) -> Result<(ResolvedModel, ModelOwner), Failure> {
        let kind = &INFERENCE_SERVICES;
        if let Some(model) = self.model::<InferenceService>(kind, name).await? {
            let service = self.service(&model.metadata, model.internal_url()).await?;
            let resolved = ResolvedModel::of_inference_service(&model, service.as_ref())?;
            return Ok((resolved, ModelOwner { kind: kind.name, uid: model.metadata.uid.into() }));
        }
        let kind = &LLM_INFERENCE_SERVICES;
        if let Some(model) = self.model::<LlmInferenceService>(kind, name).await? {
            let service = self.service(&model.metadata, model.internal_url()).await?;
            let namespace = self.namespace();
            let resolved =
                ResolvedModel::of_llm_inference_service(&model, namespace, service.as_ref())?;
            return Ok((resolved, ModelOwner { kind: kind.name, uid: model.metadata.uid.into() }));
        }
        Err(Failure::not_found(format!(
            "there is no {} and no {} named {name}",
            INFERENCE_SERVICES.name, LLM_INFERENCE_SERVICES.name
        )))
    }

    /// The model of this kind and name; `None` if it does not exist, or the kind is not installed.
    async fn model<T: Lenient + Send + 'static>(
        &self,
        kind: &ModelKind,
        name: &str,
    ) -> Result<Option<T>, Failure> {
        for version in kind.versions {
            let path = format!("{}/{name}", kind.path(version, self.namespace()));
            let response = self.client().send(Call::get(kind.call, path)).await?;
            match response.status {
                StatusCode::OK => return Ok(Some(response.json::<LenientObject<T>>().await?.0)),
                StatusCode::FORBIDDEN if self.is_served(kind.plural, version).await? => {
                    let what = format!("you may not read objects of kind {}", kind.name);
                    return Err(Failure::forbidden_to(&what, self.namespace()));
                }
                StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => {}
                _ => return Err(response.unexpected()),
            }
        }
        Ok(None)
    }

    /// The Service of a model.
    async fn service(&self, model: &ObjectMeta, url: &str) -> Result<Option<Service>, Failure> {
        let path = format!("/api/v1/namespaces/{}/services", self.namespace());
        for selector in endpoint::service_selectors(&model.name).into_iter().flatten() {
            let list = List::new(CallKind::Services, path.clone()).labels(selector);
            match self.client().list::<Service>(&list).await? {
                Listed::Objects(found) => {
                    if let Some(service) = endpoint::choose_service(found, &model.uid, url) {
                        return Ok(Some(service));
                    }
                }
                Listed::Forbidden | Listed::NotFound => {
                    let what = "you may not list Services";
                    return Err(Failure::forbidden_to(what, self.namespace()));
                }
            }
        }
        Ok(None)
    }
}

/// A single object, read as leniently as one in a list.
#[derive(serde::Deserialize)]
#[serde(transparent, bound = "T: Lenient")]
struct LenientObject<T>(#[serde(deserialize_with = "super::super::lenient::read")] T);
