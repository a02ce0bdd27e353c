//! Requests to the API server without the work of a Kubernetes client.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use reqwest::{Client, Response};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use url::Url;

use crate::authority::Identity;
use crate::control_plane::ControlPlane;
use crate::http_client;

/// Characters of a response in an error.
const MAX_ERROR_CHARS: usize = 300;

/// An API server, directly or through the gateway, called with one identity.
#[derive(Clone, Debug)]
pub(crate) struct RawApi {
    client: Client,
    base: Url,
}

/// A response.
#[derive(Debug)]
pub(crate) struct RawResponse {
    pub(crate) status: StatusCode,
    pub(crate) body: String,
    /// Time from the request to the end of the response.
    pub(crate) took: Duration,
}

impl RawApi {
    /// The API server itself, with a client certificate.
    pub(crate) fn direct(cluster: &ControlPlane, identity: &Identity) -> Result<Self> {
        Ok(Self { client: cluster.http_client(identity)?, base: cluster.url().clone() })
    }

    /// An API server or gateway at this URL, with a bearer token.
    pub(crate) fn with_token(base: Url, authority: &str, token: &SecretString) -> Result<Self> {
        let mut bearer = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))?;
        bearer.set_sensitive(true);
        let client = http_client::builder(Some(authority))?
            .default_headers(HeaderMap::from_iter([(AUTHORIZATION, bearer)]))
            .http1_only()
            .build()
            .context("build an HTTP client")?;
        Ok(Self { client, base })
    }

    /// Sends a request. Any status is a result.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<RawResponse> {
        let url = self.base.join(path).context("make a URL")?;
        let mut request = self.client.request(method.clone(), url);
        if let Some(body) = body {
            let merge = method == Method::PATCH;
            let kind = if merge { "application/merge-patch+json" } else { "application/json" };
            request = request.header(CONTENT_TYPE, kind).body(body.to_string());
        }
        let sent = Instant::now();
        let answer = request.send().await.with_context(|| format!("{method} {path}"))?;
        let status = answer.status();
        let body = answer.text().await.with_context(|| format!("read the answer to {path}"))?;
        Ok(RawResponse { status, body, took: sent.elapsed() })
    }

    /// Sends a request that has to succeed, and returns the time that it took.
    pub(crate) async fn succeed(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<RawResponse> {
        let answer = self.send(method.clone(), path, body).await?;
        let RawResponse { status, body, .. } = &answer;
        let text: String = body.chars().take(MAX_ERROR_CHARS).collect();
        ensure!(status.is_success(), "{method} {path} was answered {status}: {text}");
        Ok(answer)
    }

    /// Reads an object or a list.
    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        let answer = self.succeed(Method::GET, path, None).await?;
        serde_json::from_str(&answer.body).with_context(|| format!("read the answer to {path}"))
    }

    /// Opens a stream such as a watch, whose response has to be a success.
    pub(crate) async fn open(&self, path: &str) -> Result<Response> {
        let url = self.base.join(path).context("make a URL")?;
        let answer = self.client.get(url).send().await.with_context(|| format!("open {path}"))?;
        answer.error_for_status().with_context(|| format!("open {path}"))
    }

    /// Creates objects, this number at a time.
    pub(crate) async fn create_all(
        &self,
        objects: impl IntoIterator<Item = (String, Value)>,
        concurrency: usize,
    ) -> Result<()> {
        let requests = objects.into_iter().map(|(path, object)| async move {
            self.succeed(Method::POST, &path, Some(&object)).await.map(drop)
        });
        stream::iter(requests).buffer_unordered(concurrency).try_collect().await
    }
}

/// Milliseconds.
pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Milliseconds from one moment to another; negative if the other one was earlier.
pub(crate) fn ms_between(from: Instant, to: Instant) -> f64 {
    ms(to.saturating_duration_since(from)) - ms(from.saturating_duration_since(to))
}
