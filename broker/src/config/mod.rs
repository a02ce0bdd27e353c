//! The configuration, from a TOML file, the environment and the command line; the later wins. All
//! faults are reported together, each with its key and origin.
//!
//! The environment variable of a key is `TENANT_BROKER_` and the key in capitals with `__` for each
//! dot: `database.url` is `TENANT_BROKER_DATABASE__URL`. There a list is separated by commas.

mod connector;
mod file_checks;
mod frontends;
mod quota;
mod reference;
mod setting_list;
mod settings;
mod tier;
mod workload;

use std::{net::SocketAddr, path::PathBuf};

use url::Url;

pub use reference::reference;
pub use setting_list::SETTINGS;
pub use settings::{Faults, Settings};

use crate::{
    audit::AuditSettings,
    base::{
        db::Location,
        dns_label::is_dns_label,
        rate_limit,
        telemetry::{self, LogFormat},
        throttle::Allowance,
    },
    cluster::{ClusterSettings, KubernetesUser},
    http::{server::TlsFiles, trusted_proxies::TrustedProxies},
    identity::BrowserSessions,
    issuer::IssuerSettings,
    tier::Tiers,
};

/// The window of hourly limits, in seconds.
const HOUR_SECONDS: u32 = 3600;

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
    /// Certificate and key, if the broker serves TLS.
    pub tls: Option<TlsFiles>,
    /// The log filter: a level, or directives per target.
    pub log_level: String,
    /// The format of log lines.
    pub log_format: LogFormat,
    /// The Kubernetes cluster.
    pub cluster: ClusterSettings,
    /// The tiers of workspaces by name.
    pub tiers: Tiers,
    /// Rate limit of `init` per user.
    pub init_limit: Allowance,
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
    pub gateway_own_answers: bool,
    /// The embedded OpenID provider.
    pub issuer: IssuerSettings,
    /// Keys and retention of the audit trail.
    pub audit: AuditSettings,
    /// Frontends, and the sessions of browsers.
    pub browser: BrowserSessions,
}

impl Config {
    /// Validates the settings.
    ///
    /// # Errors
    /// All faults together.
    pub fn from_settings(mut settings: Settings) -> Result<Self, Faults> {
        let s = &mut settings;
        let state_dir: PathBuf = s.parsed("state_dir").unwrap_or_default();
        let database = database(s, &state_dir);
        let public_url = public_url(s);
        let listen = s.parsed("listen").unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
        let operator_listen =
            s.parsed("operator_listen").unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
        if listen == operator_listen {
            s.fault("operator_listen", "the same address as listen: use another one");
        }
        let tls = match (s.path("tls.cert_file"), s.path("tls.key_file")) {
            (Some(cert_file), Some(key_file)) => Some(TlsFiles { cert_file, key_file }),
            (None, None) => None,
            (Some(_), None) => {
                s.fault("tls.key_file", "missing beside tls.cert_file");
                None
            }
            (None, Some(_)) => {
                s.fault("tls.cert_file", "missing beside tls.key_file");
                None
            }
        };
        let log_level = s.text("log.level");
        if let Err(why) = telemetry::log_filter(&log_level) {
            s.fault("log.level", &why);
        }
        let cluster = cluster(s);
        let issuer = issuer(s, &state_dir, &database, public_url.clone());
        let config = Self {
            browser: frontends::browser(s, &public_url),
            audit: audit(s, &issuer),
            issuer,
            listen,
            operator_listen,
            public_url,
            state_dir,
            database,
            tls,
            log_level,
            log_format: s.parsed("log.format").unwrap_or_default(),
            cluster,
            tiers: tier::tiers(s),
            init_limit: Allowance {
                count: s.within("limits.init_per_hour", 1, 10_000),
                window_seconds: HOUR_SECONDS,
            },
            unauthenticated: rate_limit::RateLimitSettings {
                per_client: s.within("limits.unauthenticated_per_address", 1, 100_000),
                total: s.within("limits.unauthenticated", 1, 1_000_000),
                at_once: s.within("limits.unauthenticated_at_once", 2, 10_000),
            },
            drain_seconds: s.within("drain_seconds", 0, 3600),
            sweep_seconds: s.within("sweep_seconds", 1, 3600),
            trusted_proxies: s.parsed("trusted_proxies").unwrap_or_default(),
            drift_seconds: s.within("drift_seconds", 1, 86_400),
            gateway_own_answers: s.parsed("gateway.own_answers").unwrap_or(true),
        };
        settings.finish().map(|()| config)
    }

    /// `public_url` without a trailing slash, for people.
    pub fn display_url(&self) -> String {
        self.public_url.as_str().trim_end_matches('/').to_owned()
    }
}

fn database(s: &mut Settings, state_dir: &std::path::Path) -> Location {
    let default = Location::Sqlite(state_dir.join("broker.db"));
    let url = match (s.get_non_empty("database.url"), s.path("database.url_file")) {
        (Some(_), Some(_)) => {
            s.fault("database.url_file", "database.url is set as well: set one of them");
            return default;
        }
        (Some(url), None) => url,
        (None, Some(path)) => match std::fs::read_to_string(&path) {
            Ok(text) => text.trim().to_owned(),
            Err(error) => {
                s.fault("database.url_file", &format!("cannot read it: {error}"));
                return default;
            }
        },
        (None, None) => return default,
    };
    url.parse().unwrap_or_else(|why: String| {
        s.fault("database.url", &why);
        default
    })
}

fn public_url(s: &mut Settings) -> Url {
    let fallback = || Url::parse("http://127.0.0.1/").expect("a constant URL");
    let mut url: Url = s.parsed("public_url").unwrap_or_else(fallback);
    let local = is_loopback(&url);
    let why = match url.scheme() {
        "https" => None,
        "http" if local => None,
        "http" => Some("plain HTTP gives every session away: use https, or loopback"),
        _ => Some("an http or https URL"),
    };
    let extra = url.path() != "/" || url.query().is_some() || url.fragment().is_some();
    if let Some(why) = why.or(extra.then_some("without path, query or fragment")) {
        s.fault("public_url", why);
    }
    url.set_path("");
    url
}

fn cluster(s: &mut Settings) -> ClusterSettings {
    let name = s.text("cluster.name");
    if !is_dns_label(&name) {
        s.fault("cluster.name", "lower case letters, digits and dashes, 63 at most");
    }
    let audiences: Vec<String> = s
        .text("cluster.audiences")
        .split(',')
        .map(|audience| audience.trim().to_owned())
        .filter(|audience| !audience.is_empty())
        .collect();
    if audiences.is_empty() {
        s.fault("cluster.audiences", "at least one");
    }
    ClusterSettings {
        identity: s
            .parsed("cluster.identity")
            .unwrap_or_else(|| KubernetesUser::User("tenant-broker".to_owned())),
        audiences,
        allow_missing_policies: s.parsed("cluster.allow_missing_policies").unwrap_or_default(),
        bind_tokens_to_secrets: s.parsed("cluster.bind_tokens_to_secrets").unwrap_or_default(),
        name,
        kubeconfig: s.path("cluster.kubeconfig"),
        server: server(s),
        ca_file: s.path("cluster.ca_file"),
    }
}

fn server(s: &mut Settings) -> Option<Url> {
    s.get_non_empty("cluster.server")?;
    let url: Url = s.parsed("cluster.server")?;
    if url.scheme() != "https" {
        s.fault("cluster.server", "an https URL, for example https://k8s.example.com:6443");
    }
    Some(url)
}

fn issuer(
    s: &mut Settings,
    state_dir: &std::path::Path,
    database: &Location,
    public_url: Url,
) -> IssuerSettings {
    let mut signing_key_files: Vec<PathBuf> =
        s.get_non_empty("issuer.signing_key_files").map(|list| files(&list)).unwrap_or_default();
    if signing_key_files.is_empty() {
        if matches!(database, Location::Postgres(_)) {
            s.fault(
                "issuer.signing_key_files",
                "replicas on PostgreSQL share their signing key: make one with \
                 `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out issuer-key.pem` \
                 and name it",
            );
        }
        signing_key_files.push(state_dir.join("issuer-key.pem"));
    }
    let connectors = connector::connectors(s);
    let local_accounts = s.parsed("issuer.local_accounts").unwrap_or(true);
    if !local_accounts && connectors.is_empty() {
        s.fault("issuer.local_accounts", "nobody could sign in: configure a connector first");
    }
    let five_minutes = |count| Allowance { count, window_seconds: 300 };
    let an_hour = |count| Allowance { count, window_seconds: HOUR_SECONDS };
    IssuerSettings {
        public_url,
        signing_key_files,
        access_token_seconds: s.within("issuer.access_token_seconds", 60, 3600),
        id_token_seconds: 300,
        session_idle_seconds: s.within("issuer.session_idle_seconds", 300, 31_536_000),
        session_max_seconds: s.within("issuer.session_max_seconds", 300, 31_536_000),
        refresh_grace_seconds: s.within("issuer.refresh_grace_seconds", 0, 300),
        authorization_seconds: 600,
        sign_in_account: five_minutes(s.within("limits.sign_in_failures_per_account", 1, 10_000)),
        sign_in_address: five_minutes(s.within("limits.sign_in_failures_per_address", 1, 100_000)),
        sign_in_everywhere: an_hour(s.within("limits.sign_in_failures_everywhere", 1, 100_000)),
        sign_in_start: five_minutes(s.within("limits.sign_ins_begun_per_address", 1, 100_000)),
        device_start: five_minutes(s.within("limits.device_codes_per_address", 1, 100_000)),
        user_code: five_minutes(s.within("limits.user_code_failures_per_address", 1, 100_000)),
        register: an_hour(s.within("limits.registrations_per_address", 1, 100_000)),
        registration: s.parsed("issuer.registration").unwrap_or_default(),
        exchange: five_minutes(s.within("limits.exchanges_per_address", 1, 1_000_000)),
        local_accounts,
        connectors,
        workloads: workload::workloads(s),
    }
}

fn audit(s: &mut Settings, issuer: &IssuerSettings) -> AuditSettings {
    let own = s.get_non_empty("audit.signing_key_files").map(|list| files(&list));
    AuditSettings {
        signing_key_files: own.unwrap_or_else(|| issuer.signing_key_files.clone()),
        known_keys_file: s.path("audit.known_keys_file"),
        retention_days: s.within("audit.retention_days", 0, 36_500),
    }
}

fn files(list: &str) -> Vec<PathBuf> {
    list.split(',').map(|path| PathBuf::from(path.trim())).collect()
}

fn is_loopback(url: &Url) -> bool {
    matches!(url.host_str(), Some("127.0.0.1" | "[::1]" | "localhost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(toml: &str, environment: &[(&str, &str)]) -> Result<Config, Faults> {
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
    fn replicas_must_share_their_signing_key() {
        let faults = config("[database]\nurl = 'postgres://u@127.0.0.1/db'", &[]).unwrap_err();
        assert!(faults.to_string().contains("issuer.signing_key_files"), "{faults}");
    }
}
