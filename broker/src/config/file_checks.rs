//! Preflight checks of the files that settings name. They are separate from the validation of
//! settings, because some commands run before the files exist.

use std::path::Path;

use super::{Config, ConfigErrors, audit, cluster, connector, issuer, tls, workload};

/// The token of a pod's ServiceAccount, in the folder where kubelets mount it.
const POD_TOKEN_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

impl Config {
    /// Checks that the files that `serve` needs can be read.
    ///
    /// # Errors
    /// All faults together.
    pub fn check_files(&self) -> Result<(), ConfigErrors> {
        let mut faults = Vec::new();
        match &self.cluster.kubeconfig {
            Some(path) => check(&mut faults, cluster::KUBECONFIG.key, path),
            // The kubelet sets this variable in every pod.
            None if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => {
                if let Err(error) = std::fs::File::open(POD_TOKEN_FILE) {
                    faults.push(format!(
                        "{}: not set, and cannot read {POD_TOKEN_FILE}: {error}; mount the token \
                         of the pod's ServiceAccount (automountServiceAccountToken)",
                        cluster::KUBECONFIG.key
                    ));
                }
            }
            None => faults.push(format!(
                "{}: not set, and this is not a pod; name the broker's own kubeconfig \
                 (docs/own-cluster.md says how to make it)",
                cluster::KUBECONFIG.key
            )),
        }
        let mut readable = |key: &str, path: &Path| check(&mut faults, key, path);
        if let Some(path) = &self.cluster.ca_file {
            readable(cluster::CA_FILE.key, path);
        }
        if let Some(tls) = &self.tls {
            readable(tls::CERT_FILE.key, &tls.cert_file);
            readable(tls::KEY_FILE.key, &tls.key_file);
        }
        for (name, connector) in &self.issuer.connectors {
            if let Some(path) = &connector.ca_file {
                readable(&connector::CA_FILE.key_in(&connector::table(name)), path);
            }
        }
        for (name, workload) in &self.issuer.workloads {
            if let Some(path) = &workload.ca_file {
                readable(&workload::CA_FILE.key_in(&workload::table(name)), path);
            }
        }
        if !self.generates_signing_key() {
            for path in &self.issuer.signing_key_files {
                readable(issuer::SIGNING_KEY_FILES.key, path);
            }
        }
        if self.audit.signing_key_files != self.issuer.signing_key_files {
            for path in &self.audit.signing_key_files {
                check(&mut faults, audit::SIGNING_KEY_FILES.key, path);
            }
        }
        if let Some(path) = &self.audit.known_keys_file {
            check(&mut faults, audit::KNOWN_KEYS_FILE.key, path);
        }
        ConfigErrors::into_result(faults)
    }

    /// Whether the broker generates the issuer's signing key itself.
    pub fn generates_signing_key(&self) -> bool {
        self.issuer.signing_key_files == [issuer::generated_key_file(&self.state_dir)]
    }
}

fn check(faults: &mut Vec<String>, key: &str, path: &Path) {
    if let Err(error) = std::fs::File::open(path) {
        faults.push(format!("{key}: cannot read {}: {error}", path.display()));
    }
}
