//! A control plane whose admission policies are put up and taken down.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams,
};
use kube::core::TypeMeta;
use serde::Deserialize as _;
use serde_json::{Value, json};
use tenant_shared::{
    MANAGED_BY_LABEL, MANAGED_BY_VALUE, SERVICE_ACCOUNT_NAME, TOKEN_LIFETIME_SECONDS,
    WORKSPACE_LABEL,
};

use super::load::Load;
use super::profile::Profile;
use crate::broker;
use crate::control_plane::{BROKER_USER, ControlPlane, ControlPlaneOptions};
use crate::http_client;
use crate::kubectl::Kubectl;
use crate::probe::{self, Probe};

/// The API server looks for changed policies once a second.
const CHANGE_LIMIT: Duration = Duration::from_secs(20);
/// A namespace as the broker makes it.
const TENANT: &str = "tenant-01940000-0000-7000-8000-000000000001";
/// A namespace that is none of ours, and who works there.
const ELSEWHERE: &str = "elsewhere";
const STRANGER: &str = "stranger";
/// Who may read profiles.
const PROFILER: &str = "profiler";
const MASTERS: Option<&str> = Some("system:masters");

/// A control plane with a tenant's namespace and one that is none.
pub struct Guarded {
    cluster: ControlPlane,
    admin: Client,
    broker: reqwest::Client,
    stranger: reqwest::Client,
    profiler: reqwest::Client,
    policies: Vec<DynamicObject>,
}

impl std::fmt::Debug for Guarded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guarded").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl Guarded {
    /// Starts one below `folder`. The policies are those that `program` (`tenant-broker`) installs,
    /// and are in force.
    ///
    /// # Errors
    /// A part does not start, or the API server refuses.
    pub async fn start(program: &Path, folder: &Path) -> Result<Self> {
        let options = ControlPlaneOptions { folder: Some(folder.into()), ..Default::default() };
        let cluster = ControlPlane::start(options).await?;
        let kubectl = |kubeconfig: &Path| Kubectl::new(folder, kubeconfig, None);
        let as_admin = kubectl(cluster.admin_kubeconfig())?;
        let as_broker = kubectl(cluster.broker_kubeconfig())?;
        broker::install(program, BROKER_USER, &[], &as_admin, &as_broker).await?;
        let printed = as_admin
            .other(program)
            .args(["install", "--set"])
            .arg(format!("cluster.identity={BROKER_USER}"))
            .run(CHANGE_LIMIT)
            .await?
            .success()?;
        let guarded = Self {
            admin: cluster.admin().await?,
            broker: client(&cluster, cluster.broker_identity())?,
            stranger: client(&cluster, &cluster.authority().client(STRANGER, None)?)?,
            profiler: client(&cluster, &cluster.authority().client(PROFILER, MASTERS)?)?,
            policies: policies(&printed.stdout)?,
            cluster,
        };
        guarded.make_namespaces().await?;
        Ok(guarded)
    }

    /// Process id of the API server.
    pub(super) fn pid(&self) -> u32 {
        self.cluster.api_server_pid()
    }

    /// Puts the policies up and returns once they are in force.
    pub(super) async fn put_up(&self) -> Result<()> {
        for object in &self.policies {
            self.apply(object.clone()).await?;
        }
        self.until_fenced(true).await
    }

    /// Takes them away and returns once they are not in force any more.
    pub(super) async fn take_down(&self) -> Result<()> {
        for object in &self.policies {
            let name = object.metadata.name.as_deref().unwrap_or_default();
            match self.api(object).delete(name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => drop(other.with_context(|| format!("delete {name}"))?),
            }
        }
        self.until_fenced(false).await
    }

    /// TokenRequests as the broker makes them.
    pub(super) fn tokens(&self) -> Load {
        let path =
            format!("api/v1/namespaces/{TENANT}/serviceaccounts/{SERVICE_ACCOUNT_NAME}/token");
        self.load(&self.broker, Method::POST, &path, |_, _| {
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                "spec": {"expirationSeconds": TOKEN_LIFETIME_SECONDS, "audiences": []}})
        })
    }

    /// ConfigMaps that somebody changes in a namespace of theirs.
    pub(super) fn config_maps(&self) -> Load {
        let path = format!("api/v1/namespaces/{ELSEWHERE}/configmaps/{{caller}}");
        self.load(&self.stranger, Method::PUT, &path, |caller, count| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": caller},
                "data": {"count": count.to_string()}})
        })
    }

    /// The same with ServiceAccounts, a kind that policies of ours look at.
    pub(super) fn service_accounts(&self) -> Load {
        let path = format!("api/v1/namespaces/{ELSEWHERE}/serviceaccounts/{{caller}}");
        self.load(&self.stranger, Method::PUT, &path, |caller, count| {
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": caller,
                "annotations": {"count": count.to_string()}}})
        })
    }

    /// What the API server does for so long under this load.
    pub(super) async fn profile(&self, load: &Load, length: Duration) -> Result<Profile> {
        let url = format!("{}debug/pprof/profile?seconds={}", self.cluster.url(), length.as_secs());
        let profile = async {
            let answer = self.profiler.get(&url).send().await?.error_for_status()?;
            anyhow::Ok(answer.bytes().await?)
        };
        // The load goes on a little longer than the profile.
        let load = load.run(self.pid(), length + Duration::from_secs(1));
        let (profile, _) = tokio::try_join!(profile, load).context("profile the API server")?;
        Profile::read(&profile)
    }

    fn load(
        &self,
        client: &reqwest::Client,
        method: Method,
        path: &str,
        body: fn(&str, u64) -> Value,
    ) -> Load {
        let url = format!("{}{path}", self.cluster.url());
        Load { client: client.clone(), method, url, body }
    }

    /// Namespaces, accounts and objects of the loads.
    async fn make_namespaces(&self) -> Result<()> {
        let mut objects = vec![
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT, "labels": {
                MANAGED_BY_LABEL: MANAGED_BY_VALUE, WORKSPACE_LABEL: TENANT,
                "pod-security.kubernetes.io/enforce": "baseline"}}}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": SERVICE_ACCOUNT_NAME, "namespace": TENANT}}),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ELSEWHERE}}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": STRANGER, "namespace": ELSEWHERE},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                    "name": "edit"},
                "subjects": [{"kind": "User", "name": STRANGER,
                    "apiGroup": "rbac.authorization.k8s.io"}]}),
        ];
        for caller in Load::callers() {
            for kind in ["ConfigMap", "ServiceAccount"] {
                objects.push(json!({"apiVersion": "v1", "kind": kind,
                    "metadata": {"name": caller, "namespace": ELSEWHERE}}));
            }
        }
        for object in objects {
            self.apply(serde_json::from_value(object).context("make an object")?).await?;
        }
        Ok(())
    }

    async fn apply(&self, object: DynamicObject) -> Result<()> {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let how = PatchParams::apply("measure").force();
        self.api(&object)
            .patch(name, &how, &Patch::Apply(&object))
            .await
            .with_context(|| format!("apply {name}"))?;
        Ok(())
    }

    fn api(&self, object: &DynamicObject) -> Api<DynamicObject> {
        let types = object.types.clone().unwrap_or_default();
        let (group, version) =
            types.api_version.split_once('/').unwrap_or(("", &types.api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
        match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(self.admin.clone(), namespace, &resource),
            None => Api::all_with(self.admin.clone(), &resource),
        }
    }

    /// Tries what the last of the policies refuses.
    async fn until_fenced(&self, fenced: bool) -> Result<()> {
        let url =
            format!("{}api/v1/namespaces/default/serviceaccounts?dryRun=All", self.cluster.url());
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": SERVICE_ACCOUNT_NAME}});
        probe::until("the policies to change", CHANGE_LIMIT, || async {
            let status = self.broker.post(&url).json(&account).send().await?.status();
            let is_so = if fenced { status == 403 } else { status == 201 };
            Ok(if is_so { Probe::Ready(()) } else { Probe::NotYet(status.to_string()) })
        })
        .await
    }
}

fn client(
    cluster: &ControlPlane,
    identity: &crate::authority::Identity,
) -> Result<reqwest::Client> {
    let pem = format!("{}{}", identity.certificate, identity.key);
    http_client::builder(Some(cluster.authority().certificate()))?
        .identity(reqwest::Identity::from_pem(pem.as_bytes())?)
        .http1_only()
        .build()
        .context("build an HTTP client")
}

/// The policies and their bindings of a manifest, in its order.
fn policies(manifest: &str) -> Result<Vec<DynamicObject>> {
    let mut policies = Vec::new();
    for document in serde_norway::Deserializer::from_str(manifest) {
        let document = Value::deserialize(document).context("read the manifest")?;
        let kind = document["kind"].as_str().unwrap_or_default();
        if kind.starts_with("ValidatingAdmissionPolicy") {
            let mut object: DynamicObject =
                serde_json::from_value(document.clone()).context("read a policy")?;
            object.types = Some(TypeMeta {
                api_version: document["apiVersion"].as_str().unwrap_or_default().to_owned(),
                kind: kind.to_owned(),
            });
            policies.push(object);
        }
    }
    ensure!(!policies.is_empty(), "tenant-broker install printed no policy");
    Ok(policies)
}
