//! The calls of model services, whose failures have a format of their own.

use std::time::Duration;

use http::{Method, StatusCode};
use tenant_shared::{
    AAModelList, Code, DeletedDistributionResponse, DistributionStatusResponse,
    InstallDistributionRequest, InstalledDistributionResponse, MODEL_SERVICES_PATH,
    ModelServicesFailure,
};
use url::form_urlencoded::Serializer;

use crate::{
    broker::{Broker, json_body},
    error::Error,
    http::Response,
    suggestion, tenants,
};

/// Time limit of one request. An installation takes a minute at most at the broker.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(70);
/// Maximum size of the list of models in bytes, which is that of the broker's largest response.
const MAX_LIST_BYTES: usize = 32 * 1024 * 1024;
/// How the text of a broker without model services begins.
const NO_SUCH_PATH: &str = "no such path";
/// How the text of a refusal for a missing right begins.
const NO_PERMISSION: &str = "You don't have permission";
/// What the rights for models are, and who gives them.
const RIGHTS_HINT: &str = "models need the rights to get and list inferenceservices, \
    llminferenceservices and servingruntimes of serving.kserve.io and llamastackdistributions of \
    llamastack.io; install and delete also those to create and delete the last. An administrator of \
    the cluster gives them to the roles view, edit and admin: tenant-broker install --apply \
    --model-services";

impl Broker {
    /// Makes this client read lists of models as large as the broker sends them.
    pub(crate) fn for_list_of_models(self) -> Self {
        self.with_max_body(MAX_LIST_BYTES)
    }

    /// Lists the models of a namespace, with a client of [`Self::for_list_of_models`].
    pub(crate) async fn models(&self, namespace: &str) -> Result<AAModelList, Error> {
        self.parse(&self.in_namespace(Method::GET, "/aaa/models", namespace, &[], None).await?)
    }

    /// Installs a Llama Stack.
    pub(super) async fn install_distribution(
        &self,
        namespace: &str,
        request: &InstallDistributionRequest,
    ) -> Result<InstalledDistributionResponse, Error> {
        let body = Some(json_body(request)?);
        self.parse(&self.in_namespace(Method::POST, "/lsd/install", namespace, &[], body).await?)
    }

    /// Returns the status of a namespace's Llama Stack.
    pub(super) async fn distribution_status(
        &self,
        namespace: &str,
    ) -> Result<DistributionStatusResponse, Error> {
        self.parse(&self.in_namespace(Method::GET, "/lsd/status", namespace, &[], None).await?)
    }

    /// Deletes a Llama Stack.
    pub(super) async fn delete_distribution(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<DeletedDistributionResponse, Error> {
        // Some proxies drop the body of a DELETE.
        let query = [("name", name)];
        self.parse(
            &self.in_namespace(Method::DELETE, "/lsd/delete", namespace, &query, None).await?,
        )
    }

    async fn in_namespace(
        &self,
        method: Method,
        operation: &str,
        namespace: &str,
        query: &[(&str, &str)],
        body: Option<Vec<u8>>,
    ) -> Result<Response, Error> {
        let mut parameters = Serializer::new(String::new());
        parameters.append_pair("namespace", namespace).extend_pairs(query);
        let path = format!("{MODEL_SERVICES_PATH}{operation}?{}", parameters.finish());
        let outcome = self.call_at(method, &path, body, |response| {
            if response.status().is_success() { Ok(response) } else { Err(self.failure(&response)) }
        });
        match outcome.await {
            Err(error) if is_missing_right(&error.message) => {
                Err(self.explain_missing_right(namespace, error).await)
            }
            other => other,
        }
    }

    /// Adds what the person can do about a missing right: in a namespace that is not theirs, which
    /// may not exist, they probably meant another one.
    async fn explain_missing_right(&self, namespace: &str, error: Error) -> Error {
        let own = tenants::namespaces_of_person(self).await;
        if own.iter().any(|it| it == namespace) {
            return error.hint(RIGHTS_HINT);
        }
        let names = || own.iter().map(String::as_str);
        let suggestion = match suggestion::nearest(namespace, names()) {
            Some(nearest) => format!("; did you mean {nearest}?"),
            None if own.is_empty() => String::new(),
            None => {
                let names: Vec<&str> = names().collect();
                format!("; yours: {}", suggestion::listed(&names, suggestion::MAX_SUGGESTIONS))
            }
        };
        error.hint(format!(
            "{namespace} may not exist, or is not a namespace of yours{suggestion}; {RIGHTS_HINT}"
        ))
    }

    /// The error of a response that is a refusal.
    fn failure(&self, response: &Response) -> Error {
        let Ok(failure) = serde_json::from_slice::<ModelServicesFailure>(response.body()) else {
            let error = self.http.refusal(response);
            // A broker without model services answers in the format of its API.
            return match response.status() {
                StatusCode::NOT_FOUND if error.code.is_some() => self.no_model_services(),
                _ => error,
            };
        };
        let message = failure.error.message;
        match response.status() {
            StatusCode::NOT_FOUND if message.starts_with(NO_SUCH_PATH) => self.no_model_services(),
            StatusCode::UNAUTHORIZED => self.account.sign_in_error(message),
            StatusCode::NOT_FOUND => {
                Error { code: Some(Code::NotFound), ..Error::refused(message) }
            }
            _ => Error::refused(message),
        }
    }

    fn no_model_services(&self) -> Error {
        Error::refused(format!("the broker {} has no model services", self.account.broker)).hint(
            "its operator switches them on (model_services.enabled), or installs a newer version",
        )
    }
}

/// Whether the text of a 403 is about a missing right, and not about a quota or an admission policy,
/// whose text the broker quotes.
fn is_missing_right(message: &str) -> bool {
    let is_other = ["exceeded quota", "denied"].iter().any(|text| message.contains(text));
    message.starts_with(NO_PERMISSION) && !is_other
}
