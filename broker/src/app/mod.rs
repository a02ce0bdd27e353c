//! The composition root: the only file that names every module.

mod background;
mod operator;

use std::{
    collections::HashMap,
    os::unix::fs::DirBuilderExt as _,
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use poem::{
    EndpointExt as _, IntoResponse as _, Response, Server, endpoint::BoxEndpoint, http::Method,
    listener::TcpAcceptor, middleware::CatchPanic,
};
use poem_openapi::{
    OpenApi, OpenApiService,
    registry::{MetaApi, Registry},
};
use tokio::net::TcpListener;

use self::{
    background::{Background, Dependencies},
    operator::Health,
};
use crate::{
    account::{self, AccountPages},
    audit::{api::AuditApi, chain::Sealer},
    base::{
        clock::Clock,
        db::{ConnectionShares, Db, Location},
        rate_limit::RateLimiter,
        signing::{PrivateKey, PublicKeys},
        telemetry::Metrics,
    },
    cluster::Cluster,
    config::Config,
    credential::{Credentials, Ledger, api::CredentialApi},
    gateway::{Gateway, api::GatewayApi},
    http::{
        self, ApiError, Outer,
        server::{self, Listener, Services},
    },
    identity::{Identity, IdentityApi},
    install::{Parameters, PolicyWatcher},
    issuer::{self, AuthApi, Issuer},
    tier_role,
    user::{Users, api::UserApi},
    workspace::{self, NotificationReceiver, Workspaces, api::WorkspaceApi},
};

/// Number of sweep intervals between two checks of the cluster's admission policies.
const SWEEPS_PER_POLICY_CHECK: u64 = 6;

/// The handlers of all operations of the HTTP API.
type Api = (AuthApi, IdentityApi, UserApi, WorkspaceApi, CredentialApi, GatewayApi, AuditApi);

/// The broker with all its parts.
pub struct App {
    config: Config,
    shares: ConnectionShares,
    issuer: Issuer,
    workspaces: Workspaces,
    credentials: Credentials,
    api: Api,
    identity: Identity,
    clock: Clock,
    metrics: Metrics,
    sealer: Sealer,
    audit_keys: AuditKeys,
    watch: PolicyWatcher,
    tier_roles: tier_role::RoleWatcher,
    gateway: Gateway,
    notifications: NotificationReceiver,
    /// Whether the cluster's admission policies were checked at the start.
    policies_checked: bool,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Offset between this machine's clock and the database's from which on a warning is logged, in
/// milliseconds.
const MAX_CLOCK_OFFSET_MS: i64 = 2_000;

/// Compares this machine's clock with the database's, which all replicas share. Where clocks
/// differ, a replica notices suspensions and sessions of other replicas later.
async fn compare_clocks(db: &Db, clock: &Clock, metrics: &Metrics) -> anyhow::Result<()> {
    let before = clock.now_ms();
    let Some(theirs) = db.clock_ms().await.context("cannot read the database's clock")? else {
        return Ok(());
    };
    let offset_ms = i64::midpoint(before, clock.now_ms()) - theirs;
    metrics.clock_offset(offset_ms);
    if offset_ms.abs() > MAX_CLOCK_OFFSET_MS {
        tracing::warn!(
            offset_ms,
            "this machine's clock differs from the database's; synchronise both (NTP), because \
             replicas notice each other's suspensions later otherwise"
        );
    }
    Ok(())
}

/// Opens the database and migrates it to this version.
///
/// # Errors
/// The database does not answer, or its schema is of a later version.
pub async fn open_database(config: &Config) -> anyhow::Result<Db> {
    make_database_folder(config)?;
    let db = Db::connect(&config.database).await.context(NO_DATABASE)?;
    migrate(&db).await?;
    Ok(db)
}

/// Opens and migrates the database like [`open_database`], with connections divided into shares.
async fn open_shares(config: &Config) -> anyhow::Result<ConnectionShares> {
    make_database_folder(config)?;
    let shares = ConnectionShares::connect(&config.database).await.context(NO_DATABASE)?;
    migrate(&shares.signed_in).await?;
    Ok(shares)
}

const NO_DATABASE: &str =
    "cannot open the database (database.url); is it running, and are user and password right?";

fn make_database_folder(config: &Config) -> anyhow::Result<()> {
    if let Location::Sqlite(path) = &config.database
        && let Some(folder) = path.parent()
    {
        private_folder(folder)?;
    }
    Ok(())
}

async fn migrate(db: &Db) -> anyhow::Result<()> {
    db.migrate().await.context("cannot bring the database's tables to this version")
}

/// The signing keys of the audit trail.
#[derive(Debug)]
pub struct AuditKeys {
    /// Signs checkpoints.
    pub signing: Arc<PrivateKey>,
    /// Public keys that verify checkpoints, also those of earlier signing keys.
    pub known: PublicKeys,
}

/// The periodic checks of the admission policies and of the tiers' ClusterRoles.
fn watchers(
    config: &Config,
    cluster: &Cluster,
    metrics: &Metrics,
) -> (PolicyWatcher, tier_role::RoleWatcher) {
    let watch = PolicyWatcher {
        cluster: cluster.clone(),
        parameters: Parameters::new(config),
        allow_missing: config.cluster.allow_missing_policies,
        interval: Duration::from_secs(u64::from(config.sweep_seconds) * SWEEPS_PER_POLICY_CHECK),
        metrics: metrics.clone(),
    };
    let tier_roles = tier_role::RoleWatcher {
        cluster: cluster.clone(),
        roles: watch.parameters.roles.clone(),
        interval: watch.interval,
        metrics: metrics.clone(),
    };
    (watch, tier_roles)
}

/// Loads the keys of the audit trail.
///
/// # Errors
/// A key file cannot be used. The text names the setting.
pub fn audit_keys(config: &Config) -> anyhow::Result<AuditKeys> {
    const SETTING: &str = "audit.signing_key_files, or issuer.signing_key_files without it";
    let keys = PrivateKey::load(&config.audit.signing_key_files).context(SETTING)?;
    let mut known = PublicKeys::from_private(&keys);
    if let Some(path) = &config.audit.known_keys_file {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {} (audit.known_keys_file)", path.display()))?;
        let set = PublicKeys::parse(&text).context("audit.known_keys_file")?;
        known.extend(set.jwks().cloned());
    }
    let signing = keys.into_iter().next().context(SETTING)?;
    Ok(AuditKeys { signing: Arc::new(signing), known })
}

/// Creates a folder with mode 0700 unless it exists.
fn private_folder(path: &Path) -> anyhow::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("cannot make the folder {} (state_dir)", path.display()))
}

impl App {
    /// Connects to the database and the cluster and builds all parts. It does not listen yet.
    ///
    /// # Errors
    /// A part cannot be used. The text says which setting to look at.
    pub async fn start(config: Config, clock: Clock) -> anyhow::Result<Self> {
        let metrics = Metrics::default();
        let shares = open_shares(&config).await?;
        let db = shares.signed_in.clone();
        compare_clocks(&db, &clock, &metrics).await?;
        let cluster = Cluster::connect(&config.cluster, clock.clone(), metrics.clone()).await?;
        let (watch, tier_roles) = watchers(&config, &cluster, &metrics);
        let policies_checked = Box::pin(watch.start()).await?;
        let limits = RateLimiter::new(config.unauthenticated, metrics.clone());
        let identity =
            Identity::new(db.clone(), clock.clone(), metrics.clone(), config.browser.clone())
                .with_limits(shares.unauthenticated.clone(), limits);
        if config.generates_signing_key() {
            private_folder(&config.state_dir)?;
            issuer::keys::generate_if_missing(&config.issuer.signing_key_files[0])
                .context("cannot make the issuer's signing key in state_dir")?;
        }
        let issuer = Issuer::start(
            config.issuer.clone(),
            shares.unauthenticated.clone(),
            clock.clone(),
            identity.with_db(&shares.unauthenticated),
            metrics.clone(),
        )
        .context("cannot start the issuer (issuer.signing_key_files)")?;
        let audit_keys = audit_keys(&config)?;
        let sealer = Sealer::new(db.clone(), clock.clone(), Arc::clone(&audit_keys.signing));
        let (notifier, notifications) = workspace::notification_channel();
        let workspaces = Workspaces::new(
            db.clone(),
            clock.clone(),
            cluster,
            config.tiers.clone(),
            config.init_limit,
            metrics.clone(),
            notifier,
        );
        let credentials = Credentials::new(
            db.clone(),
            workspaces.clone(),
            Ledger::start(db.clone()),
            clock.clone(),
            metrics.clone(),
            config.cluster.bind_tokens_to_secrets,
        );
        let gateway = Gateway::new(
            db.clone(),
            identity.clone(),
            workspaces.clone(),
            credentials.clone(),
            clock.clone(),
            metrics.clone(),
            config.gateway_own_answers,
        );
        let authority = workspaces.with_db(&shares.authority);
        let users = Users::new(
            shares.authority.clone(),
            clock.clone(),
            identity.with_db(&shares.authority),
            authority.clone(),
            metrics.clone(),
        );
        let api = (
            AuthApi { issuer: issuer.clone() },
            IdentityApi { identity: identity.clone() },
            UserApi { users },
            WorkspaceApi { workspaces: workspaces.clone(), authority },
            CredentialApi {
                workspaces: workspaces.clone(),
                credentials: credentials.clone(),
                broker_url: config.display_url(),
            },
            GatewayApi { workspaces: workspaces.clone(), gateway: gateway.clone() },
            AuditApi { db, workspaces: workspaces.clone() },
        );
        Ok(Self {
            config,
            shares,
            issuer,
            workspaces,
            credentials,
            api,
            identity,
            clock,
            metrics,
            sealer,
            audit_keys,
            watch,
            tier_roles,
            gateway,
            notifications,
            policies_checked,
        })
    }

    /// Serves until `stop` resolves, then drains.
    ///
    /// # Errors
    /// An address cannot be bound, or the cluster, which was unreachable at the start, turns out
    /// not to have the admission policies in force.
    pub async fn serve(
        self,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> anyhow::Result<()> {
        let config = self.config;
        let public = listen(config.listen, "listen").await?;
        let operator = listen(config.operator_listen, "operator_listen").await?;
        let tls = config.tls.as_ref().map(server::server_config).transpose()?;

        let draining = Arc::new(AtomicBool::new(false));
        let health = Health { db: self.shares.signed_in.clone(), draining: Arc::clone(&draining) };
        let (operator_stop, operator_stopped) = tokio::sync::oneshot::channel::<()>();
        let operator = tokio::spawn(
            Server::new_with_acceptor(TcpAcceptor::from_tokio(operator)?)
                .run_with_graceful_shutdown(
                    operator::routes(health, self.metrics.clone()),
                    async { drop(operator_stopped.await) },
                    Some(Duration::from_secs(1)),
                ),
        );
        let background = Background::start(
            Dependencies {
                workspaces: self.workspaces.clone(),
                unfinished: self.workspaces.with_db(&self.shares.authority),
                credentials: self.credentials.with_db(&self.shares.authority),
                issuer: self.issuer.clone(),
                sealer: self.sealer,
                audit_key: self.audit_keys.signing,
                known_audit_keys: self.audit_keys.known,
                db: self.shares.signed_in.clone(),
                clock: self.clock.clone(),
                tier_roles: self.tier_roles,
            },
            &config,
        );

        let outer = Outer {
            clock: self.clock,
            metrics: self.metrics,
            https: config.public_url.scheme() == "https",
            proxies: config.trusted_proxies.clone(),
            identity: self.identity.clone(),
            cluster: config.cluster.name.clone(),
        };
        let api = http::with_cors(service(self.api), self.identity.origins());
        let account = AccountPages {
            identity: self.identity.clone(),
            workspaces: self.workspaces,
            db: self.shares.signed_in.clone(),
            broker_url: config.display_url(),
        };
        let routes = account::routes(issuer::routes(self.issuer), &account)
            .nest("/api/v1", api)
            .data(self.identity)
            .with(CatchPanic::new().with_handler(panicked))
            .with(outer);
        let policy_failure = Arc::new(OnceLock::new());
        let (watch, checked) = (self.watch, self.policies_checked);
        let failure = Arc::clone(&policy_failure);
        let stop = async move {
            tokio::select! {
                () = stop => {}
                error = Box::pin(watch.run(checked)) => drop(failure.set(error)),
            }
            tracing::info!("stopping: waiting for requests in flight");
            draining.store(true, Ordering::SeqCst);
        };
        let drain = Duration::from_secs(config.drain_seconds.into());
        tracing::info!(
            listen = %config.listen, operator_listen = %config.operator_listen,
            public_url = %config.public_url, tls = tls.is_some(), "the broker is ready"
        );
        let gateway_tasks =
            self.gateway.spawn_background_tasks(self.notifications, &self.shares.authority);
        let pages = Arc::new(routes.map_to_response().boxed());
        let proxies = config.trusted_proxies;
        let services = Services { gateway: self.gateway, proxies, pages };
        let served = Listener { tcp: public, tls }.serve(services, stop, drain).await;
        gateway_tasks.stop().await;
        background.stop().await;
        drop(operator_stop);
        let _ = operator.await;
        self.shares.close().await;
        tracing::info!("stopped");
        match policy_failure.get() {
            Some(error) => Err(error.clone().into()),
            None => served.context("cannot start the worker threads"),
        }
    }
}

/// The description of the API for its OpenAPI document, without handlers.
struct ApiDescription;

impl OpenApi for ApiDescription {
    fn meta() -> Vec<MetaApi> {
        Api::meta()
    }

    fn register(registry: &mut Registry) {
        Api::register(registry);
    }

    fn add_routes(self, _: &mut HashMap<String, HashMap<Method, BoxEndpoint<'static>>>) {}
}

/// The OpenAPI document of the broker's API, as YAML.
pub fn document() -> String {
    service(ApiDescription).spec_yaml()
}

/// The response to a request whose handler panicked. The panic itself is in the log.
fn panicked(_: Box<dyn std::any::Any + Send + 'static>) -> Response {
    ApiError::internal(&std::io::Error::other("a handler panicked")).into_response()
}

async fn listen(address: std::net::SocketAddr, setting: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address} ({setting})"))
}

fn service<T: OpenApi>(api: T) -> OpenApiService<T, ()> {
    OpenApiService::new(api, "Tenant broker", env!("CARGO_PKG_VERSION"))
        .description(
            "Gives each person an isolated namespace of a Kubernetes cluster. Sign in at the issuer \
             that `/.well-known/openid-configuration` describes and send its access token as bearer \
             token. Every error response is problem details (RFC 9457) with a stable `code`.",
        )
        .server("/api/v1")
}
