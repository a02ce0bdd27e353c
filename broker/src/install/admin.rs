//! What `install` does with an administrator's rights: apply, show the difference, take away.
//!
//! Only objects that carry our label are ever deleted, and never one of a tenant.

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Config,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    },
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::Deserialize as _;
use tenant_shared::WORKSPACE_LABEL;

use super::{INSTALLED_BY_LABEL, INSTALLED_BY_VALUE};
use crate::cluster::pem;

/// Who the fields belong to (server-side apply).
const FIELD_MANAGER: &str = "tenant-broker-install";
/// Every kind that `install` makes or made, as group and kind. Rights are taken away first: while
/// the broker has any, the fence stands.
const KINDS: [(&str, &str); 7] = [
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("", "ServiceAccount"),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
];

/// The cluster, reached as an administrator.
pub struct Administrator {
    client: Client,
    /// The cluster's entry of a kubeconfig.
    cluster: serde_json::Value,
}

impl std::fmt::Debug for Administrator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Administrator").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl Administrator {
    /// By a kubeconfig: this file, or the one that kubectl would take.
    ///
    /// # Errors
    /// It cannot be read or used.
    pub async fn connect(
        file: Option<&std::path::Path>,
        context: Option<String>,
    ) -> anyhow::Result<Self> {
        let kubeconfig = match file {
            Some(file) => Kubeconfig::read_from(file)
                .with_context(|| format!("cannot read {} (--kubeconfig)", file.display()))?,
            None => Kubeconfig::read().context(
                "cannot read a kubeconfig; name an administrator's with --kubeconfig FILE",
            )?,
        };
        let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .context("cannot use the administrator's kubeconfig")?;
        let cluster = cluster_entry(&config)?;
        let client =
            Client::try_from(config).context("cannot prepare the connection to the cluster")?;
        Ok(Self { client, cluster })
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(super) fn cluster_entry(&self) -> &serde_json::Value {
        &self.cluster
    }

    /// Makes what is missing, changes what differs, and deletes what an earlier run made and this one
    /// does not.
    /// Returns a line for each object.
    ///
    /// # Errors
    /// The API server refuses; what was applied before stays, and applying again goes on.
    pub async fn apply(&self, yaml: &str) -> anyhow::Result<String> {
        let mut report = String::new();
        let objects = objects(yaml)?;
        for object in &objects {
            let before = self.there(object).await?;
            let after = self.patch(object, false).await?;
            let what = match before {
                None => "created",
                Some(there)
                    if there.metadata.resource_version == after.metadata.resource_version =>
                {
                    "unchanged"
                }
                Some(_) => "changed",
            };
            line(&mut report, &format!("{} {what}", title(object)));
        }
        for old in self.ours().await? {
            if !objects.iter().any(|object| title(object) == title(&old)) {
                self.delete(&old).await?;
                line(&mut report, &format!("{} deleted: not asked for any more", title(&old)));
            }
        }
        Ok(report)
    }

    /// What [`Administrator::apply`] would change, as the lines of a unified diff; empty if nothing.
    /// The API server itself says what would come out (dry run).
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn diff(&self, yaml: &str) -> anyhow::Result<String> {
        let mut report = String::new();
        let objects = objects(yaml)?;
        for object in &objects {
            let before = self.there(object).await?.map(plain).transpose()?.unwrap_or_default();
            let after = plain(self.patch(object, true).await?)?;
            report += &unified(&title(object), &before, &after);
        }
        for old in self.ours().await? {
            if !objects.iter().any(|object| title(object) == title(&old)) {
                report += &unified(&title(&old), &plain(old.clone())?, "");
            }
        }
        Ok(report)
    }

    /// Deletes everything that `install` made. Returns a line for each object, and one that counts
    /// the tenants' namespaces, which stay.
    ///
    /// # Errors
    /// The API server refuses; running it again goes on.
    pub async fn uninstall(&self) -> anyhow::Result<String> {
        let mut report = String::new();
        for object in self.ours().await? {
            self.delete(&object).await?;
            line(&mut report, &format!("{} deleted", title(&object)));
        }
        let api: Api<Namespace> = Api::all(self.client.clone());
        let selector = WORKSPACE_LABEL;
        let namespaces = api
            .list_metadata(&ListParams::default().labels(selector))
            .await
            .context("cannot count the tenants' namespaces")?;
        if !namespaces.items.is_empty() {
            line(
                &mut report,
                &format!(
                    "{} namespaces of tenants stay, with all that is in them. Nothing guards them \
                     any more: their tenants may now make tokens that never end and let others in \
                     (kubectl get namespaces -l {selector})",
                    namespaces.items.len()
                ),
            );
        }
        Ok(report)
    }

    fn api(&self, object: &DynamicObject) -> Api<DynamicObject> {
        let types = object.types.clone().unwrap_or_default();
        let (group, version) =
            types.api_version.split_once('/').unwrap_or(("", &types.api_version));
        let kind = GroupVersionKind::gvk(group, version, &types.kind);
        let resource = ApiResource::from_gvk(&kind);
        match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(self.client(), namespace, &resource),
            None => Api::all_with(self.client(), &resource),
        }
    }

    async fn there(&self, object: &DynamicObject) -> anyhow::Result<Option<DynamicObject>> {
        self.api(object)
            .get_opt(&name(object))
            .await
            .with_context(|| format!("cannot read {}", title(object)))
    }

    async fn patch(&self, object: &DynamicObject, dry_run: bool) -> anyhow::Result<DynamicObject> {
        let mut how = PatchParams::apply(FIELD_MANAGER).force();
        how.dry_run = dry_run;
        self.api(object).patch(&name(object), &how, &Patch::Apply(object)).await.with_context(|| {
            format!(
                "cannot apply {}; does the kubeconfig belong to an administrator, and is the API \
                 server of Kubernetes 1.30 or later?",
                title(object)
            )
        })
    }

    async fn delete(&self, object: &DynamicObject) -> anyhow::Result<()> {
        match self.api(object).delete(&name(object), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot delete {}", title(object))),
            Ok(_) => Ok(()),
        }
    }

    /// What carries our label, in the order of [`KINDS`].
    async fn ours(&self) -> anyhow::Result<Vec<DynamicObject>> {
        let ours =
            ListParams::default().labels(&format!("{INSTALLED_BY_LABEL}={INSTALLED_BY_VALUE}"));
        let mut found = Vec::new();
        for (group, kind) in KINDS {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            let list = match api.list(&ours).await {
                Ok(list) => list.items,
                // An API server that does not know the kind has none.
                Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
                Err(error) => return Err(error).with_context(|| format!("cannot list {kind}s")),
            };
            found.extend(list.into_iter().map(|mut object| {
                // Items of a list lack their type.
                object.types = Some(kube::api::TypeMeta {
                    api_version: if group.is_empty() {
                        "v1".to_owned()
                    } else {
                        format!("{group}/v1")
                    },
                    kind: kind.to_owned(),
                });
                object
            }));
        }
        Ok(found)
    }
}

/// How the administrator reaches the cluster is how the broker will.
fn cluster_entry(config: &Config) -> anyhow::Result<serde_json::Value> {
    let server = config.cluster_url.to_string();
    let mut entry = serde_json::json!({"server": server.trim_end_matches('/')});
    let pem = match (&config.root_cert_file, &config.root_cert) {
        (Some(path), _) => Some(std::fs::read(path).with_context(|| {
            format!("cannot read the CA {} of the administrator's kubeconfig", path.display())
        })?),
        (None, Some(certificates)) => {
            Some(certificates.iter().map(|der| pem(der)).collect::<String>().into_bytes())
        }
        (None, None) => None,
    };
    if let Some(pem) = pem {
        entry["certificate-authority-data"] = STANDARD.encode(pem).into();
    }
    if let Some(name) = &config.tls_server_name {
        entry["tls-server-name"] = name.as_str().into();
    }
    Ok(entry)
}

fn line(report: &mut String, text: &str) {
    report.push_str(text);
    report.push('\n');
}

fn name(object: &DynamicObject) -> String {
    object.metadata.name.clone().unwrap_or_default()
}

fn title(object: &DynamicObject) -> String {
    let kind = object.types.as_ref().map_or("", |types| types.kind.as_str());
    format!("{kind} {}", name(object))
}

fn objects(yaml: &str) -> anyhow::Result<Vec<DynamicObject>> {
    let mut objects = Vec::new();
    for document in serde_norway::Deserializer::from_str(yaml) {
        let value = serde_norway::Value::deserialize(document).context("read the manifest")?;
        // The text in front of the first line of dashes.
        if value.is_null() {
            continue;
        }
        let object: DynamicObject = serde_norway::from_value(value).context("read the manifest")?;
        if object.types.is_none() || object.metadata.name.is_none() {
            bail!("the manifest has an object without kind or name");
        }
        objects.push(object);
    }
    Ok(objects)
}

/// An object as YAML, without what the API server keeps for itself.
fn plain(mut object: DynamicObject) -> anyhow::Result<String> {
    let labels = object.metadata.labels.take();
    let annotations = object.metadata.annotations.take();
    object.metadata = kube::api::ObjectMeta {
        name: object.metadata.name.take(),
        namespace: object.metadata.namespace.take(),
        labels,
        annotations,
        ..kube::api::ObjectMeta::default()
    };
    if let Some(fields) = object.data.as_object_mut() {
        fields.remove("status");
    }
    serde_norway::to_string(&object).context("write an object as YAML")
}

fn unified(title: &str, before: &str, after: &str) -> String {
    if before == after {
        return String::new();
    }
    similar::TextDiff::from_lines(before, after)
        .unified_diff()
        .header(&format!("{title} (in the cluster)"), &format!("{title} (this version)"))
        .to_string()
}
