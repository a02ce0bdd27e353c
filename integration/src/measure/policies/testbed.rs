//! The testbed of the policies: a control plane whose admission policies can be swapped.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Method};
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tenant_shared::{
    MANAGED_BY_LABEL, MANAGED_BY_VALUE, SERVICE_ACCOUNT_NAME, TOKEN_LIFETIME_SECONDS,
    WORKSPACE_LABEL,
};

use super::load::Load;
use super::manifest::{is_mutating, policies};
use super::marker;
use super::profile::Profile;
use crate::broker;
use crate::control_plane::{BROKER_USER, ControlPlane, ControlPlaneOptions};
use crate::http_client;
use crate::kubectl::Kubectl;
use crate::probe::{self, Probe};
use crate::process::Program;

/// Timeout until changed policies are in force; the API server reloads policies once a second.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(20);
/// A namespace as the broker creates it.
const TENANT: &str = "tenant-01940000-0000-7000-8000-000000000001";
/// A namespace that is not a tenant's, and its user.
const OTHER_NAMESPACE: &str = "elsewhere";
const OTHER_USER: &str = "other_user";
/// A user who may create and delete all namespaces, and who is no administrator otherwise.
const NAMESPACE_MANAGER: &str = "namespace-manager";
/// The user who may read profiles.
const PROFILER: &str = "profiler";
const MASTERS: Option<&str> = Some("system:masters");

/// A set of policies with their bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicySet {
    /// The policies that the measured broker installs.
    Current,
    /// The policies to compare with: those of another version, or none.
    Baseline,
}

/// A control plane with a tenant's namespace and another one.
pub struct PolicyTestbed {
    cluster: ControlPlane,
    admin: Client,
    broker: reqwest::Client,
    other_user: reqwest::Client,
    namespace_manager: reqwest::Client,
    tenant: reqwest::Client,
    profiler: reqwest::Client,
    current: Vec<DynamicObject>,
    baseline: Vec<DynamicObject>,
}

impl std::fmt::Debug for PolicyTestbed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PolicyTestbed").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl PolicyTestbed {
    /// Starts a control plane below `folder`. The current policies are those that `program`
    /// (`tenant-broker`) installs with these settings (`key=value`); `baseline` is the manifest of the
    /// policies to compare with, empty for none.
    ///
    /// # Errors
    /// A part does not start, the API server refuses, or a manifest cannot be read.
    pub async fn start(
        program: &Path,
        settings: &[String],
        baseline: &str,
        folder: &Path,
    ) -> Result<Self> {
        let options = ControlPlaneOptions { folder: Some(folder.into()), ..Default::default() };
        let cluster = ControlPlane::start(options).await?;
        let kubectl = |kubeconfig: &Path| Kubectl::new(folder, kubeconfig, None);
        let as_admin = kubectl(cluster.admin_kubeconfig())?;
        let as_broker = kubectl(cluster.broker_kubeconfig())?;
        broker::install(program, BROKER_USER, settings, &as_admin, &as_broker).await?;
        let current = policies(&manifest(program, settings).await?)?;
        ensure!(!current.is_empty(), "tenant-broker install printed no policy");
        let broker = cluster.http_client(cluster.broker_identity())?;
        let client =
            |user: &str, group| cluster.http_client(&cluster.authority().client(user, group)?);
        let mut testbed = Self {
            admin: cluster.admin().await?,
            other_user: client(OTHER_USER, None)?,
            namespace_manager: client(NAMESPACE_MANAGER, None)?,
            profiler: client(PROFILER, MASTERS)?,
            tenant: broker.clone(),
            broker,
            current,
            baseline: policies(baseline)?,
            cluster,
        };
        testbed.make_objects().await?;
        testbed.tenant = testbed.tenant().await?;
        Ok(testbed)
    }

    /// Process id of the API server.
    pub(super) fn pid(&self) -> u32 {
        self.cluster.api_server_pid()
    }

    /// Swaps the policies and returns once the set is in force.
    pub(super) async fn use_set(&self, set: PolicySet) -> Result<()> {
        let (wanted, other) = match set {
            PolicySet::Current => (&self.current, &self.baseline),
            PolicySet::Baseline => (&self.baseline, &self.current),
        };
        let key = |object: &DynamicObject| (object.types.clone(), object.metadata.name.clone());
        for object in wanted {
            self.apply(object.clone()).await?;
        }
        for object in other.iter().filter(|object| wanted.iter().all(|one| key(one) != key(object)))
        {
            let name = object.metadata.name.as_deref().unwrap_or_default();
            match self.api(object).delete(name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => drop(other.with_context(|| format!("delete {name}"))?),
            }
        }
        self.mark(&format!("{set:?}")).await
    }

    /// TokenRequests as the broker sends them.
    pub(super) fn tokens(&self) -> Load {
        let path =
            format!("api/v1/namespaces/{TENANT}/serviceaccounts/{SERVICE_ACCOUNT_NAME}/token");
        self.load(&self.broker, Method::POST, &path, |_, _| {
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                "spec": {"expirationSeconds": TOKEN_LIFETIME_SECONDS, "audiences": []}})
        })
    }

    /// ConfigMaps that a user changes in another namespace.
    pub(super) fn config_maps(&self) -> Load {
        let path = format!("api/v1/namespaces/{OTHER_NAMESPACE}/configmaps/{{caller}}");
        self.load(&self.other_user, Method::PUT, &path, |caller, count| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": caller},
                "data": {"count": count.to_string()}})
        })
    }

    /// ServiceAccounts there, a kind that our policies match.
    pub(super) fn service_accounts(&self) -> Load {
        let path = format!("api/v1/namespaces/{OTHER_NAMESPACE}/serviceaccounts/{{caller}}");
        self.load(&self.other_user, Method::PUT, &path, |caller, count| {
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": caller,
                "annotations": {"count": count.to_string()}}})
        })
    }

    /// Namespaces of no tenant that a user creates. It is a dry run, because the end of a namespace
    /// takes seconds.
    pub(super) fn namespaces(&self) -> Load {
        let path = "api/v1/namespaces?dryRun=All";
        self.load(&self.namespace_manager, Method::POST, path, |caller, _| {
            json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": format!("{OTHER_NAMESPACE}-{caller}")}})
        })
    }

    /// Services that the tenant creates and deletes again, because the cluster addresses would run
    /// out.
    pub(super) fn services(&self) -> Load {
        let path = format!("api/v1/namespaces/{TENANT}/services");
        let load = self.load(&self.tenant, Method::POST, &path, |caller, _| {
            json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"generateName": format!("{caller}-")},
                "spec": {"selector": {"app": "measured"}, "ports": [{"port": 80}]}})
        });
        Load { deletes: true, ..load }
    }

    /// Pods that the tenant creates.
    pub(super) fn pods(&self) -> Load {
        let path = format!("api/v1/namespaces/{TENANT}/pods");
        self.load(&self.tenant, Method::POST, &path, |caller, _| {
            json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"generateName": format!("{caller}-")},
                "spec": {"containers": [{"name": "main", "image": "example.com/app:1",
                    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"},
                        "limits": {"cpu": "100m", "memory": "64Mi"}}}]}})
        })
    }

    /// Profiles the API server for this time under this load.
    pub(super) async fn profile(&self, load: &Load, length: Duration) -> Result<Profile> {
        let url = format!("{}debug/pprof/profile?seconds={}", self.cluster.url(), length.as_secs());
        let profile = async {
            let answer = self.profiler.get(&url).send().await?.error_for_status()?;
            anyhow::Ok(answer.bytes().await?)
        };
        // The load lasts a little longer than the profile.
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
        Load { client: client.clone(), method, url, body, deletes: false }
    }

    /// Returns a client with the tenant's two-hour token.
    async fn tenant(&self) -> Result<reqwest::Client> {
        let Load { client, method, url, body, .. } = self.tokens();
        let answer = client.request(method, url).json(&body("", 0)).send().await?;
        let answer: Value = answer.error_for_status().context("ask for a token")?.json().await?;
        let token = answer["status"]["token"].as_str().context("the answer has no token")?;
        let token = SecretString::from(token);
        let mut bearer = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))?;
        bearer.set_sensitive(true);
        http_client::builder(Some(self.cluster.authority().certificate()))?
            .default_headers(HeaderMap::from_iter([(AUTHORIZATION, bearer)]))
            .http1_only()
            .build()
            .context("build an HTTP client")
    }

    /// Creates the namespaces, accounts and objects of the loads.
    async fn make_objects(&self) -> Result<()> {
        let mut objects = vec![
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT, "labels": {
                MANAGED_BY_LABEL: MANAGED_BY_VALUE, WORKSPACE_LABEL: TENANT,
                "pod-security.kubernetes.io/enforce": "baseline"}}}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": SERVICE_ACCOUNT_NAME, "namespace": TENANT}}),
            // The account of a pod that names none; no controller creates it in time here.
            json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": "default", "namespace": TENANT}}),
            binding(
                TENANT,
                "admin",
                &json!({"kind": "ServiceAccount",
                "name": SERVICE_ACCOUNT_NAME, "namespace": TENANT}),
            ),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER_NAMESPACE}}),
            binding(
                OTHER_NAMESPACE,
                "edit",
                &json!({"kind": "User", "name": OTHER_USER,
                "apiGroup": "rbac.authorization.k8s.io"}),
            ),
        ];
        objects.extend(namespace_management());
        for caller in Load::callers() {
            for kind in ["ConfigMap", "ServiceAccount"] {
                objects.push(json!({"apiVersion": "v1", "kind": kind,
                    "metadata": {"name": caller, "namespace": OTHER_NAMESPACE}}));
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

    /// Names the set in policies of its own, applied last, and returns once these are in force. Both
    /// sets have them, so that they cost both alike.
    async fn mark(&self, set: &str) -> Result<()> {
        let mutates = self.current.iter().chain(&self.baseline).any(is_mutating);
        for object in marker::objects(set, mutates) {
            self.apply(serde_json::from_value(object).context("make the marker")?).await?;
        }
        let url = format!("{}apis/node.k8s.io/v1/runtimeclasses?dryRun=All", self.cluster.url());
        let (class, refusal) = (marker::runtime_class(), marker::refusal(set, mutates));
        probe::until("the policies to change", CHANGE_TIMEOUT, || async {
            let answer = self.profiler.post(&url).json(&class).send().await?.text().await?;
            let is_in_force = answer.contains(&refusal);
            Ok(if is_in_force { Probe::Ready(()) } else { Probe::NotYet(answer) })
        })
        .await
    }
}

/// Returns the manifest that `program` (`tenant-broker`) installs with these settings (`key=value`).
///
/// # Errors
/// The program fails.
pub async fn manifest(program: &Path, settings: &[String]) -> Result<String> {
    let printed = Program::new(program)
        .clear_env()
        .args(["install", "--set"])
        .arg(format!("cluster.identity={BROKER_USER}"))
        .args(settings.iter().map(|setting| format!("--set={setting}")))
        .run(CHANGE_TIMEOUT)
        .await?
        .success()?;
    Ok(printed.stdout)
}

/// Returns a RoleBinding of a subject to a ClusterRole in a namespace.
fn binding(namespace: &str, role: &str, subject: &Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [subject]})
}

/// Returns the right to create and delete all namespaces, for the user who has it.
fn namespace_management() -> [Value; 2] {
    let rbac = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole",
        "metadata": {"name": NAMESPACE_MANAGER},
        "rules": [{"apiGroups": [""], "resources": ["namespaces"],
            "verbs": ["create", "delete"]}]});
    let binding = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding",
        "metadata": {"name": NAMESPACE_MANAGER},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": NAMESPACE_MANAGER},
        "subjects": [{"kind": "User", "name": NAMESPACE_MANAGER, "apiGroup": rbac}]});
    [role, binding]
}
