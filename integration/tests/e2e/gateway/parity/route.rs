//! A route to the API server, and its responses.

use std::collections::BTreeMap;

use http::Method;
use integration::http_client::http_client;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use url::Url;
use uuid::Uuid;

/// Headers that differ between any two responses. The length depends on the connection: the API
/// server omits it from 2 KiB on in HTTP/1.1, and from 4 KiB on in HTTP/2.
const VOLATILE_HEADERS: [&str; 3] = ["date", "audit-id", "content-length"];
/// Headers that the broker adds to every response.
const BROKER_HEADERS: [&str; 2] = ["strict-transport-security", "x-request-id"];
/// Fields that differ between any two objects; [`RouteResponse::without_volatile_fields`] blanks
/// them.
const VOLATILE_FIELDS: [&str; 6] =
    ["uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "time", "continue"];

/// The direct route, or the one through the gateway.
pub(super) struct Route {
    http: reqwest::Client,
    base: Url,
    token: SecretString,
}

/// A response of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RouteResponse {
    pub(super) status: u16,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Vec<u8>,
}

impl Route {
    pub(super) fn new(base: &Url, authority: &str, token: SecretString) -> Self {
        Self { http: http_client(Some(authority)).unwrap(), base: base.clone(), token }
    }

    pub(super) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> RouteResponse {
        self.send(Method::GET, path, headers, Vec::new()).await
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> RouteResponse {
        let url = self.base.join(path).unwrap();
        let mut request = self.http.request(method, url).bearer_auth(self.token.expose_secret());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.body(body).send().await.unwrap();
        let is_gateway = self.base.path().starts_with("/clusters/");
        for name in BROKER_HEADERS {
            assert_eq!(answer.headers().contains_key(name), is_gateway, "{name} of {path}");
        }
        if is_gateway {
            // A synthesized response has the id of the last call.
            assert_eq!(answer.headers()["x-request-id"], answer.headers()["audit-id"], "{path}");
        }
        let headers = answer.headers().iter().filter(|(name, _)| {
            !VOLATILE_HEADERS.contains(&name.as_str()) && !BROKER_HEADERS.contains(&name.as_str())
        });
        let headers = headers
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        let status = answer.status().as_u16();
        RouteResponse { status, headers, body: answer.bytes().await.unwrap().to_vec() }
    }
}

impl RouteResponse {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// Blanks the fields that differ for a recreated object.
    pub(super) fn without_volatile_fields(mut self) -> Self {
        if let Ok(mut value) = serde_json::from_slice(&self.body) {
            strip_volatile(&mut value);
            self.body = value.to_string().into_bytes();
        }
        self
    }
}

impl std::fmt::Display for RouteResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = String::from_utf8_lossy(&self.body);
        write!(f, "{} {:?}\n{:.2000}", self.status, self.headers, body)
    }
}

fn strip_volatile(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if VOLATILE_FIELDS.contains(&name.as_str()) && value.is_string() {
                    *value = "forgotten".into();
                }
                strip_volatile(value);
            }
        }
        // An error may contain an object's id.
        Value::String(text) => {
            let words = text.split(' ').map(|word| {
                let id = word.trim_matches(['(', ')', '.']).parse::<Uuid>();
                if id.is_ok() { "forgotten" } else { word }
            });
            *text = words.collect::<Vec<_>>().join(" ");
        }
        Value::Array(items) => items.iter_mut().for_each(strip_volatile),
        _ => {}
    }
}
