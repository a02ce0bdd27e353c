//! The start: builds all parts and connects them.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;

use super::{
    App, audit_keys,
    database::{compare_clocks, open_shares, private_folder},
};
use crate::{
    audit::{self, AuditTrail, chain::Sealer},
    base::{clock::Clock, rate_limit::RateLimiter, telemetry::Metrics},
    cluster::{Cluster, Clusters},
    config::Config,
    credential::{self, Credentials, Ledger},
    gateway::{self, Gateway},
    http::MergedPaths,
    identity::{self, Identity},
    install::{Parameters, PolicyWatcher},
    issuer::{self, Issuer},
    tier_role,
    user::{self, Users},
    workspace::{self, Workspaces},
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
        parameters: Parameters::new(&config.cluster, &config.tiers, &config.public_url),
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
        let clusters = Clusters::new(cluster);
        let workspaces = Workspaces::new(workspace::Dependencies {
            db: db.clone(),
            clock: clock.clone(),
            clusters: clusters.clone(),
            tiers: config.tiers.clone(),
            init_limit: config.init_limit,
            metrics: metrics.clone(),
            notifier,
        });
        let credentials = Credentials::new(credential::Dependencies {
            db: db.clone(),
            workspaces: workspaces.clone(),
            clusters: clusters.clone(),
            ledger: Ledger::start(db.clone()),
            clock: clock.clone(),
            metrics: metrics.clone(),
            bind: config.cluster.bind_tokens_to_secrets,
        });
        let gateway = Gateway::new(gateway::Dependencies {
            db: db.clone(),
            identity: identity.clone(),
            workspaces: workspaces.clone(),
            credentials: credentials.clone(),
            clusters,
            clock: clock.clone(),
            metrics: metrics.clone(),
            own_answers: config.gateway_own_answers,
        });
        let authority = workspaces.with_db(&shares.authority);
        let users = Users::new(user::Dependencies {
            db: shares.authority.clone(),
            clock: clock.clone(),
            identity: identity.with_db(&shares.authority),
            workspaces: authority.clone(),
            metrics: metrics.clone(),
        });
        let api = MergedPaths((
            issuer::api::api(issuer.clone()),
            identity::api::api(identity.clone()),
            user::api::api(users),
            workspace::api::api(workspaces.clone(), authority),
            credential::api::api(workspaces.clone(), credentials.clone(), config.display_url()),
            gateway::api::api(workspaces.clone(), gateway.clone()),
            audit::api::api(AuditTrail::new(db), workspaces.clone()),
        ));
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
}
