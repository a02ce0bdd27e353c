//! The start: builds all parts and connects them.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;

use super::{
    App,
    api::Api,
    database::{DatabaseUrlFile, check_role, compare_clocks, open_pools, private_folder},
    metrics::label_values,
};
use crate::{
    audit::{self, AuditKeyFiles, AuditKeys, AuditTrail, chain::Sealer},
    base::{
        clock::Clock,
        db::ConnectionPools,
        rate_limit::RateLimiter,
        reload::{Reloaded, Reloader},
        telemetry::Metrics,
    },
    cluster::{Cluster, Clusters},
    config::Config,
    credential::{self, Credentials, Ledger, TokenCache},
    gateway::{self, Gateway},
    http::MergedPaths,
    identity::{self, Identity},
    install::PolicyWatcher,
    issuer::{self, Issuer},
    model_services::{self, ModelServices},
    tenant::TenantCache,
    tenant_controller::{self, TenantController},
    tenant_operations::{self, TenantOperations},
    tier::DEFAULT_TIER,
    tier_role,
    user::{self, Users},
    workspace::{self, Notifier, Workspaces},
};

/// Number of sweep intervals between two checks of the cluster's admission policies.
const SWEEPS_PER_POLICY_CHECK: u64 = 6;

/// The periodic checks of the admission policies and of the tiers' ClusterRoles.
fn watchers(
    config: &Config,
    cluster: &Cluster,
    metrics: &Metrics,
) -> (PolicyWatcher, tier_role::RoleWatcher) {
    let watch = PolicyWatcher {
        cluster: cluster.clone(),
        parameters: config.install_parameters(),
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

/// Opens the database, and compares its clock with ours.
async fn connect_database(
    config: &Config,
    clock: &Clock,
    metrics: &Metrics,
    reloader: &Reloader,
) -> anyhow::Result<ConnectionPools> {
    let pools = open_pools(config).await?;
    if let Some(source) = DatabaseUrlFile::new(config, &pools) {
        reloader.load("database.url_file", source)?;
    }
    compare_clocks(&pools.signed_in, clock, metrics).await?;
    check_role(&pools.signed_in).await;
    Ok(pools)
}

/// The cluster after its admission policies were compared with the desired ones.
struct ConnectedCluster {
    cluster: Cluster,
    watch: PolicyWatcher,
    tier_roles: tier_role::RoleWatcher,
    /// Whether the API server answered.
    policies_checked: bool,
}

/// Connects to the API server, and checks the cluster's admission policies.
async fn connect_cluster(
    config: &Config,
    clock: &Clock,
    metrics: &Metrics,
    reloader: &Reloader,
) -> anyhow::Result<ConnectedCluster> {
    let cluster =
        Cluster::connect(&config.cluster, clock.clone(), metrics.clone(), reloader).await?;
    let (watch, tier_roles) = watchers(config, &cluster, metrics);
    let policies_checked = watch.start().await?;
    Ok(ConnectedCluster { cluster, watch, tier_roles, policies_checked })
}

impl App {
    /// Connects to the database and the cluster and builds all parts. It does not listen yet.
    ///
    /// # Errors
    /// A part cannot be used. The text says which setting to look at.
    pub async fn start(config: Config, clock: Clock) -> anyhow::Result<Self> {
        let metrics = Metrics::default();
        metrics.export_zeros(&label_values(), clock.now());
        let reloader = Reloader::new(clock.clone(), metrics.clone());
        // Neither needs the other. An error of one does not cancel the other, because a migration of
        // the database may be under way.
        let (database, cluster) = tokio::join!(
            connect_database(&config, &clock, &metrics, &reloader),
            Box::pin(connect_cluster(&config, &clock, &metrics, &reloader)),
        );
        let pools = database?;
        let ConnectedCluster { cluster, watch, tier_roles, policies_checked } = cluster?;
        let builder = PartBuilder {
            config: &config,
            pools: &pools,
            clusters: Clusters::new(cluster),
            clock: &clock,
            metrics: &metrics,
            reloader: &reloader,
        };
        let identity = builder.build_identity();
        generate_missing_signing_key(&config)?;
        let issuer = builder.start_issuer(&identity)?;
        let audit_keys = AuditKeyFiles(config.audit.clone());
        let audit_keys = reloader.load("audit.signing_key_files", audit_keys)?;
        let sealer = builder.build_sealer(audit_keys.clone());
        let (notifier, notifications) = workspace::notification_channel();
        let workspaces = builder.build_workspaces(notifier);
        let credentials = builder.build_credentials(&workspaces);
        let tokens = TokenCache::new(credentials.clone(), clock.clone());
        let (tenant_controller, tenants) = if config.tenants.enabled {
            let (controller, operations) = builder.build_tenants(&workspaces, &tokens);
            (Some(controller), Some(operations))
        } else {
            (None, None)
        };
        let gateway =
            builder.build_gateway(&identity, &workspaces, &credentials, tokens, tenants.as_ref());
        let parts = ApiParts {
            issuer: &issuer,
            identity: &identity,
            workspaces: &workspaces,
            tenants: tenants.as_ref(),
            credentials: &credentials,
            gateway: &gateway,
        };
        let api = builder.build_api(&parts);
        let model_services = builder.build_model_services(&identity, &gateway);
        Ok(Self {
            config,
            pools,
            issuer,
            workspaces,
            credentials,
            api,
            identity,
            clock,
            metrics,
            sealer,
            audit_keys,
            reloader,
            watch,
            tier_roles,
            tenant_controller,
            tenants,
            gateway,
            model_services,
            notifications,
            policies_checked,
        })
    }
}

/// Generates the issuer's signing key, unless there is one or the configuration names others.
fn generate_missing_signing_key(config: &Config) -> anyhow::Result<()> {
    if config.generates_signing_key() {
        private_folder(&config.state_dir)?;
        issuer::keys::generate_if_missing(&config.issuer.signing_key_files[0])
            .context("cannot make the issuer's signing key in state_dir")?;
    }
    Ok(())
}

/// The parts whose operations the HTTP API has.
struct ApiParts<'a> {
    issuer: &'a Issuer,
    identity: &'a Identity,
    workspaces: &'a Workspaces,
    /// `None` without `tenants.enabled`.
    tenants: Option<&'a TenantOperations>,
    credentials: &'a Credentials,
    gateway: &'a Gateway,
}

/// Builds the parts of the broker from what all of them use.
struct PartBuilder<'a> {
    config: &'a Config,
    pools: &'a ConnectionPools,
    clusters: Clusters,
    clock: &'a Clock,
    metrics: &'a Metrics,
    reloader: &'a Reloader,
}

impl PartBuilder<'_> {
    fn build_identity(&self) -> Identity {
        let limits = RateLimiter::new(self.config.unauthenticated, self.metrics.clone());
        Identity::new(
            self.pools.signed_in.clone(),
            self.clock.clone(),
            self.metrics.clone(),
            self.config.browser.clone(),
        )
        .with_limits(self.pools.unauthenticated.clone(), limits)
    }

    fn start_issuer(&self, identity: &Identity) -> anyhow::Result<Issuer> {
        Issuer::start(
            self.config.issuer.clone(),
            self.pools.unauthenticated.clone(),
            self.clock.clone(),
            identity.with_db(&self.pools.unauthenticated),
            self.metrics.clone(),
            self.reloader,
        )
        .context("cannot start the issuer (issuer.signing_key_files)")
    }

    fn build_sealer(&self, keys: Reloaded<AuditKeys>) -> Sealer {
        let (db, clock) = (self.pools.signed_in.clone(), self.clock.clone());
        Sealer::new(db, clock, keys, self.metrics.clone())
    }

    fn build_workspaces(&self, notifier: Notifier) -> Workspaces {
        Workspaces::new(workspace::Dependencies {
            db: self.pools.signed_in.clone(),
            clock: self.clock.clone(),
            clusters: self.clusters.clone(),
            tiers: self.config.tiers.clone(),
            init_limit: self.config.init_limit,
            metrics: self.metrics.clone(),
            notifier,
        })
    }

    fn build_credentials(&self, workspaces: &Workspaces) -> Credentials {
        let db = self.pools.signed_in.clone();
        Credentials::new(credential::Dependencies {
            ledger: Ledger::start(db.clone()),
            db,
            workspaces: workspaces.clone(),
            clusters: self.clusters.clone(),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            bind: self.config.cluster.bind_tokens_to_secrets,
        })
    }

    /// Builds the controller of Tenants and the operations on them, which share the copy of the
    /// Tenants. The controller has the database pool for revocations, because it suspends
    /// tenants.
    fn build_tenants(
        &self,
        workspaces: &Workspaces,
        tokens: &TokenCache,
    ) -> (Arc<TenantController>, TenantOperations) {
        let cache = TenantCache::default();
        let cluster = self.clusters.for_new_workspaces();
        let controller = Arc::new(TenantController::new(tenant_controller::Dependencies {
            db: self.pools.authority.clone(),
            requests: self.pools.signed_in.clone(),
            clock: self.clock.clone(),
            cluster: cluster.clone(),
            cache: cache.clone(),
            workspaces: workspaces.with_db(&self.pools.authority),
            rbac_user_rules: self.config.rbac_user_rules.clone(),
            settings: self.config.tenants.clone(),
            tiers: self.config.tiers.clone(),
            metrics: self.metrics.clone(),
            resync_interval: Duration::from_secs(self.config.drift_seconds.into()),
        }));
        let operations = TenantOperations::new(tenant_operations::Dependencies {
            db: self.pools.signed_in.clone(),
            authority: self.pools.authority.clone(),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            cluster: cluster.clone(),
            controller: Arc::clone(&controller),
            cache,
            workspaces: workspaces.clone(),
            tokens: tokens.clone(),
            rbac_user_rules: self.config.rbac_user_rules.clone(),
            settings: self.config.tenants.clone(),
            default_tier: DEFAULT_TIER.to_owned(),
            tiers: self.config.tiers.clone(),
        });
        (controller, operations)
    }

    fn build_gateway(
        &self,
        identity: &Identity,
        workspaces: &Workspaces,
        credentials: &Credentials,
        tokens: TokenCache,
        tenants: Option<&TenantOperations>,
    ) -> Gateway {
        Gateway::new(gateway::Dependencies {
            db: self.pools.signed_in.clone(),
            identity: identity.clone(),
            workspaces: workspaces.clone(),
            credentials: credentials.clone(),
            tokens,
            clusters: self.clusters.clone(),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            synthesizes_responses: self.config.gateway_synthesizes_responses,
            tenants: tenants.cloned(),
        })
    }

    /// Builds model services, if they are enabled.
    fn build_model_services(
        &self,
        identity: &Identity,
        gateway: &Gateway,
    ) -> Option<ModelServices> {
        let settings = self.config.model_services.clone();
        settings.enabled.then(|| {
            ModelServices::new(model_services::Dependencies {
                settings,
                identity: identity.clone(),
                gateway: gateway.clone(),
                cluster: self.clusters.for_new_workspaces().clone(),
                db: self.pools.signed_in.clone(),
                clock: self.clock.clone(),
                metrics: self.metrics.clone(),
            })
        })
    }

    /// Builds the management of users. It has the database pool for revocations, because it
    /// suspends users.
    fn build_users(&self, identity: &Identity, workspaces: &Workspaces) -> Users {
        Users::new(user::Dependencies {
            db: self.pools.authority.clone(),
            refusals: self.pools.signed_in.clone(),
            clock: self.clock.clone(),
            identity: identity.with_db(&self.pools.authority),
            workspaces: workspaces.clone(),
            metrics: self.metrics.clone(),
        })
    }

    /// Builds the operations of the HTTP API of all modules.
    fn build_api(&self, parts: &ApiParts<'_>) -> Api {
        let ApiParts { issuer, identity, workspaces, tenants, credentials, gateway } = *parts;
        let authority = workspaces.with_db(&self.pools.authority);
        let url = self.config.display_url();
        MergedPaths((
            issuer::api::api(issuer.clone()),
            identity::api::api(identity.clone()),
            user::api::api(self.build_users(identity, &authority)),
            workspace::api::api(workspaces.clone(), authority),
            tenant_operations::api::api(tenants.cloned()),
            credential::api::api(workspaces.clone(), credentials.clone(), url),
            gateway::api::api(workspaces.clone(), gateway.clone()),
            audit::api::api(AuditTrail::new(self.pools.signed_in.clone()), workspaces.clone()),
        ))
    }
}
