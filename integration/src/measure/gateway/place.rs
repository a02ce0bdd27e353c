//! A world with a tenant, their objects, and every way to them.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use secrecy::ExposeSecret;
use serde_json::json;
use url::Url;

use super::LIMITED;
use super::flood::Flooding;
use super::kubectl_proxy::{KubectlProxy, Running};
use super::nginx::Nginx;
use super::way::{Name, Way};
use crate::world::World;

/// Bytes of the data in the list.
pub(super) const LIST_BYTES: usize = 1024 * 1024;
/// Into how many objects these are divided.
const PAGES: usize = 16;
/// The object that changes.
pub(super) const TICKER: &str = "ticker";
const SMALL: &str = "small";

/// The world, the tenant and the ways.
pub struct Place {
    world: World,
    namespace: String,
    gateway: Way,
    flooding: Flooding,
    others: [Way; 3],
    kubectl_proxy: KubectlProxy,
    _nginx: Nginx,
    _running: Running,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").field("world", &self.world).finish_non_exhaustive()
    }
}

impl Place {
    /// Makes a tenant in this world, whose broker serves TLS, and starts the proxies.
    ///
    /// # Errors
    /// A program is missing, or something does not start.
    pub async fn new(world: World) -> Result<Self> {
        let person = world.person("measured").await?;
        let session = person.sign_in().await?;
        let api = world.stranger()?.with_token(session.access_token.clone());
        let (workspace, _) = api.init("basic").await?;
        let credential = api.credential(workspace.id).await?;
        let cluster = world.cluster();
        let authority = cluster.authority().certificate();
        make_objects(&world, &workspace.namespace).await?;

        let direct =
            Way::new(Name::Direct, cluster.url(), authority)?.with_token(&credential.token)?;
        let base = format!("clusters/{}/", workspace.cluster);
        let base = world.broker().public_url()?.join(&base).context("make the gateway's URL")?;
        let mut gateway = Way::new(Name::Gateway, &base, authority)?
            .with_token(session.access_token.expose_secret())?;
        gateway.processes = vec![world.broker().pid().context("the broker runs no more")?];

        let flooding = flooding(&world, &base).await?;

        let running_nginx = Nginx::start(cluster, &world.folder().join("nginx")).await?;
        let mut nginx =
            Way::new(Name::Nginx, &running_nginx.url, authority)?.with_token(&credential.token)?;
        nginx.for_streams = Way::new(Name::Nginx, &running_nginx.for_streams, authority)?.address;
        nginx.processes = running_nginx.processes()?;

        let folder = world.folder().join("kubectl-proxy");
        let kubectl_proxy = KubectlProxy::new(cluster, &credential.token, &folder)?;
        let running = kubectl_proxy.start().await?;
        let mut kubectl = Way::new(Name::KubectlProxy, &running.url, authority)?;
        kubectl.processes = vec![running.pid()];

        Ok(Self {
            namespace: workspace.namespace,
            gateway,
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

    /// The way through the gateway.
    pub(super) fn gateway(&self) -> &Way {
        &self.gateway
    }

    /// The other tenant, who floods the gateway.
    pub(super) fn flooding(&self) -> &Flooding {
        &self.flooding
    }

    /// What further ones of `kubectl proxy` are started with.
    pub(super) fn kubectl_proxy(&self) -> &KubectlProxy {
        &self.kubectl_proxy
    }

    /// All ways; another one is the first in each round.
    pub(super) fn ways_in_turn(&self, round: usize) -> impl Iterator<Item = &Way> {
        let [direct, nginx, kubectl] = &self.others;
        let mut ways = [direct, &self.gateway, nginx, kubectl];
        let first = round % ways.len();
        ways.rotate_left(first);
        ways.into_iter()
    }

    pub(super) fn small_path(&self) -> String {
        small_path(&self.namespace)
    }

    pub(super) fn list_path(&self) -> String {
        list_path(&self.namespace)
    }

    /// The changes of the object that changes; a version is to be added.
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

/// A tenant with the limits of a tier, who has the same objects.
async fn flooding(world: &World, gateway: &Url) -> Result<Flooding> {
    let person = world.person("flooding").await?;
    let session = person.sign_in().await?;
    let api = world.stranger()?.with_token(session.access_token.clone());
    let (workspace, _) = api.init(LIMITED).await?;
    make_objects(world, &workspace.namespace).await?;
    Ok(Flooding {
        gateway: gateway.clone(),
        authority: world.cluster().authority().certificate().to_owned(),
        token: session.access_token.expose_secret().to_owned(),
        small: small_path(&workspace.namespace),
        list: list_path(&workspace.namespace),
    })
}

async fn make_objects(world: &World, namespace: &str) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(world.cluster().admin().await?, namespace);
    let page = "x".repeat(LIST_BYTES / PAGES);
    let pages = (0..PAGES).map(|number| {
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
