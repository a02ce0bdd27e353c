//! The credential of a broker that runs outside the cluster: a kubeconfig with a client certificate
//! that the cluster signs (`certificates.k8s.io/v1`).

use std::{io::Write as _, path::Path, time::Duration};

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::{
    ByteString,
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::json;

use super::Administrator;
use crate::base::clock::Clock;

/// The signer of client certificates (Kubernetes, "Certificate Signing Requests").
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// Limit of polls until the cluster has signed.
const MAX_POLLS: u32 = 150;
/// Interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

impl Administrator {
    /// Generates a key, requests and approves a certificate for this user, and writes a kubeconfig
    /// with both to `file` (mode 0600), replacing an existing file. The key leaves this process in
    /// that file only. `days` is the requested lifetime; the cluster may sign for less.
    ///
    /// # Errors
    /// The administrator may not approve, the cluster has no signer, or the file cannot be written.
    pub async fn write_credential(
        &self,
        user: &str,
        days: u16,
        file: &Path,
        clock: &Clock,
    ) -> anyhow::Result<String> {
        let key = KeyPair::generate().context("cannot make a key")?;
        let certificate = self.request_certificate(user, &key, days, clock).await?;
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "tenant-broker",
            "clusters": [{"name": "cluster", "cluster": self.cluster}],
            "users": [{"name": user, "user": {
                "client-certificate-data": STANDARD.encode(&certificate.0),
                "client-key-data": STANDARD.encode(key.serialize_pem()),
            }}],
            "contexts": [{"name": "tenant-broker", "context": {"cluster": "cluster", "user": user}}],
        });
        write_private(file, &serde_norway::to_string(&kubeconfig)?)
            .with_context(|| format!("cannot write {} (--credential)", file.display()))?;
        Ok(format!(
            "{} written: the credential of {user}, for {days} days at most; run this again before \
             they are over\n",
            file.display()
        ))
    }

    async fn request_certificate(
        &self,
        user: &str,
        key: &KeyPair,
        days: u16,
        clock: &Clock,
    ) -> anyhow::Result<ByteString> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        // No organization, because Kubernetes reads it as a group.
        params.distinguished_name.push(DnType::CommonName, user);
        let request = params.serialize_request(key).and_then(|request| request.pem());
        let request = request.context("cannot make a certificate signing request")?;

        let name = format!("tenant-broker-{}", clock.random_id());
        let api: Api<CertificateSigningRequest> = Api::all(self.client());
        let request = CertificateSigningRequest {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            spec: CertificateSigningRequestSpec {
                request: ByteString(request.into_bytes()),
                signer_name: SIGNER.to_owned(),
                expiration_seconds: Some(i32::from(days) * 86_400),
                usages: Some(vec!["client auth".to_owned()]),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        };
        api.create(&PostParams::default(), &request)
            .await
            .context("cannot ask the cluster for a certificate")?;
        let approval = json!({"status": {"conditions": [{
            "type": "Approved", "status": "True", "reason": "TenantBrokerInstall",
            "message": "an administrator ran tenant-broker install --credential",
        }]}});
        api.patch_approval(&name, &PatchParams::default(), &Patch::Merge(approval)).await.context(
            "cannot approve the certificate request; may this administrator approve it?",
        )?;
        let certificate = wait_for_certificate(&api, &name).await;
        // If this fails, Kubernetes deletes the request within an hour.
        let _ = api.delete(&name, &DeleteParams::default()).await;
        certificate
    }
}

async fn wait_for_certificate(
    api: &Api<CertificateSigningRequest>,
    name: &str,
) -> anyhow::Result<ByteString> {
    for _ in 0..MAX_POLLS {
        let status = api.get(name).await.context("cannot read the request back")?.status;
        let status = status.unwrap_or_default();
        if let Some(certificate) = status.certificate {
            return Ok(certificate);
        }
        for condition in status.conditions.unwrap_or_default() {
            if matches!(condition.type_.as_str(), "Failed" | "Denied") {
                bail!("the cluster does not sign: {}", condition.message.unwrap_or_default());
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    bail!(
        "the cluster has not signed in time: it may have no signer for {SIGNER} (some providers \
         have none); make the credential as they describe, for the user in cluster.identity"
    )
}

/// Writes a file of mode 0600 atomically.
fn write_private(file: &Path, text: &str) -> std::io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut new = tempfile::Builder::new().prefix(".credential-").tempfile_in(folder)?;
    new.write_all(text.as_bytes())?;
    new.as_file().sync_all()?;
    new.persist(file)?;
    Ok(())
}
