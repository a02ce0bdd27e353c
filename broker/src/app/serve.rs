//! Serving: listeners, background tasks and the graceful shutdown.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use poem::{EndpointExt as _, IntoResponse as _, Response, middleware::CatchPanic};
use tokio::net::TcpListener;

use super::{
    App,
    api::{self, Api},
    background::{Background, Dependencies},
    operator::{Health, OperatorServer},
    services::Services,
};
use crate::{
    account::{self, AccountPages},
    audit::AuditTrail,
    config::Config,
    http::{API_PATH, ApiError, OuterStack, PoemService, ReadBody},
    identity::Identity,
    issuer::{self, Issuer},
    server::{self, Listener},
};

impl App {
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
        let operator = OperatorServer::start(operator, health, self.metrics.clone())?;
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

        let account = AccountPages {
            identity: self.identity.clone(),
            workspaces: self.workspaces,
            trail: AuditTrail::new(self.shares.signed_in.clone()),
            broker_url: config.display_url(),
        };
        let poem = poem_service(&config, &self.identity, &account, self.issuer, self.api);
        let outer = OuterStack {
            clock: self.clock,
            metrics: self.metrics,
            https: config.public_url.scheme() == "https",
            proxies: config.trusted_proxies.clone(),
            origins: self.identity.origins().clone(),
        };
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
        let services = Services { outer, gateway: self.gateway, poem };
        let served = Listener { tcp: public, tls }.serve(services, stop, drain).await;
        gateway_tasks.stop().await;
        background.stop().await;
        operator.stop().await;
        self.shares.close().await;
        tracing::info!("stopped");
        match policy_failure.get() {
            Some(error) => Err(error.clone().into()),
            None => served.context("cannot start the worker threads"),
        }
    }
}

/// Pages, API and issuer as one endpoint.
fn poem_service(
    config: &Config,
    identity: &Identity,
    account: &AccountPages,
    issuer: Issuer,
    operations: Api,
) -> PoemService {
    account::routes(issuer::routes(issuer), account)
        .nest(API_PATH, api::service(operations))
        .data(identity.clone())
        .with(CatchPanic::new().with_handler(panicked))
        .with(ReadBody { identity: identity.clone(), cluster: config.cluster.name.clone() })
        .map_to_response()
        .boxed()
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
