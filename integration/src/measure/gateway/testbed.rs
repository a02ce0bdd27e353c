//! The testbed of the gateway: a world with a tenant, their objects, and every route to them.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use secrecy::ExposeSecret;
use serde_json::json;
use url::Url;

use super::flooding_tenant::FloodingTenant;
use super::kubectl_proxy::{KubectlProxy, Running};
use super::limits::LIMITED_TIER;
use super::nginx::Nginx;
use super::route::{Route, RouteName};
use crate::broker::Broker;
use crate::world::World;

/// Bytes of the data in the list.
pub(super) const LIST_BYTES: usize = 1024 * 1024;
/// Number of objects that contain the data of the list.
const LIST_OBJECTS: usize = 16;
/// Name of the object that changes.
pub(super) const TICKER: &str = "ticker";
const SMALL: &str = "small";

/// The world, the tenant and the routes.
pub struct GatewayTestbed {
    world: World,
    namespace: String,
    gateway: Route,
    /// The gateways of other builds.
    other_builds: Vec<Route>,
    flooding: FloodingTenant,
    others: [Route; 3],
    kubectl_proxy: KubectlProxy,
    _nginx: Nginx,
    _running: Running,
}

impl std::fmt::Debug for GatewayTestbed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GatewayTestbed").field("world", &self.world).finish_non_exhaustive()
    }
}

impl GatewayTestbed {
    /// Creates a tenant in this world, whose broker serves TLS, and starts the proxies.
    ///
    /// # Errors
    /// A program is missing, or a part does not start.
    pub async fn new(world: World) -> Result<Self> {
        let person = world.person("measured").await?;
        let session = person.sign_in().await?;
        let api = world.anonymous_api()?.with_token(session.access_token.clone());
        let (workspace, _) = api.init("basic").await?;
        let credential = api.credential(workspace.id).await?;
        let cluster = world.cluster();
        let authority = cluster.authority().certificate();
        make_objects(&world, &workspace.namespace).await?;

        let direct = Route::new(RouteName::Direct, cluster.url(), authority)?
            .with_token(&credential.token)?;
        let path = format!("clusters/{}/", workspace.cluster);
        let gateway_of = |name, broker: &Broker| -> Result<Route> {
            let base = broker.url()?.join(&path).context("make the gateway's URL")?;
            let mut route = Route::new(name, &base, authority)?
                .with_token(session.access_token.expose_secret())?;
            route.processes = vec![broker.pid().context("the broker has stopped")?];
            Ok(route)
        };
        let gateway = gateway_of(RouteName::Gateway, world.broker())?;
        let others = world.brokers().iter().enumerate().skip(1);
        let other_builds = others
            .map(|(index, broker)| gateway_of(RouteName::OtherBuild(index + 1), broker))
            .collect::<Result<_>>()?;

        let base = world.broker().public_url()?.join(&path).context("make the gateway's URL")?;
        let flooding = flooding(&world, &base).await?;

        let running_nginx = Nginx::start(cluster, &world.folder().join("nginx")).await?;
        let mut nginx = Route::new(RouteName::Nginx, &running_nginx.url, authority)?
            .with_token(&credential.token)?;
        nginx.for_streams =
            Route::new(RouteName::Nginx, &running_nginx.for_streams, authority)?.address;
        nginx.processes = running_nginx.processes()?;

        let folder = world.folder().join("kubectl-proxy");
        let kubectl_proxy = KubectlProxy::new(cluster, &credential.token, &folder)?;
        let running = kubectl_proxy.start().await?;
        let mut kubectl = Route::new(RouteName::KubectlProxy, &running.url, authority)?;
        kubectl.processes = vec![running.pid()];

        Ok(Self {
            namespace: workspace.namespace,
            gateway,
            other_builds,
            flooding,
            others: [direct, nginx, kubectl],
            kubectl_proxy,
            _nginx: running_nginx,
            _running: running,
            world,
        })
    }

    pub(super) fn world(&self) -> &World {
        &self.world
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) fn api_server(&self) -> u32 {
        self.world.cluster().api_server_pid()
    }

    /// The route through the gateway.
    pub(super) fn gateway(&self) -> &Route {
        &self.gateway
    }

    /// The brokers of other builds, with their routes.
    pub(super) fn other_builds(&self) -> impl Iterator<Item = (&Broker, &Route)> {
        self.world.brokers().iter().skip(1).zip(&self.other_builds)
    }

    /// The other tenant, who floods the gateway.
    pub(super) fn flooding(&self) -> &FloodingTenant {
        &self.flooding
    }

    /// The command line for further instances of `kubectl proxy`.
    pub(super) fn kubectl_proxy(&self) -> &KubectlProxy {
        &self.kubectl_proxy
    }

    /// Returns all routes; each round starts with another one.
    pub(super) fn routes_in_turn(&self, round: usize) -> impl Iterator<Item = &Route> {
        let [direct, nginx, kubectl] = &self.others;
        let mut routes = vec![direct, &self.gateway];
        routes.extend(&self.other_builds);
        routes.extend([nginx, kubectl]);
        let first = round % routes.len();
        routes.rotate_left(first);
        routes.into_iter()
    }

    pub(super) fn small_path(&self) -> String {
        small_path(&self.namespace)
    }

    pub(super) fn list_path(&self) -> String {
        list_path(&self.namespace)
    }

    /// Path of the watch of the changing object; the caller appends a resource version.
    pub(super) fn watch_path(&self) -> String {
        let config_maps = config_maps(&self.namespace);
        format!("{config_maps}?watch=true&fieldSelector=metadata.name%3D{TICKER}")
    }
}

fn config_maps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

fn small_path(namespace: &str) -> String {
    format!("{}/{SMALL}", config_maps(namespace))
}

fn list_path(namespace: &str) -> String {
    format!("{}?labelSelector=part%3Dpage", config_maps(namespace))
}

/// Creates a tenant with the limits of a tier and the same objects.
async fn flooding(world: &World, gateway: &Url) -> Result<FloodingTenant> {
    let person = world.person("flooding").await?;
    let session = person.sign_in().await?;
    let api = world.anonymous_api()?.with_token(session.access_token.clone());
    let (workspace, _) = api.init(LIMITED_TIER).await?;
    make_objects(world, &workspace.namespace).await?;
    Ok(FloodingTenant {
        gateway: gateway.clone(),
        authority: world.cluster().authority().certificate().to_owned(),
        token: session.access_token.expose_secret().to_owned(),
        small: small_path(&workspace.namespace),
        list: list_path(&workspace.namespace),
    })
}

async fn make_objects(world: &World, namespace: &str) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(world.cluster().admin().await?, namespace);
    let page = "x".repeat(LIST_BYTES / LIST_OBJECTS);
    let pages = (0..LIST_OBJECTS).map(|number| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("page-{number}"), "labels": {"part": "page"}},
            "data": {"text": page}})
    });
    let others = [SMALL, TICKER].map(|name| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"count": "0"}})
    });
    for object in pages.chain(others) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let how = PatchParams::apply("measure").force();
        api.patch(&name, &how, &Patch::Apply(&object))
            .await
            .with_context(|| format!("make the ConfigMap {name}"))?;
    }
    Ok(())
}
