//! A way to the API server, and what comes back on it.

use std::collections::BTreeMap;

use http::Method;
use integration::http_client::http_client;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use url::Url;
use uuid::Uuid;

/// What differs between any two answers. The length is one of the connection: the API server leaves
/// it away from 2 KiB on in HTTP/1.1, and from 4 KiB on in HTTP/2.
const OF_THE_MOMENT: [&str; 3] = ["date", "audit-id", "content-length"];
/// What differs between any two objects, and what is cut out of [`Answer::timeless`].
const OF_THE_OBJECT: [&str; 6] =
    ["uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "time", "continue"];

/// Directly, or through the gateway.
pub(super) struct Way {
    http: reqwest::Client,
    base: Url,
    token: SecretString,
}

/// What the API server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Vec<u8>,
}

impl Way {
    pub(super) fn new(base: &Url, authority: &str, token: SecretString) -> Self {
        Self { http: http_client(Some(authority)).unwrap(), base: base.clone(), token }
    }

    pub(super) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(Method::GET, path, headers, Vec::new()).await
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Answer {
        let url = self.base.join(path).unwrap();
        let mut request = self.http.request(method, url).bearer_auth(self.token.expose_secret());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.body(body).send().await.unwrap();
        let headers =
            answer.headers().iter().filter(|(name, _)| !OF_THE_MOMENT.contains(&name.as_str()));
        let headers = headers
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        let status = answer.status().as_u16();
        Answer { status, headers, body: answer.bytes().await.unwrap().to_vec() }
    }
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// The same for an object that is made anew.
    pub(super) fn timeless(mut self) -> Self {
        if let Ok(mut value) = serde_json::from_slice(&self.body) {
            forget(&mut value);
            self.body = value.to_string().into_bytes();
        }
        self
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = String::from_utf8_lossy(&self.body);
        write!(f, "{} {:?}\n{:.2000}", self.status, self.headers, body)
    }
}

fn forget(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if OF_THE_OBJECT.contains(&name.as_str()) && value.is_string() {
                    *value = "forgotten".into();
                }
                forget(value);
            }
        }
        // An error may name an object's id.
        Value::String(text) => {
            let words = text.split(' ').map(|word| {
                let id = word.trim_matches(['(', ')', '.']).parse::<Uuid>();
                if id.is_ok() { "forgotten" } else { word }
            });
            *text = words.collect::<Vec<_>>().join(" ");
        }
        Value::Array(items) => items.iter_mut().for_each(forget),
        _ => {}
    }
}
