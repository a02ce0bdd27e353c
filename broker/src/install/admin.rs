//! `tenant-broker install` with an administrator's credential: apply, diff, uninstall.
//!
//! It deletes only objects with the label of `install`, never objects of tenants, and no definition
//! that has objects.

use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::{
    api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry,
};
use kube::{
    Api, Client, Config,
    api::{
        ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
    },
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::Deserialize as _;
use tenant_shared::{TENANT_LABEL, WORKSPACE_LABEL, sanitize};

use super::{INSTALLED_BY_LABEL, INSTALLED_BY_VALUE};
use crate::cluster::pem;

/// Time limit to open a connection to the API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit to wait for a response. Admission webhooks delay one by up to 30 s.
const READ_TIMEOUT: Duration = Duration::from_mins(1);
/// The field manager of server-side apply.
const FIELD_MANAGER: &str = "tenant-broker-install";
/// Requests that replace the specification of a policy, because others write it at the same time.
const MAX_REPLACEMENTS: u32 = 5;
/// Every kind that this version or an earlier one installs, as group and kind, in the order of
/// deletion. The ClusterRole is deleted before the policies: as long as the broker has permissions,
/// the policies restrict them.
const INSTALLED_KINDS: [(&str, &str); 10] = [
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("", "ServiceAccount"),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
];

/// Takes each line of a report as soon as its object is done.
pub struct Report<'a>(&'a mut (dyn FnMut(&str) -> anyhow::Result<()> + Send));

impl<'a> Report<'a> {
    /// A report whose lines, each with its line feed, are passed to `write`.
    pub fn new(write: &'a mut (dyn FnMut(&str) -> anyhow::Result<()> + Send)) -> Self {
        Self(write)
    }

    /// Adds a line. Names of objects in it may have line feeds and control characters.
    pub(super) fn line(&mut self, text: &str) -> anyhow::Result<()> {
        (self.0)(&(sanitize(text) + "\n"))
    }
}

/// A connection to the cluster with an administrator's credential.
pub struct Administrator {
    pub(super) client: Client,
    /// The cluster's entry in a kubeconfig.
    pub(super) cluster: serde_json::Value,
}

impl std::fmt::Debug for Administrator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Administrator").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl Administrator {
    /// Connects with a kubeconfig: this file, or the one that kubectl would use.
    ///
    /// # Errors
    /// The kubeconfig cannot be read or used.
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
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .context("cannot use the administrator's kubeconfig")?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = Some(READ_TIMEOUT);
        config.write_timeout = Some(READ_TIMEOUT);
        let cluster = cluster_entry(&config)?;
        let client =
            Client::try_from(config).context("cannot prepare the connection to the cluster")?;
        Ok(Self { client, cluster })
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Creates missing objects, changes those that differ, and deletes those of an earlier run that
    /// are not in this manifest, except for definitions that have objects. Leaves objects out whose
    /// kind the API server does not serve. Reports a line for each object.
    ///
    /// # Errors
    /// A definition belongs to another program, or the API server refuses. Objects that were
    /// already applied stay; applying again continues.
    pub async fn apply(&self, yaml: &str, report: &mut Report<'_>) -> anyhow::Result<()> {
        let (objects, left_out) = self.served_objects(objects(yaml)?).await?;
        for line in left_out {
            report.line(&line)?;
        }
        self.check_definitions(&objects).await?;
        for object in &objects {
            let before = self.get(object).await?;
            let after = self.patch(object, false).await?;
            let result = match before {
                None => "created",
                Some(there)
                    if there.metadata.resource_version == after.metadata.resource_version =>
                {
                    "unchanged"
                }
                Some(_) => "changed",
            };
            report.line(&format!("{} {result}", title(object)))?;
        }
        for old in self.installed_objects().await? {
            if !objects.iter().any(|object| title(object) == title(&old)) {
                let line = self.remove(&old, ": no longer part of the installation").await?;
                report.line(&line)?;
            }
        }
        Ok(())
    }

    /// The changes that [`Administrator::apply`] would make, as a unified diff; empty if there are
    /// none. The API server itself computes the result (dry run).
    ///
    /// # Errors
    /// A definition belongs to another program, or the API server refuses.
    pub async fn diff(&self, yaml: &str) -> anyhow::Result<String> {
        let mut report = String::new();
        let (objects, _) = self.served_objects(objects(yaml)?).await?;
        self.check_definitions(&objects).await?;
        for object in &objects {
            let before =
                self.get(object).await?.map(comparable_yaml).transpose()?.unwrap_or_default();
            let after = comparable_yaml(self.patch(object, true).await?)?;
            report += &unified_diff(&title(object), &before, &after);
        }
        for old in self.installed_objects().await? {
            let is_wanted = objects.iter().any(|object| title(object) == title(&old));
            if !is_wanted && self.reason_to_keep(&old).await?.is_none() {
                report += &unified_diff(&title(&old), &comparable_yaml(old.clone())?, "");
            }
        }
        Ok(report)
    }

    /// Deletes all installed objects, except for definitions that have objects. Reports a line for
    /// each object, and those with the numbers of tenants' namespaces, which stay.
    ///
    /// # Errors
    /// The API server refuses; running it again continues.
    pub async fn uninstall(&self, report: &mut Report<'_>) -> anyhow::Result<()> {
        for object in self.installed_objects().await? {
            let line = self.remove(&object, "").await?;
            report.line(&line)?;
        }
        let api: Api<Namespace> = Api::all(self.client.clone());
        for selector in [WORKSPACE_LABEL, TENANT_LABEL] {
            let namespaces = api
                .list_metadata(&ListParams::default().labels(selector))
                .await
                .context("cannot count the tenants' namespaces")?;
            if !namespaces.items.is_empty() {
                report.line(&format!(
                    "{} namespaces of tenants stay, with everything in them. No policy protects \
                     them any more: tenants may now create tokens that never expire and give \
                     others access \
                     (kubectl get namespaces -l {selector})",
                    namespaces.items.len()
                ))?;
            }
        }
        Ok(())
    }

    pub(super) fn api(&self, object: &DynamicObject) -> Api<DynamicObject> {
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

    pub(super) async fn get(
        &self,
        object: &DynamicObject,
    ) -> anyhow::Result<Option<DynamicObject>> {
        self.api(object)
            .get_opt(&name(object))
            .await
            .with_context(|| format!("cannot read {}", title(object)))
    }

    /// Applies an object. The specification of a policy is then exactly that of the manifest, because
    /// server-side apply keeps match conditions and selectors that others added, and a policy with one
    /// more of them may hold for nobody.
    async fn patch(&self, object: &DynamicObject, dry_run: bool) -> anyhow::Result<DynamicObject> {
        let mut how = PatchParams::apply(FIELD_MANAGER).force();
        how.dry_run = dry_run;
        let context = || {
            format!(
                "cannot apply {}; does the kubeconfig belong to an administrator, and is the API \
                 server of Kubernetes 1.30 or later?",
                title(object)
            )
        };
        let api = self.api(object);
        let applied = api.patch(&name(object), &how, &Patch::Apply(object)).await;
        let mut applied = applied.with_context(context)?;
        if !is_policy(object) || !has_fields_of_others(&applied) {
            return Ok(applied);
        }
        let how = PostParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()) };
        let mut attempts = 1;
        loop {
            applied.data["spec"] = object.data["spec"].clone();
            match api.replace(&name(object), &how, &applied).await {
                // The status controller writes a new policy as well.
                Err(kube::Error::Api(status))
                    if status.code == 409 && attempts < MAX_REPLACEMENTS =>
                {
                    attempts += 1;
                    applied = api.get(&name(object)).await.with_context(context)?;
                }
                replaced => return replaced.with_context(context),
            }
        }
    }

    /// All objects with the label of `install`, in the order of [`INSTALLED_KINDS`].
    async fn installed_objects(&self) -> anyhow::Result<Vec<DynamicObject>> {
        let selector =
            ListParams::default().labels(&format!("{INSTALLED_BY_LABEL}={INSTALLED_BY_VALUE}"));
        let mut found = Vec::new();
        for (group, kind) in INSTALLED_KINDS {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            let list = match api.list(&selector).await {
                Ok(list) => list.items,
                // An API server that does not serve the kind has no objects of it.
                Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
                Err(error) => return Err(error).with_context(|| format!("cannot list {kind}s")),
            };
            found.extend(list.into_iter().map(|mut object| {
                // Items of a list have no type.
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

/// The cluster's entry for the broker's kubeconfig: the same server and CA as the administrator's.
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

/// Whether the object defines a kind.
pub(super) fn is_definition(object: &DynamicObject) -> bool {
    object.types.as_ref().is_some_and(|types| types.kind == "CustomResourceDefinition")
}

/// Whether the object is an admission policy or its binding.
fn is_policy(object: &DynamicObject) -> bool {
    let types = object.types.as_ref();
    types.is_some_and(|types| types.api_version.starts_with("admissionregistration.k8s.io/"))
}

/// Whether others set fields of the object's specification. Server-side apply takes away those of its own
/// manager and operation only, not those that a PUT of `install` set.
fn has_fields_of_others(object: &DynamicObject) -> bool {
    let entries = object.metadata.managed_fields.iter().flatten();
    let is_of_spec = |entry: &&ManagedFieldsEntry| {
        entry.fields_v1.as_ref().is_some_and(|fields| fields.0.get("f:spec").is_some())
    };
    let is_applied = |entry: &ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER)
            && entry.operation.as_deref() == Some("Apply")
    };
    entries.filter(is_of_spec).any(|entry| !is_applied(entry))
}

pub(super) fn name(object: &DynamicObject) -> String {
    object.metadata.name.clone().unwrap_or_default()
}

/// Kind and name of an object.
pub(super) fn title(object: &DynamicObject) -> String {
    let kind = object.types.as_ref().map_or("", |types| types.kind.as_str());
    format!("{kind} {}", name(object))
}

fn objects(yaml: &str) -> anyhow::Result<Vec<DynamicObject>> {
    let mut objects = Vec::new();
    for document in serde_norway::Deserializer::from_str(yaml) {
        let value = serde_norway::Value::deserialize(document).context("read the manifest")?;
        // The document before the first separator has only comments.
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

/// An object as YAML, without status and the metadata that the API server maintains.
fn comparable_yaml(mut object: DynamicObject) -> anyhow::Result<String> {
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

fn unified_diff(title: &str, before: &str, after: &str) -> String {
    if before == after {
        return String::new();
    }
    let title = sanitize(title);
    similar::TextDiff::from_lines(before, after)
        .unified_diff()
        .header(&format!("{title} (in the cluster)"), &format!("{title} (this version)"))
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_break_the_report() {
        let mut text = String::new();
        let mut write = |line: &str| {
            text += line;
            Ok(())
        };
        Report::new(&mut write).line("ClusterRole a\u{1b}[2J\u{202e}b\nx deleted").unwrap();
        assert_eq!(text, "ClusterRole a [2J b x deleted\n");
    }
}
