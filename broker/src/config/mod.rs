//! The configuration, from a TOML file, the environment and the command line; the later wins. All
//! faults are reported together, each with its key and origin.
//!
//! The environment variable of a key is `TENANT_BROKER_` and the key in capitals with `__` for each
//! dot: `database.url` is `TENANT_BROKER_DATABASE__URL`. There a list is separated by commas.
//! Variables that a kubelet sets for Services of the broker's name are ignored (see
//! [`service_variables`]).
//!
//! Each setting is declared once, as a constant in the file of its section (see [`declaration`]).
//! The code is our own, because figment and schemars do not report all faults at once with their
//! origins.

mod audit;
mod cluster;
mod connector;
mod database;
mod declaration;
mod file_checks;
mod frontends;
mod gateway;
mod general;
mod issuer;
mod limits;
mod log;
mod model_services;
mod parse;
mod quota;
mod reference;
mod service_variables;
mod settings;
mod tenants;
mod tier;
mod tier_setting;
mod tls;
mod workload;

use std::{net::SocketAddr, path::PathBuf};

use url::Url;

pub use reference::reference;
pub use settings::{ConfigErrors, Settings};

use crate::{
    audit::AuditSettings,
    base::{db::Location, rate_limit, telemetry::LogFormat, throttle::WindowQuota},
    cluster::ClusterSettings,
    http::TrustedProxies,
    identity::{BrowserSessions, RbacUserRules},
    install::{ModelServicesParameters, Parameters},
    issuer::IssuerSettings,
    model_services::ModelServicesSettings,
    server::TlsFiles,
    tenant::TenantSettings,
    tier::Tiers,
};

/// The validated configuration of the broker.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address of API, issuer, pages and gateway.
    pub listen: SocketAddr,
    /// Address of health and metrics.
    pub operator_listen: SocketAddr,
    /// The URL of the broker for people and in the issuer's tokens; without path and trailing
    /// slash.
    pub public_url: Url,
    /// Folder of files that must survive a restart.
    pub state_dir: PathBuf,
    /// The database: PostgreSQL or an SQLite file.
    pub database: Location,
    /// The file that the database's URL was read from, if it is in one.
    pub database_url_file: Option<PathBuf>,
    /// Certificate and key, if the broker serves TLS.
    pub tls: Option<TlsFiles>,
    /// The log filter: a level, or directives per target.
    pub log_level: String,
    /// The format of log lines.
    pub log_format: LogFormat,
    /// The Kubernetes cluster.
    pub cluster: ClusterSettings,
    /// Tenants of several people with several namespaces.
    pub tenants: TenantSettings,
    /// How people are named in Tenants.
    pub rbac_user_rules: RbacUserRules,
    /// The tiers of workspaces by name.
    pub tiers: Tiers,
    /// Rate limit of `init` per user.
    pub init_limit: WindowQuota,
    /// Rate limits of requests without a known session.
    pub unauthenticated: rate_limit::RateLimitSettings,
    /// Time that requests in flight have to finish when the broker stops, in seconds.
    pub drain_seconds: u32,
    /// Interval of the sweep, which finishes interrupted work, in seconds.
    pub sweep_seconds: u32,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: TrustedProxies,
    /// Interval of drift detection, in seconds.
    pub drift_seconds: u32,
    /// Whether the gateway synthesizes responses to `get namespaces` and self-reviews.
    pub gateway_synthesizes_responses: bool,
    /// The embedded OpenID provider.
    pub issuer: IssuerSettings,
    /// Keys and retention of the audit trail.
    pub audit: AuditSettings,
    /// Frontends, and the sessions of browsers.
    pub browser: BrowserSessions,
    /// Namespaces, models and Llama Stack distributions, with the caller's own rights.
    pub model_services: ModelServicesSettings,
}

impl Config {
    /// Parameters of the objects that `install` makes in the cluster.
    pub fn install_parameters(&self) -> Parameters {
        let model_services = ModelServicesParameters {
            enabled: self.model_services.enabled,
            reads_cluster_domain: self.model_services.reads_cluster_domain(),
        };
        let parameters =
            Parameters::new(&self.cluster, &self.tiers, &self.tenants, &self.public_url);
        Parameters { model_services, ..parameters }
    }

    /// Validates the settings.
    ///
    /// # Errors
    /// All faults together.
    pub fn from_settings(mut settings: Settings) -> Result<Self, ConfigErrors> {
        let config = Self::read(&mut settings);
        settings.finish().map(|()| config)
    }

    /// Reads `operator_listen` alone, so that the other settings and the files that they name need
    /// not be valid.
    ///
    /// # Errors
    /// The setting has a fault.
    pub fn operator_listen(mut settings: Settings) -> Result<SocketAddr, ConfigErrors> {
        let address = general::OPERATOR_LISTEN.read(&mut settings);
        settings.faults_so_far().map(|()| address)
    }

    /// Reads all settings. The value of a setting with a fault has no meaning.
    fn read(s: &mut Settings) -> Self {
        let listen = general::LISTEN.read(s);
        let operator_listen = general::OPERATOR_LISTEN.read(s);
        if listen == operator_listen {
            general::OPERATOR_LISTEN.fault(s, "the same address as listen: use another one");
        }
        let public_url = general::PUBLIC_URL.read(s);
        let state_dir = general::STATE_DIR.read(s);
        let (database, database_url_file) = database::read(s, &state_dir);
        let mut issuer = issuer::read(s, &state_dir, &database, public_url.clone());
        let tenants = tenants::read(s);
        for connector in issuer.connectors.values_mut() {
            connector.keep_groups = tenants.enabled;
        }
        let rbac_user_rules = tenants::rbac_user_rules(s, &tenants.everybody, &issuer.connectors);
        Self {
            browser: frontends::browser(s, &public_url),
            model_services: model_services::read(s, [listen, operator_listen]),
            audit: audit::read(s, &issuer),
            issuer,
            listen,
            operator_listen,
            public_url,
            state_dir,
            database,
            database_url_file,
            tls: tls::read(s),
            log_level: log::LEVEL.read(s),
            log_format: log::FORMAT.read(s),
            cluster: cluster::read(s),
            tenants,
            rbac_user_rules,
            tiers: tier::tiers(s),
            init_limit: limits::INIT_PER_HOUR.read(s),
            unauthenticated: limits::unauthenticated(s),
            drain_seconds: general::DRAIN_SECONDS.read(s),
            sweep_seconds: general::SWEEP_SECONDS.read(s),
            trusted_proxies: general::TRUSTED_PROXIES.read(s),
            drift_seconds: general::DRIFT_SECONDS.read(s),
            gateway_synthesizes_responses: gateway::OWN_ANSWERS.read(s),
        }
    }

    /// `public_url` without a trailing slash, for people.
    pub fn display_url(&self) -> String {
        self.public_url.as_str().trim_end_matches('/').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issuer::connector::ClientSecret;

    fn config(toml: &str, environment: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
        let environment = environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        Config::from_settings(Settings::load(Some(("test.toml", toml)), environment, &[])?)
    }

    #[test]
    fn an_empty_file_is_a_valid_configuration() {
        let config = config("", &[]).unwrap();
        assert_eq!(config.listen.port(), 8080);
        assert_eq!(config.tiers.names(), ["basic", "premium", "standard"]);
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let config = config("listen = '127.0.0.1:1'", &[("TENANT_BROKER_LISTEN", "127.0.0.1:2")]);
        assert_eq!(config.unwrap().listen.port(), 2);
    }

    #[test]
    fn variables_of_services_are_ignored_and_misspelt_settings_are_not() {
        let of_services = [
            ("TENANT_BROKER_SERVICE_HOST", "10.0.0.7"),
            ("TENANT_BROKER_SERVICE_PORT", "443"),
            ("TENANT_BROKER_SERVICE_PORT_HTTPS", "443"),
            ("TENANT_BROKER_PORT", "tcp://10.0.0.7:443"),
            ("TENANT_BROKER_PORT_443_TCP", "tcp://10.0.0.7:443"),
            ("TENANT_BROKER_PORT_443_TCP_PROTO", "tcp"),
            ("TENANT_BROKER_PORT_443_TCP_PORT", "443"),
            ("TENANT_BROKER_PORT_443_TCP_ADDR", "10.0.0.7"),
            ("TENANT_BROKER_OPERATOR_SERVICE_HOST", "fd00::7"),
            ("TENANT_BROKER_OPERATOR_PORT", "tcp://[fd00::7]:8081"),
        ];
        config("", &of_services).unwrap();
        for (name, value) in [
            ("TENANT_BROKER_PORT", "8443"),
            ("TENANT_BROKER_OPERATOR_PORT", "8081"),
            ("TENANT_BROKER_LISTN", "127.0.0.1:1"),
            ("TENANT_BROKER_DATABASE__PORT", "tcp://10.0.0.7:443"),
        ] {
            let faults = config("", &[(name, value)]).unwrap_err().to_string();
            assert!(faults.contains(name), "{faults}");
        }
    }

    #[test]
    fn all_faults_are_reported_with_their_keys() {
        let faults = config(
            "listn = 'x'\nlisten = 'nowhere'\npublic_url = 'http://example.com'\n\
             [tiers.basic]\ncpu = 'four'\n[limits]\ninit_per_hour = 0\n[tls]\ncert_file = 'c'",
            &[("TENANT_BROKER_LOG__FORMAT", "xml")],
        )
        .unwrap_err()
        .to_string();
        for key in [
            "listn",
            "listen",
            "public_url",
            "tiers.basic.cpu",
            "limits.init_per_hour",
            "tls.key_file",
            "log.format",
            "TENANT_BROKER_LOG__FORMAT",
        ] {
            assert!(faults.contains(key), "{key} is missing in:\n{faults}");
        }
    }

    #[test]
    fn a_password_in_a_wrong_database_url_is_not_repeated() {
        let faults = config("[database]\nurl = 'postgres://u:hunter2@[bad/db'", &[]).unwrap_err();
        assert!(!faults.to_string().contains("hunter2"), "{faults}");
    }

    #[test]
    fn the_debug_output_has_no_password() {
        let config = config(
            "[database]\nurl = 'postgres://u:hunter2@db.example.com/tenants'\n\
             [issuer]\nsigning_key_files = ['k']\n\
             [connectors.c]\nissuer = 'https://sso.example.com'\nclient_id = 'b'\n\
             client_secret = 'hunter2'",
            &[],
        );
        let text = format!("{:?}", config.unwrap());
        assert!(text.contains("db.example.com") && !text.contains("hunter2"), "{text}");
    }

    #[test]
    fn groups_of_providers_are_kept_for_tenants() {
        let connector =
            "[connectors.c]\nissuer = 'https://sso.example.com'\nclient_id = 'b'\n".to_owned();
        for (more, kept) in [("", false), ("[tenants]\nenabled = true\n", true)] {
            let config = config(&(connector.clone() + more), &[]).unwrap();
            assert_eq!(config.issuer.connectors["c"].keep_groups, kept, "{more}");
        }
    }

    #[test]
    fn a_file_with_a_secret_is_kept_with_its_path_and_may_not_be_empty() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        let toml = format!(
            "[connectors.c]\nissuer = 'https://sso.example.com'\nclient_id = 'b'\n\
             client_secret_file = '{}'",
            file.display()
        );
        std::fs::write(&file, "hunter2\n").unwrap();
        let settings = config(&toml, &[]).unwrap().issuer.connectors;
        let secret = settings["c"].client_secret.as_ref();
        assert!(matches!(secret, Some(ClientSecret::File(path)) if *path == file));
        std::fs::write(&file, " \n").unwrap();
        let faults = config(&toml, &[]).unwrap_err().to_string();
        assert!(faults.contains("connectors.c.client_secret_file"), "{faults}");
        assert!(faults.contains("is empty"), "{faults}");
    }

    #[test]
    fn an_unknown_log_level_is_a_fault() {
        let faults = config("[log]\nlevel = 'loud'", &[]).unwrap_err();
        assert!(faults.to_string().contains("log.level"), "{faults}");
        assert!(config("[log]\nlevel = 'warn,tenant_broker=debug'", &[]).is_ok());
    }

    #[test]
    fn all_missing_files_are_reported_together() {
        let config = config(
            "[cluster]\nkubeconfig = '/nowhere/k'\n[tls]\ncert_file = '/nowhere/c'\n\
             key_file = '/nowhere/t'\n[issuer]\nsigning_key_files = ['/nowhere/s']",
            &[],
        );
        let faults = config.unwrap().check_files().unwrap_err().to_string();
        for key in ["cluster.kubeconfig", "tls.cert_file", "tls.key_file", "issuer.signing_key"] {
            assert!(faults.contains(key), "{key} is missing in:\n{faults}");
        }
    }

    #[test]
    fn operator_listen_is_read_without_the_other_settings() {
        let operator_listen = |toml| {
            let settings = Settings::load(Some(("test.toml", toml)), std::iter::empty(), &[])?;
            Config::operator_listen(settings)
        };
        let address = operator_listen("operator_listen = '0.0.0.0:9'\nlisten = 'nowhere'");
        assert_eq!(address.unwrap().to_string(), "0.0.0.0:9");
        assert_eq!(operator_listen("").unwrap().to_string(), "127.0.0.1:8081");
        let faults = operator_listen("operator_listen = 'nowhere'").unwrap_err().to_string();
        assert!(faults.contains("operator_listen (test.toml)"), "{faults}");
    }

    #[test]
    fn replicas_must_share_their_signing_key() {
        let faults = config("[database]\nurl = 'postgres://u@127.0.0.1/db'", &[]).unwrap_err();
        assert!(faults.to_string().contains("issuer.signing_key_files"), "{faults}");
    }
}
