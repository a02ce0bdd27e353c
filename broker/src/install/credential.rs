//! The credential of a broker that runs outside the cluster: a client certificate that the cluster
//! itself signs (`certificates.k8s.io/v1`), in a kubeconfig of its own.

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
use crate::clock::Clock;

/// The signer of client certificates (Kubernetes, "Certificate Signing Requests").
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// Until the cluster has signed.
const ROUNDS: u32 = 150;
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(200);

impl Administrator {
    /// Makes a key, has the cluster sign a certificate for this user, approves that, and writes a
    /// kubeconfig with both into `file` (mode 0600), in the place of one that is there. The key
    /// leaves this process in that file only. `days` is what is asked for; the cluster may give
    /// less.
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
        let certificate = self.signed(user, &key, days, clock).await?;
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "tenant-broker",
            "clusters": [{"name": "cluster", "cluster": self.cluster_entry()}],
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

    async fn signed(
        &self,
        user: &str,
        key: &KeyPair,
        days: u16,
        clock: &Clock,
    ) -> anyhow::Result<ByteString> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        // No organization: that would be a group.
        params.distinguished_name.push(DnType::CommonName, user);
        let request = params.serialize_request(key).and_then(|request| request.pem());
        let request = request.context("cannot make a certificate signing request")?;

        let name = format!("tenant-broker-{}", clock.random_id());
        let api: Api<CertificateSigningRequest> = Api::all(self.client());
        let wanted = CertificateSigningRequest {
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
        api.create(&PostParams::default(), &wanted)
            .await
            .context("cannot ask the cluster for a certificate")?;
        let approval = json!({"status": {"conditions": [{
            "type": "Approved", "status": "True", "reason": "TenantBrokerInstall",
            "message": "an administrator ran tenant-broker install --credential",
        }]}});
        api.patch_approval(&name, &PatchParams::default(), &Patch::Merge(approval))
            .await
            .context("cannot approve the certificate; may this administrator?")?;
        let certificate = wait_for(&api, &name).await;
        // Kubernetes deletes it in an hour as well.
        let _ = api.delete(&name, &DeleteParams::default()).await;
        certificate
    }
}

async fn wait_for(api: &Api<CertificateSigningRequest>, name: &str) -> anyhow::Result<ByteString> {
    for _ in 0..ROUNDS {
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
        tokio::time::sleep(PAUSE).await;
    }
    bail!(
        "the cluster has not signed in time: it may have no signer for {SIGNER} (some providers \
         have none); make the credential as they describe, for the user in cluster.identity"
    )
}

/// Writes a file of mode 0600 at once, so that nobody reads half of it.
fn write_private(file: &Path, text: &str) -> std::io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut new = tempfile::Builder::new().prefix(".credential-").tempfile_in(folder)?;
    new.write_all(text.as_bytes())?;
    new.as_file().sync_all()?;
    new.persist(file)?;
    Ok(())
}
