//! A model as an installation uses it.

use super::super::{
    endpoint::{self, EndpointError, Service, has_placeholder},
    inference::{InferenceService, LlmInferenceService, ObjectMeta},
    known_keys::{DESCRIPTION, DISPLAY_NAME},
};

/// A model whose endpoint is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::model_services) struct ResolvedModel {
    /// Name by which the model is addressed at its endpoint.
    pub(in crate::model_services) id: String,
    /// URL of its endpoint, with `/v1`.
    pub(in crate::model_services) url: String,
    /// The name that people see.
    pub(in crate::model_services) display_name: Option<String>,
    /// A text about it.
    pub(in crate::model_services) description: Option<String>,
    /// Name of the Secret with its token, in the same namespace.
    pub(in crate::model_services) token_secret: Option<String>,
}

impl ResolvedModel {
    /// An InferenceService with its Service, if it has one.
    ///
    /// # Errors
    /// It has no address that can be used.
    pub(in crate::model_services) fn of_inference_service(
        model: &InferenceService,
        service: Option<&Service>,
    ) -> Result<Self, EndpointError> {
        let url = endpoint::of_inference_service(model, service)?;
        Ok(Self::new(model.metadata.name.replace(':', "-"), url, &model.metadata))
    }

    /// An LLMInferenceService with its Service.
    ///
    /// # Errors
    /// It has no Service, or a name that Llama Stack would change.
    pub(in crate::model_services) fn of_llm_inference_service(
        model: &LlmInferenceService,
        namespace: &str,
        service: Option<&Service>,
    ) -> Result<Self, EndpointError> {
        let url = endpoint::of_llm_inference_service(model, namespace, service)?;
        let id = model.model_id();
        if has_placeholder(id) {
            let model = model.metadata.name.clone();
            return Err(EndpointError::Placeholder { model, what: "name" });
        }
        Ok(Self::new(id.to_owned(), url, &model.metadata))
    }

    fn new(id: String, url: String, metadata: &ObjectMeta) -> Self {
        let text = |key| {
            let text = metadata.annotation(key);
            (!text.is_empty() && !has_placeholder(text)).then(|| text.to_owned())
        };
        Self {
            id,
            url,
            display_name: text(DISPLAY_NAME),
            description: text(DESCRIPTION),
            token_secret: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn metadata(display_name: &str) -> Value {
        json!({"name": "m", "annotations": {DISPLAY_NAME: display_name, DESCRIPTION: "d"}})
    }

    #[test]
    fn an_annotation_with_a_placeholder_is_left_out() {
        let model = |display_name| {
            let model: InferenceService = from_value(json!({
                "metadata": metadata(display_name), "status": {"address": {"url": "http://a"}}
            }))
            .unwrap();
            ResolvedModel::of_inference_service(&model, None).unwrap()
        };
        let good = model("Granite $5 {x}");
        assert_eq!(
            good,
            ResolvedModel {
                id: "m".to_owned(),
                url: "http://a/v1".to_owned(),
                display_name: Some("Granite $5 {x}".to_owned()),
                description: Some("d".to_owned()),
                token_secret: None,
            }
        );
        for bad in ["", "a ${env.VLLM_API_TOKEN_1}", "$${"] {
            assert_eq!(model(bad), ResolvedModel { display_name: None, ..good.clone() });
        }
    }

    #[test]
    fn a_name_with_a_placeholder_is_refused() {
        let service: Service = from_value(json!({"metadata": {"name": "s"}})).unwrap();
        let model = |name| {
            let model: LlmInferenceService =
                from_value(json!({"metadata": metadata("M"), "spec": {"model": {"name": name}}}))
                    .unwrap();
            ResolvedModel::of_llm_inference_service(&model, "ns", Some(&service))
        };
        assert_eq!(model("org/m:1").unwrap().id, "org/m:1");
        assert_eq!(
            model("${env.VLLM_API_TOKEN_1}"),
            Err(EndpointError::Placeholder { model: "m".to_owned(), what: "name" })
        );
    }
}
