//! A world with a tenant, their objects, and every way to them.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use secrecy::ExposeSecret;
use serde_json::json;

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
        format!("{}/{SMALL}", self.config_maps())
    }

    pub(super) fn list_path(&self) -> String {
        format!("{}?labelSelector=part%3Dpage", self.config_maps())
    }

    /// The changes of the object that changes; a version is to be added.
    pub(super) fn watch_path(&self) -> String {
        format!("{}?watch=true&fieldSelector=metadata.name%3D{TICKER}", self.config_maps())
    }

    fn config_maps(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.namespace)
    }
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
