//! An authorizer of the API server beside RBAC: a webhook, which cannot say its rules.

use std::path::Path;

use anyhow::{Context, Result};
use http::StatusCode;
use serde_json::{Value, json};
use url::Url;

use super::JsonServer;
use crate::authority::Authority;
use crate::kubeconfig;

/// An authorization webhook (Kubernetes documentation, "Webhook Mode"). It ends when the value is
/// dropped.
#[derive(Debug)]
pub struct Authorizer {
    flags: Vec<String>,
    _server: JsonServer,
}

impl Authorizer {
    /// Starts a webhook that allows what satisfies this condition on the `spec` of a
    /// `SubjectAccessReview`, and has no opinion on anything else. Its files are in `folder`.
    ///
    /// # Errors
    /// No port is free, or a file cannot be written.
    pub async fn start(
        folder: &Path,
        allows: impl Fn(&Value) -> bool + Send + Sync + 'static,
    ) -> Result<Self> {
        let authority = Authority::open(folder)?;
        let server = JsonServer::start(&authority.server("authorizer")?, move |call| {
            let Ok(review) = serde_json::from_slice::<Value>(&call.body) else {
                return (StatusCode::BAD_REQUEST, Value::Null);
            };
            let answer = json!({
                "apiVersion": review["apiVersion"],
                "kind": review["kind"],
                "status": {"allowed": allows(&review["spec"])},
            });
            (StatusCode::OK, answer)
        })
        .await?;
        let url: Url =
            format!("https://127.0.0.1:{}/", server.port).parse().context("make a URL")?;
        let file = folder.join("authorizer.kubeconfig");
        let client = authority.client("kube-apiserver", None)?;
        kubeconfig::write(&file, &url, authority.certificate(), "kube-apiserver", &client)?;
        let flags = vec![
            // In addition to RBAC, which decides first.
            "--authorization-mode=Webhook".to_owned(),
            "--authorization-webhook-version=v1".to_owned(),
            format!("--authorization-webhook-config-file={}", file.display()),
        ];
        Ok(Self { flags, _server: server })
    }

    /// Flags of kube-apiserver that add this authorizer.
    pub fn apiserver_flags(&self) -> &[String] {
        &self.flags
    }
}
