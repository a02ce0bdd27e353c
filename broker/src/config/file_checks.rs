//! Preflight checks of the files that settings name. They are separate from the validation of
//! settings, because some commands run before the files exist.

use std::path::Path;

use super::{Config, Faults};

impl Config {
    /// Checks that the files that `serve` needs can be read.
    ///
    /// # Errors
    /// All faults together.
    pub fn check_files(&self) -> Result<(), Faults> {
        let mut faults = Vec::new();
        match &self.cluster.kubeconfig {
            Some(path) => check(&mut faults, "cluster.kubeconfig", path),
            // The kubelet sets this variable in every pod.
            None if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => {}
            None => faults.push(
                "cluster.kubeconfig: not set, and this is not a pod; name the broker's own \
                 kubeconfig (docs/own-cluster.md says how to make it)"
                    .to_owned(),
            ),
        }
        let mut readable = |key: &str, path: &Path| check(&mut faults, key, path);
        if let Some(path) = &self.cluster.ca_file {
            readable("cluster.ca_file", path);
        }
        if let Some(tls) = &self.tls {
            readable("tls.cert_file", &tls.cert_file);
            readable("tls.key_file", &tls.key_file);
        }
        for (name, connector) in &self.issuer.connectors {
            if let Some(path) = &connector.ca_file {
                readable(&format!("connectors.{name}.ca_file"), path);
            }
        }
        for (name, workload) in &self.issuer.workloads {
            if let Some(path) = &workload.ca_file {
                readable(&format!("workloads.{name}.ca_file"), path);
            }
        }
        if !self.generates_signing_key() {
            for path in &self.issuer.signing_key_files {
                readable("issuer.signing_key_files", path);
            }
        }
        if self.audit.signing_key_files != self.issuer.signing_key_files {
            for path in &self.audit.signing_key_files {
                check(&mut faults, "audit.signing_key_files", path);
            }
        }
        if let Some(path) = &self.audit.known_keys_file {
            check(&mut faults, "audit.known_keys_file", path);
        }
        Faults::into_result(faults)
    }

    /// Whether the broker generates the issuer's signing key itself.
    pub fn generates_signing_key(&self) -> bool {
        self.issuer.signing_key_files == [self.state_dir.join("issuer-key.pem")]
    }
}

fn check(faults: &mut Vec<String>, key: &str, path: &Path) {
    if let Err(error) = std::fs::File::open(path) {
        faults.push(format!("{key}: cannot read {}: {error}", path.display()));
    }
}
