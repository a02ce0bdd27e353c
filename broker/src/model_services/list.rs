//! Lists of the API server, page by page.

use std::time::{Duration, Instant};

use http::{HeaderValue, StatusCode};
use url::form_urlencoded;

use super::{
    call::{Call, MAX_UPSTREAM_BYTES},
    call_kind::CallKind,
    caller_client::CallerClient,
    failure::Failure,
    lenient::{Lenient, MAX_OBJECTS, Page},
};

/// Objects of a page.
const PAGE_SIZE: &str = "250";
/// The largest number of pages, for an API server that never says that a page is the last one.
const MAX_PAGES: usize = 100;
/// The representation of lists of which only the metadata is read. No other one is acceptable, so
/// that the API server never answers with whole objects.
pub(super) const METADATA_ONLY: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A list to read.
#[derive(Clone, Debug)]
pub(super) struct List {
    kind: CallKind,
    path: String,
    parameters: Vec<(&'static str, String)>,
    accept: HeaderValue,
    /// Of all pages together, besides that of the operation.
    timeout: Option<Duration>,
}

/// The objects of a list, or why there are none.
#[derive(Debug)]
pub(super) enum Listed<T> {
    Objects(Vec<T>),
    /// The caller may not list them. The API server says the same of a kind that is not installed.
    Forbidden,
    /// The kind is not installed.
    NotFound,
}

impl List {
    pub(super) fn new(kind: CallKind, path: impl Into<String>) -> Self {
        Self { kind, path: path.into(), parameters: Vec::new(), accept: JSON, timeout: None }
    }

    /// Restricts the list to objects with these labels.
    #[must_use]
    pub(super) fn labels(self, selector: impl Into<String>) -> Self {
        self.parameter("labelSelector", selector)
    }

    /// Restricts the list to objects with these values of fields.
    #[must_use]
    pub(super) fn fields(self, selector: impl Into<String>) -> Self {
        self.parameter("fieldSelector", selector)
    }

    /// Reads only the metadata of the objects.
    #[must_use]
    pub(super) fn metadata_only(self) -> Self {
        Self { accept: METADATA_ONLY, ..self }
    }

    /// Limits the time of all pages together.
    #[must_use]
    pub(super) fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    fn parameter(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.parameters.push((name, value.into()));
        self
    }

    /// The call for a page.
    fn page(&self, continue_token: &str) -> Call {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", PAGE_SIZE);
        for (name, value) in &self.parameters {
            query.append_pair(name, value);
        }
        if !continue_token.is_empty() {
            query.append_pair("continue", continue_token);
        }
        let path_and_query = format!("{}?{}", self.path, query.finish());
        Call::get(self.kind, path_and_query).accept(self.accept.clone())
    }
}

impl CallerClient {
    /// Reads all pages of a list.
    ///
    /// # Errors
    /// The API server does not accept the caller's token, or does not answer; there are too many
    /// objects, or they are too large.
    pub(super) async fn list<T: Lenient + Send + 'static>(
        &self,
        list: &List,
    ) -> Result<Listed<T>, Failure> {
        let (mut objects, mut bytes) = (Vec::new(), 0);
        let mut continue_token = String::new();
        let until = list.timeout.map(|timeout| Instant::now() + timeout);
        for _ in 0..MAX_PAGES {
            let call = list.page(&continue_token).max_bytes(MAX_UPSTREAM_BYTES - bytes);
            let call = match until {
                Some(until) => call.timeout(until.saturating_duration_since(Instant::now())),
                None => call,
            };
            let response = self.send(call).await?;
            match response.status {
                StatusCode::OK => {}
                StatusCode::FORBIDDEN => return Ok(Listed::Forbidden),
                StatusCode::NOT_FOUND => return Ok(Listed::NotFound),
                _ => return Err(response.unexpected()),
            }
            bytes += response.len();
            let (page, memory) = response.json_with_memory::<Page<T>>().await?;
            self.retain_until_end(memory);
            objects.extend(page.items);
            if objects.len() > MAX_OBJECTS {
                return Err(Failure::internal(format!(
                    "a list has more than {MAX_OBJECTS} objects"
                )));
            }
            continue_token = page.metadata.continue_token;
            if continue_token.is_empty() {
                return Ok(Listed::Objects(objects));
            }
        }
        Err(Failure::internal(format!("a list has more than {MAX_PAGES} pages")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_encoded() {
        let list = List::new(CallKind::Secrets, "/api/v1/namespaces/ns/secrets")
            .fields("type=kubernetes.io/service-account-token")
            .metadata_only();
        let call = format!("{:?}", list.page("a&b"));
        let query = "limit=250&fieldSelector=type%3Dkubernetes.io%2Fservice-account-token\
                     &continue=a%26b";
        assert!(call.contains(&format!("/api/v1/namespaces/ns/secrets?{query}\"")), "{call}");
    }
}
