//! Serving: listeners, background tasks and the graceful shutdown.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context as _;
use futures_util::FutureExt as _;
use poem::{EndpointExt as _, IntoResponse as _, Response, middleware::CatchPanic};
use tokio::net::TcpListener;

use super::{
    App,
    api::{self, Api},
    background::{Background, Dependencies},
    operator::{OperatorServer, OperatorState},
    services::{ModelServicesOnly, Services},
};
use crate::{
    account::{self, AccountPages},
    audit::AuditTrail,
    base::{clock::Clock, telemetry::Metrics},
    config::Config,
    http::{API_PATH, ApiError, KnownCallers, OuterStack, PoemService, ReadBody},
    identity::Identity,
    issuer::{self, Issuer},
    model_services::{self, ModelServices},
    server::{Connections, Listener, TlsFiles, raise_descriptor_limit},
};

/// How long changes of model services have to record what they leave after their calls were closed.
const RECORD_TIMEOUT: Duration = Duration::from_secs(3);

impl App {
    /// Serves until `stop` resolves, then drains.
    ///
    /// # Errors
    /// An address cannot be bound; the cluster, which was unreachable at the start, turns out not to
    /// have the admission policies in force; or a background task panicked.
    pub async fn serve(
        self,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> anyhow::Result<()> {
        let config = self.config;
        let connections = Connections::within_descriptors(raise_descriptor_limit());
        let sockets = Sockets::bind(&config).await?;
        let tls = config.tls.clone().map(|files| self.reloader.load(TlsFiles::NAME, files));
        let tls = tls.transpose()?;

        let draining = Arc::new(AtomicBool::new(false));
        let state = OperatorState {
            pools: self.pools.clone(),
            draining: Arc::clone(&draining),
            gateway: self.gateway.clone(),
            metrics: self.metrics.clone(),
        };
        let operator = OperatorServer::start(sockets.operator, state)?;
        let mut background = Background::start(
            Dependencies {
                workspaces: self.workspaces.clone(),
                unfinished: self.workspaces.with_db(&self.pools.authority),
                credentials: self.credentials.with_db(&self.pools.authority),
                issuer: self.issuer.clone(),
                sealer: self.sealer,
                audit_keys: self.audit_keys,
                db: self.pools.signed_in.clone(),
                clock: self.clock.clone(),
                tier_roles: self.tier_roles,
                reloader: self.reloader,
                tenant_controller: self.tenant_controller,
            },
            &config,
        );

        let account = AccountPages {
            identity: self.identity.clone(),
            workspaces: self.workspaces,
            tenants: self.tenants,
            trail: AuditTrail::new(self.pools.signed_in.clone()),
            broker_url: config.display_url(),
        };
        let poem = poem_service(&config, &self.identity, &account, self.issuer, self.api);
        let models = self.model_services.as_ref();
        let models =
            models.map(|services| Arc::new(model_services(&config, &self.identity, services)));
        let outer = outer_stack(&config, &self.identity, self.clock, self.metrics.clone());
        let policies = Box::pin(self.watch.run(self.policies_checked));
        log_ready(&config);
        let mut gateway_tasks =
            self.gateway.spawn_background_tasks(self.notifications, &self.pools.authority);
        let failed = async {
            tokio::select! {
                error = policies => anyhow::Error::from(error),
                error = gateway_tasks.ended() => anyhow::Error::from(error),
                error = background.ended() => anyhow::Error::from(error),
            }
        };
        let failure = OnceLock::new();
        let stop = wait_for_stop(stop, failed, &failure, draining, self.model_services.as_ref());
        let drain = Duration::from_secs(config.drain_seconds.into());
        let models_only = models
            .clone()
            .map(|models| ModelServicesOnly { outer: outer.clone(), model_services: models });
        let services = Services { outer, gateway: self.gateway, models, poem };
        let listener = |tcp| {
            let (proxies, metrics) = (config.trusted_proxies.clone(), self.metrics.clone());
            Listener::new(tcp, tls.clone(), proxies, metrics)
        };
        let main = listener(sockets.main).with_connections(connections);
        let models = sockets.model_services.map(|tcp| listener(tcp).with_limits_of(&main));
        let stopped_at = serve_on((main, services), models.zip(models_only), stop, drain).await;
        if let Some(services) = &self.model_services {
            services.drain_changes(drain.saturating_sub(stopped_at.elapsed())).await;
        }
        gateway_tasks.stop().await;
        if let Some(services) = &self.model_services {
            services.drain_changes(RECORD_TIMEOUT).await;
        }
        background.stop().await;
        operator.stop().await;
        self.pools.close().await;
        tracing::info!("broker stopped");
        match failure.into_inner() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// The listening sockets.
struct Sockets {
    main: TcpListener,
    operator: TcpListener,
    /// The one for model services alone.
    model_services: Option<TcpListener>,
}

impl Sockets {
    async fn bind(config: &Config) -> anyhow::Result<Self> {
        let model_services = match config.model_services.listen {
            Some(address) => Some(listen(address, "model_services.listen").await?),
            None => None,
        };
        Ok(Self {
            main: listen(config.listen, "listen").await?,
            operator: listen(config.operator_listen, "operator_listen").await?,
            model_services,
        })
    }
}

/// Serves on the listeners until `stop` resolves and they are drained. Returns the time of `stop`.
async fn serve_on(
    (main, services): (Listener, Services),
    model_services: Option<(Listener, ModelServicesOnly)>,
    stop: impl Future<Output = ()>,
    drain: Duration,
) -> Instant {
    let stopped_at = stop.map(|()| Instant::now()).shared();
    let stop = stopped_at.clone().map(|_| ()).shared();
    let main = main.serve(services, stop.clone(), drain);
    if let Some((listener, handler)) = model_services {
        tokio::join!(main, listener.serve(handler, stop, drain));
    } else {
        drop(stop);
        main.await;
    }
    stopped_at.await
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
        .with(read_body(config, identity, None))
        .map_to_response()
        .boxed()
}

/// The layer that reads the bodies of requests.
fn read_body(
    config: &Config,
    identity: &Identity,
    known_callers: Option<Arc<dyn KnownCallers>>,
) -> ReadBody {
    let cluster = config.cluster.name.clone();
    ReadBody { identity: identity.clone(), known_callers, cluster }
}

/// Model services as one endpoint.
fn model_services(config: &Config, identity: &Identity, services: &ModelServices) -> PoemService {
    let operations = api::model_services(model_services::api::api(services));
    model_services::api::endpoint(operations, services)
        .with(read_body(config, identity, Some(Arc::new(services.clone()))))
        .map_to_response()
        .boxed()
}

/// The response to a request whose handler panicked. The panic itself is in the log.
fn panicked(_: Box<dyn std::any::Any + Send + 'static>) -> Response {
    ApiError::internal(&std::io::Error::other("a handler panicked")).into_response()
}

/// The outer stack, for the addresses and origins of the configuration.
fn outer_stack(config: &Config, identity: &Identity, clock: Clock, metrics: Metrics) -> OuterStack {
    OuterStack {
        clock,
        metrics,
        https: config.public_url.scheme() == "https",
        proxies: config.trusted_proxies.clone(),
        origins: identity.origins().clone(),
        token_header: Some(config.model_services.token_header.clone()),
    }
}

/// Waits until `stop` resolves, or until `failed` resolves with an error, which is then in
/// `failure`. From then on `/readyz` fails, and no change of model services begins.
async fn wait_for_stop(
    stop: impl Future<Output = ()>,
    failed: impl Future<Output = anyhow::Error>,
    failure: &OnceLock<anyhow::Error>,
    draining: Arc<AtomicBool>,
    model_services: Option<&ModelServices>,
) {
    tokio::select! {
        () = stop => {}
        error = failed => drop(failure.set(error)),
    }
    tracing::info!("stopping: waiting for requests in flight");
    draining.store(true, Ordering::SeqCst);
    if let Some(services) = model_services {
        services.refuse_changes();
    }
}

fn log_ready(config: &Config) {
    tracing::info!(
        listen = %config.listen, operator_listen = %config.operator_listen,
        public_url = %config.public_url, tls = config.tls.is_some(), "the broker is ready"
    );
}

async fn listen(address: std::net::SocketAddr, setting: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address} ({setting})"))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn a_failure_stops_the_broker_with_its_error() {
        for fails in [true, false] {
            let (failure, draining) = (OnceLock::new(), Arc::new(AtomicBool::new(false)));
            let failed =
                async { if fails { anyhow::anyhow!("a task ended") } else { pending().await } };
            let stop = async { if fails { pending().await } else { ready(()).await } };
            wait_for_stop(stop, failed, &failure, Arc::clone(&draining), None).await;
            assert!(draining.load(Ordering::SeqCst));
            assert_eq!(failure.into_inner().is_some(), fails);
        }
    }
}
