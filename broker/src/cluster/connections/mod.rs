//! The connections to the API server, which are replaced together with the broker's credential.
//!
//! A connection keeps the client certificate that it was opened with. The API server checks the
//! certificate again for each request, and refuses the request once the certificate has ended, but
//! does not close the connection. So a new credential needs new connections. The old ones end with
//! the requests that use them.

mod credential_files;
mod exec_program;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::HeaderValue;
use jiff::Timestamp;
use kube::{Client, Config, config::AuthInfo};
use secrecy::ExposeSecret as _;
use tokio::runtime::Handle;

pub use self::exec_program::ExecError;
use super::{
    CONNECT_TIMEOUT, ClusterSettings, ConnectError, Endpoint, READ_TIMEOUT, Upstream,
    WATCH_READ_TIMEOUT, broker_reads::BrokerReader, pem, reviews::self_review,
};
use crate::base::{
    certificate::{Validity, parse_certificates},
    reload::{FileSource, Files, Loaded},
};

/// Timeout of the check of a new credential.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Names of the files of the credential in log and metrics.
pub const CREDENTIAL_FILES: [&str; 2] = ["cluster.kubeconfig", "serviceaccount"];
/// The group that RBAC does not restrict.
const SYSTEM_MASTERS: &str = "system:masters";

/// The connections with one credential.
pub(super) struct Connections {
    /// Sends the broker's own requests.
    pub(super) client: Client,
    /// Sends the broker's own watches, which may be silent for long.
    pub(super) watch_client: Client,
    /// Sends requests that bring their own token.
    pub(super) upstream: Arc<Upstream>,
    /// Sends the broker's own reads on behalf of members of tenants.
    pub(super) broker_reader: Arc<BrokerReader>,
    /// The endpoint that kubeconfigs name.
    pub(super) endpoint: Arc<Endpoint>,
    /// The end of a credential that a program has printed.
    ends_at: Option<Timestamp>,
}

/// The files of the credential: a kubeconfig and the files that it names, or those of the pod's
/// ServiceAccount.
pub(super) struct CredentialFiles {
    settings: ClusterSettings,
    /// The API server of the first load.
    server: OnceLock<http::Uri>,
}

impl CredentialFiles {
    pub(super) fn new(settings: ClusterSettings) -> Self {
        Self { settings, server: OnceLock::new() }
    }

    /// The name of the files: one of [`CREDENTIAL_FILES`].
    pub(super) fn name(&self) -> &'static str {
        let [kubeconfig, service_account] = CREDENTIAL_FILES;
        if self.settings.kubeconfig.is_some() { kubeconfig } else { service_account }
    }
}

impl FileSource for CredentialFiles {
    type Value = Connections;
    type Error = ConnectError;

    const ADVICE: &'static str = "make a credential with tenant-broker install --apply --credential \
                                  FILE (cluster.kubeconfig); it is read again by itself";

    fn load(&self, files: &mut Files) -> Result<Loaded<Connections>, ConnectError> {
        let mut config = match &self.settings.kubeconfig {
            Some(path) => credential_files::read_kubeconfig(path, files)?,
            None => credential_files::read_service_account(files)?,
        };
        if *self.server.get_or_init(|| config.cluster_url.clone()) != config.cluster_url {
            return Err(ConnectError::OtherServer(config.cluster_url.to_string()));
        }
        if config.proxy_url.is_some() {
            return Err(ConnectError::Proxy);
        }
        let (validity, ends_at) = complete(&mut config.auth_info)?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = Some(READ_TIMEOUT);
        config.write_timeout = Some(READ_TIMEOUT);
        // A caller waits for the result, so it is told to retry instead.
        config.default_retry = false;
        let endpoint = endpoint(&self.settings, &config, files)?;
        let upstream = Upstream::new(&config)?;
        let broker_reader = Arc::new(BrokerReader::new(&config)?);
        let mut watch_config = config.clone();
        watch_config.read_timeout = Some(WATCH_READ_TIMEOUT);
        let watch_client = Client::try_from(watch_config).map_err(ConnectError::Client)?;
        let client = Client::try_from(config).map_err(ConnectError::Client)?;
        let (upstream, endpoint) = (Arc::new(upstream), Arc::new(endpoint));
        let value =
            Connections { client, watch_client, upstream, broker_reader, endpoint, ends_at };
        Ok(Loaded { value, validity })
    }

    /// A credential that replaces another one must be that of the broker, as at the start.
    fn check(&self, new: &Connections) -> Result<(), ConnectError> {
        let asking = self_review::user_of(new.client.clone());
        let answer =
            Handle::current().block_on(async { tokio::time::timeout(CHECK_TIMEOUT, asking).await });
        let user =
            answer.map_err(|_| ConnectError::NoAnswer)?.map_err(ConnectError::NotAccepted)?;
        if self.settings.allow_missing_policies {
            return Ok(());
        }
        let wanted = self.settings.identity.to_string();
        if user.user != wanted {
            return Err(ConnectError::OtherUser { found: user.user, wanted });
        }
        if user.groups.iter().any(|group| group == SYSTEM_MASTERS) {
            return Err(ConnectError::Unrestricted(SYSTEM_MASTERS));
        }
        Ok(())
    }

    /// A program is run again before its credential ends, so the credential after it is checked
    /// like one in changed files.
    fn ends_at(&self, connections: &Connections) -> Option<Timestamp> {
        connections.ends_at
    }
}

/// Runs the program of an identity, if it has one. Returns the validity of a credential from files,
/// and the end of one that a program has printed. It blocks.
fn complete(
    identity: &mut AuthInfo,
) -> Result<(Option<Validity>, Option<Timestamp>), ConnectError> {
    if identity.auth_provider.is_some() {
        return Err(ConnectError::AuthProvider);
    }
    // As in client-go, a token or a password takes precedence.
    let has_other = identity.token.is_some() || identity.password.is_some();
    let program = identity.exec.take().filter(|_| !has_other);
    let printed_end = match &program {
        Some(exec) => exec_program::add_credential(identity, exec)?,
        None => None,
    };
    // The client panics for a token that is no header.
    let token = identity.token.as_ref().map(|token| HeaderValue::from_str(token.expose_secret()));
    if token.is_some_and(|header| header.is_err()) {
        return Err(ConnectError::Token);
    }
    let validity = credential_files::validity(identity)?;
    let token_end = credential_files::token_end(identity);
    Ok(match program {
        Some(_) => {
            let ends = [printed_end, validity.map(|it| it.until), token_end];
            (None, ends.into_iter().flatten().min())
        }
        None => (validity, None),
    })
}

/// The endpoint for people's kubeconfigs.
fn endpoint(
    settings: &ClusterSettings,
    config: &Config,
    files: &mut Files,
) -> Result<Endpoint, ConnectError> {
    let authority = match (&settings.ca_file, &config.root_cert) {
        (Some(path), _) => {
            let pem = files.read(path).map_err(ConnectError::CaFile)?;
            parse_certificates(pem.expose_secret()).map_err(ConnectError::CaCertificate)?;
            Some(STANDARD.encode(pem.expose_secret()))
        }
        (None, Some(certificates)) => {
            Some(STANDARD.encode(certificates.iter().map(|der| pem(der)).collect::<String>()))
        }
        (None, None) => None,
    };
    let server = settings
        .server
        .as_ref()
        .map_or_else(|| config.cluster_url.to_string(), ToString::to_string);
    Ok(Endpoint {
        server: server.trim_end_matches('/').to_owned(),
        certificate_authority_data: authority,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use integration::authority::{Authority, Identity};
    use serde_json::{Value, json};

    use super::*;
    use crate::config::{Config as BrokerConfig, Settings};

    fn source(kubeconfig: &Path) -> CredentialFiles {
        let arguments = [format!("cluster.kubeconfig={}", kubeconfig.display())];
        let settings = Settings::load(None, std::iter::empty(), &arguments).unwrap();
        CredentialFiles::new(BrokerConfig::from_settings(settings).unwrap().cluster)
    }

    /// A kubeconfig whose files are beside it.
    fn kubeconfig(user: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {
                "server": "https://127.0.0.1:1/", "certificate-authority": "ca.crt",
            }}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        })
    }

    fn write(folder: &Path, name: &str, text: &str) {
        std::fs::write(folder.join(name), text).unwrap();
    }

    /// A folder with a kubeconfig, the CA, and the certificate and key of a client.
    fn credential() -> (tempfile::TempDir, Authority, Identity) {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::open(folder.path()).unwrap();
        let identity = authority.client("tenant-broker", None).unwrap();
        let user = json!({"client-certificate": "client.crt", "client-key": "client.key"});
        write(folder.path(), "kubeconfig", &kubeconfig(&user).to_string());
        write(folder.path(), "client.crt", &identity.certificate);
        write(folder.path(), "client.key", &identity.key);
        (folder, authority, identity)
    }

    /// The error of a load, with its causes.
    fn error(source: &CredentialFiles) -> String {
        match source.load(&mut Files::default()) {
            Ok(_) => panic!("the credential can be used"),
            Err(error) => crate::base::error_chain(&error),
        }
    }

    #[tokio::test]
    async fn the_files_that_a_kubeconfig_names_are_read() {
        let (folder, authority, _) = credential();
        let source = source(&folder.path().join("kubeconfig"));
        assert_eq!(source.name(), "cluster.kubeconfig");
        let mut files = Files::default();
        let loaded = source.load(&mut files).unwrap();
        assert!(loaded.validity.is_some());
        let endpoint = loaded.value.endpoint;
        assert_eq!(endpoint.server, "https://127.0.0.1:1");
        let ca = STANDARD.decode(endpoint.certificate_authority_data.as_ref().unwrap()).unwrap();
        let lines = |pem: &str| pem.lines().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            lines(std::str::from_utf8(&ca).unwrap()),
            lines(authority.certificate()),
            "the CA of the kubeconfig"
        );
        // Each of them is watched.
        for name in ["kubeconfig", "ca.crt", "client.crt", "client.key"] {
            let mut again = Files::default();
            source.load(&mut again).unwrap();
            assert!(again == files, "nothing changed");
            let path = folder.path().join(name);
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, format!("{text}\n")).unwrap();
            let mut changed = Files::default();
            source.load(&mut changed).unwrap();
            assert!(changed != files, "{name} is not watched");
            files = changed;
        }
    }

    #[tokio::test]
    async fn a_certificate_without_its_key_is_refused() {
        let (folder, authority, identity) = credential();
        let source = source(&folder.path().join("kubeconfig"));
        let other = authority.client("tenant-broker", None).unwrap();
        write(folder.path(), "client.key", &other.key);
        assert!(error(&source).contains("KeyMismatch"), "{}", error(&source));
        write(folder.path(), "client.key", &identity.key[..identity.key.len() / 2]);
        assert!(error(&source).contains("identity PEM"), "{}", error(&source));
        write(folder.path(), "client.key", "");
        assert!(error(&source).contains("client.key is empty"), "{}", error(&source));
        let user = json!({"client-certificate": "client.crt"});
        write(folder.path(), "kubeconfig", &kubeconfig(&user).to_string());
        assert!(error(&source).contains("failed to load client key"), "{}", error(&source));
    }

    #[tokio::test]
    async fn no_error_has_a_secret_of_the_kubeconfig() {
        let (folder, ..) = credential();
        let source = source(&folder.path().join("kubeconfig"));
        let provider = json!({"cmd-path": "echo", "cmd-args": "hunter2"});
        let mut with_proxy = kubeconfig(&json!({"token": "t"}));
        with_proxy["clusters"][0]["cluster"]["proxy-url"] = "http://u:hunter2@proxy:3128".into();
        for (kubeconfig, reason) in [
            (kubeconfig(&json!({"token": "hunter2\nhunter2"})), "no header may have"),
            (
                kubeconfig(&json!({"auth-provider": {"name": "gcp", "config": provider}})),
                "`auth-provider`, which is not supported",
            ),
            (with_proxy, "through a proxy"),
        ] {
            write(folder.path(), "kubeconfig", &kubeconfig.to_string());
            let error = error(&source);
            assert!(error.contains(reason), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_printed_credential_ends_when_the_program_says_and_other_credentials_win() {
        let (folder, ..) = credential();
        let source = Arc::new(source(&folder.path().join("kubeconfig")));
        let ends_at = async |user: &Value| {
            write(folder.path(), "kubeconfig", &kubeconfig(user).to_string());
            let source = Arc::clone(&source);
            let load = move || source.load(&mut Files::default());
            let loaded = tokio::task::spawn_blocking(load).await.unwrap().unwrap();
            assert_eq!(loaded.validity, None);
            loaded.value.ends_at
        };
        let end = "2026-01-02T03:04:05Z";
        let printed = json!({"status": {"token": "t", "expirationTimestamp": end}}).to_string();
        let exec = json!({"command": "echo", "args": [printed]});
        assert_eq!(ends_at(&json!({"exec": exec})).await, Some(end.parse().unwrap()));
        assert_eq!(ends_at(&json!({"exec": exec, "token": "given"})).await, None);
    }

    #[tokio::test]
    async fn an_unusable_kubeconfig_is_refused_and_not_repeated() {
        let (folder, authority, _) = credential();
        let path = folder.path().join("kubeconfig");
        let source = source(&path);
        let good = std::fs::read_to_string(&path).unwrap();
        let unknown = good.replace(r#""current-context":"c""#, r#""current-context":"d""#);
        for (text, reason) in [
            ("", "is empty"),
            (&good[..good.len() / 2], "is no kubeconfig"),
            ("users: [hunter2", "is no kubeconfig"),
            ("{}", "failed to determine current context"),
            (unknown.as_str(), "failed to load current context: d"),
        ] {
            write(folder.path(), "kubeconfig", text);
            let error = error(&source);
            assert!(error.contains(reason), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        write(folder.path(), "kubeconfig", &good);
        write(folder.path(), "ca.crt", &authority.certificate()[..100]);
        assert!(error(&source).contains("certificates"), "{}", error(&source));
        std::fs::remove_file(folder.path().join("ca.crt")).unwrap();
        assert!(error(&source).contains("ca.crt"), "{}", error(&source));
    }
}
