//! Reading of the broker's credential. All its files are read here and not by the client, so that a
//! change of any of them is noticed, and so that the parts of one credential fit together.

use std::path::Path;

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use jiff::Timestamp;
use kube::{
    Config,
    config::{AuthInfo, Kubeconfig, KubeconfigError},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use crate::{
    base::{
        certificate::{self, CertificateError, Validity, parse_certificates},
        reload::{FileError, Files},
    },
    cluster::ConnectError,
};

/// Reads a kubeconfig and all files that its current context names. Their paths are relative to the
/// kubeconfig's folder.
pub(in crate::cluster) fn read_kubeconfig(
    path: &Path,
    files: &mut Files,
) -> Result<Config, ConnectError> {
    let unusable = |source| ConnectError::Kubeconfig { path: path.to_owned(), source };
    let folder = path.parent().unwrap_or(Path::new("."));
    let not_a_kubeconfig = || ConnectError::NotAKubeconfig { path: path.to_owned() };
    let bytes = files.read(path)?;
    let text = std::str::from_utf8(bytes.expose_secret()).map_err(|_| not_a_kubeconfig())?;
    let mut kubeconfig = Kubeconfig::from_yaml(text).map_err(|error| match error {
        // The parser's own text quotes the lines, which may hold a key.
        KubeconfigError::Parse(_) => not_a_kubeconfig(),
        error => unusable(error),
    })?;
    embed_authority(&mut kubeconfig, folder, files)?;
    let mut config = Config::try_from(kubeconfig).map_err(unusable)?;
    if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
        return Err(CertificateError::Missing.into());
    }
    embed_identity(&mut config.auth_info, folder, files)?;
    // A program with a path is relative to the folder as well; one without is looked up in `PATH`.
    if let Some(command) = config.auth_info.exec.as_mut().and_then(|exec| exec.command.as_mut())
        && command.contains('/')
    {
        *command = folder.join(&*command).display().to_string();
    }
    Ok(config)
}

/// Reads the files that the kubelet mounts into the pod. The client would read the token and the CA
/// again by itself, but only once a minute, and whatever they contain.
pub(in crate::cluster) fn read_service_account(files: &mut Files) -> Result<Config, ConnectError> {
    let mut config = Config::incluster().map_err(ConnectError::NotInCluster)?;
    if let Some(path) = config.root_cert_file.take() {
        let pem = files.read(&path)?;
        let certificates = parse_certificates(pem.expose_secret())?;
        config.root_cert = Some(certificates.into_iter().map(|der| der.to_vec()).collect());
    }
    embed_identity(&mut config.auth_info, Path::new("/"), files)?;
    Ok(config)
}

/// Reads the CA file that the current context names, and replaces its path with the content. An
/// unknown context is reported by the client.
fn embed_authority(
    kubeconfig: &mut Kubeconfig,
    folder: &Path,
    files: &mut Files,
) -> Result<(), ConnectError> {
    let current = kubeconfig.current_context.as_deref();
    let context = kubeconfig.contexts.iter().find(|context| Some(&*context.name) == current);
    let Some(name) = context.and_then(|named| Some(&named.context.as_ref()?.cluster)) else {
        return Ok(());
    };
    let named = kubeconfig.clusters.iter_mut().find(|cluster| cluster.name == *name);
    let Some(cluster) = named.and_then(|named| named.cluster.as_mut()) else { return Ok(()) };
    let path = cluster.certificate_authority.take();
    if let Some(path) = path.filter(|_| cluster.certificate_authority_data.is_none()) {
        let pem = files.read(&folder.join(path))?;
        parse_certificates(pem.expose_secret())?;
        cluster.certificate_authority_data = Some(STANDARD.encode(pem.expose_secret()));
    }
    Ok(())
}

/// Reads the files with the client's certificate, its key and its token, and replaces their paths
/// with the contents.
fn embed_identity(
    identity: &mut AuthInfo,
    folder: &Path,
    files: &mut Files,
) -> Result<(), FileError> {
    let mut read = |path: String| {
        let pem = files.read(&folder.join(path))?;
        Ok::<_, FileError>(STANDARD.encode(pem.expose_secret()))
    };
    let certificate = identity.client_certificate.take();
    if let Some(path) = certificate.filter(|_| identity.client_certificate_data.is_none()) {
        identity.client_certificate_data = Some(read(path)?);
    }
    let key = identity.client_key.take();
    if let Some(path) = key.filter(|_| identity.client_key_data.is_none()) {
        identity.client_key_data = Some(read(path)?.into());
    }
    let token = identity.token_file.take();
    if let Some(path) = token.filter(|_| identity.token.is_none()) {
        identity.token = Some(files.read_text(&folder.join(path))?);
    }
    Ok(())
}

/// The validity of the client's certificate, or else of its token. `None` if it has neither, or the
/// token is no JWT.
pub(in crate::cluster) fn validity(
    identity: &AuthInfo,
) -> Result<Option<Validity>, CertificateError> {
    let certificate = identity.client_certificate_data.as_ref();
    match certificate.and_then(|data| STANDARD.decode(data).ok()) {
        Some(pem) => certificate::validity(&parse_certificates(&pem)?).map(Some),
        None => Ok(identity.token.as_ref().and_then(token_validity)),
    }
}

/// Times in a JWT (RFC 7519, section 4.1), which is not verified. Both are optional.
#[derive(Deserialize)]
struct Claims {
    iat: Option<i64>,
    exp: Option<i64>,
}

fn claims(token: &SecretString) -> Option<Claims> {
    let payload = token.expose_secret().split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
}

/// The validity of a JWT that has both times.
fn token_validity(token: &SecretString) -> Option<Validity> {
    let Claims { iat, exp } = claims(token)?;
    let (from, until) = (Timestamp::from_second(iat?), Timestamp::from_second(exp?));
    Some(Validity { from: from.ok()?, until: until.ok()? })
}

/// When the token of an identity ends, if it is a JWT that says so.
pub(in crate::cluster) fn token_end(identity: &AuthInfo) -> Option<Timestamp> {
    let exp = identity.token.as_ref().and_then(claims)?.exp?;
    Timestamp::from_second(exp).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_validity_of_a_token_is_in_its_claims() {
        let jwt = |claims: &serde_json::Value| {
            let payload = URL_SAFE_NO_PAD.encode(claims.to_string());
            let token = Some(SecretString::from(format!("e30.{payload}.x")));
            validity(&AuthInfo { token, ..AuthInfo::default() }).unwrap()
        };
        let found = jwt(&json!({"iat": 1000, "exp": 4600, "aud": ["a"]})).unwrap();
        assert_eq!((found.from.as_second(), found.until.as_second()), (1000, 4600));
        assert_eq!(jwt(&json!({"iat": 1000})), None);
        assert_eq!(jwt(&json!({"iat": i64::MIN, "exp": i64::MAX})), None);
        let opaque = AuthInfo { token: Some("opaque".into()), ..AuthInfo::default() };
        assert_eq!(validity(&opaque).unwrap(), None);
    }

    #[test]
    fn a_program_is_found_beside_the_kubeconfig_or_in_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let command = |command: &str| {
            let kubeconfig = json!({
                "current-context": "c", "contexts": [{"name": "c", "context": {
                    "cluster": "c", "user": "u",
                }}],
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {"exec": {"command": command}}}],
            });
            std::fs::write(&path, kubeconfig.to_string()).unwrap();
            let config = read_kubeconfig(&path, &mut Files::default()).unwrap();
            config.auth_info.exec.unwrap().command.unwrap()
        };
        assert_eq!(command("aws"), "aws");
        assert_eq!(command("/usr/bin/aws"), "/usr/bin/aws");
        let beside = folder.path().join("bin/aws").display().to_string();
        assert_eq!(command("bin/aws"), beside);
    }
}
