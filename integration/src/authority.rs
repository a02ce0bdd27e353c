//! The certificate authority of one control plane.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::scratch::write_private;

/// A certificate with its private key, both PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate (X.509, P-256).
    pub certificate: String,
    /// The private key (PKCS #8).
    pub key: String,
}

/// A certificate authority that the API server, its clients and the fault proxy trust. Its
/// certificates do not expire within the life of any test.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl Authority {
    /// Opens the authority kept in this folder (`ca.crt`, `ca.key`) and creates it if it is
    /// missing.
    ///
    /// # Errors
    /// The files cannot be read or written, or are no key and certificate.
    pub fn open(folder: &Path) -> Result<Self> {
        let (certificate_file, key_file) = (folder.join("ca.crt"), folder.join("ca.key"));
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "kubectl-tenant development CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        if key_file.exists() {
            let key = std::fs::read_to_string(&key_file).context("read the CA's key")?;
            let key = KeyPair::from_pem(&key).context("read the CA's key")?;
            let certificate =
                std::fs::read_to_string(&certificate_file).context("read the CA's certificate")?;
            return Ok(Self { certificate, issuer: Issuer::new(params, key) });
        }
        let key = KeyPair::generate().context("generate the CA's key")?;
        let certificate = params.self_signed(&key).context("sign the CA's certificate")?.pem();
        write_private(&certificate_file, &certificate)?;
        write_private(&key_file, key.serialize_pem())?;
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// Returns the authority's certificate as PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues a certificate for a server at 127.0.0.1 and localhost.
    ///
    /// # Errors
    /// Key generation or signing failed.
    pub fn server(&self, common_name: &str) -> Result<Identity> {
        self.server_at(common_name, vec!["localhost".to_owned(), "127.0.0.1".to_owned()])
    }

    /// Issues a certificate for a server at these DNS names and IP addresses.
    ///
    /// # Errors
    /// Key generation or signing failed.
    pub fn server_at(&self, common_name: &str, names: Vec<String>) -> Result<Identity> {
        let params = CertificateParams::new(names).context("name a server certificate")?;
        self.issue(params, common_name, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// Issues a client certificate: Kubernetes takes the common name as the user and the
    /// organization as the group (Kubernetes documentation, "X509 client certificates").
    ///
    /// # Errors
    /// Key generation or signing failed.
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<Identity> {
        let mut params = CertificateParams::default();
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        self.issue(params, user, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(
        &self,
        mut params: CertificateParams,
        common_name: &str,
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<Identity> {
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().context("generate a key")?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .with_context(|| format!("sign the certificate of {common_name}"))?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// Generates a P-256 key pair that signs tokens (ES256): the private key in PKCS #8, then the
/// public key, because kube-apiserver does not read the public half out of a PKCS #8 file.
///
/// # Errors
/// Key generation failed.
pub fn signing_key() -> Result<(String, String)> {
    let key = KeyPair::generate().context("generate a signing key")?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}
