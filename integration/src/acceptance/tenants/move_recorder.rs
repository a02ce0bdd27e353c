//! The objects of a namespace while it goes from one tenant to another, as the watches of the API
//! server show them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::kubectl::Kubectl;
use crate::process::Captured;

/// The kinds that are watched, with their paths below that of the namespace.
const KINDS: [(&str, &str, &str); 3] = [
    ("RoleBinding", "/apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    ("ResourceQuota", "/api/v1", "resourcequotas"),
    ("LimitRange", "/api/v1", "limitranges"),
];

type Live = BTreeMap<(String, String), Value>;

/// The events of a namespace since a moment, in the order in which the API server stored them.
#[derive(Debug)]
pub struct MoveRecorder {
    /// The amount of pods in `tenant-quota-0` of each tenant.
    pods: BTreeMap<String, String>,
    initial: Live,
    watches: Vec<Captured>,
}

impl MoveRecorder {
    /// Begins with the present state. Each tenant has its own amount of pods in its first quota.
    ///
    /// # Errors
    /// kubectl fails.
    pub async fn start(admin: &Kubectl, namespace: &str, pods: &[(&str, &str)]) -> Result<Self> {
        let (mut initial, mut watches) = (Live::new(), Vec::new());
        for (kind, group, resource) in KINDS {
            let path = format!("{group}/namespaces/{namespace}/{resource}");
            let list = admin.run(["get", "--raw", &path]).await?.success()?;
            let list: Value = serde_json::from_str(&list.stdout)?;
            let version = list["metadata"]["resourceVersion"].as_str().context("a version")?;
            let watch = format!("{path}?watch=1&resourceVersion={version}");
            watches.push(admin.spawn(["get", "--raw", &watch])?);
            for item in list["items"].as_array().context("a list has items")? {
                let mut item = item.clone();
                item["kind"] = kind.into();
                initial.insert(key(&item), item);
            }
        }
        let owned = |(tenant, pods): &(&str, &str)| ((*tenant).to_owned(), (*pods).to_owned());
        Ok(Self { pods: pods.iter().map(owned).collect(), initial, watches })
    }

    /// The events until now.
    fn events(&self) -> Result<Vec<(u64, bool, Value)>> {
        let mut events = Vec::new();
        for watch in &self.watches {
            // The last line may be incomplete.
            let text = watch.stdout()?;
            for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
                let event: Value = serde_json::from_str(line)?;
                let object = event["object"].clone();
                let version = object["metadata"]["resourceVersion"].as_str();
                let version = version.with_context(|| format!("no version: {event}"))?.parse()?;
                events.push((version, event["type"] == "DELETED", object));
            }
        }
        events.sort_by_key(|(version, _, _)| *version);
        Ok(events)
    }

    /// Checks each moment: only one tenant has rights, and its limits are enforced. Returns how often
    /// the rights went from one tenant to the other.
    ///
    /// # Errors
    /// A moment breaks a rule.
    pub fn check(&self) -> Result<usize> {
        let mut live = self.initial.clone();
        let (mut changes, mut last) = (0, self.tenant_with_rights(&live)?);
        for (_, is_deleted, object) in self.events()? {
            if is_deleted {
                live.remove(&key(&object));
            } else {
                live.insert(key(&object), object);
            }
            let now = self.tenant_with_rights(&live)?;
            if let (Some(before), Some(now)) = (&last, &now)
                && before != now
            {
                changes += 1;
            }
            last = now.or(last);
        }
        Ok(changes)
    }

    /// The only tenant with a RoleBinding; its limits hold. There are limits at every moment.
    fn tenant_with_rights(&self, live: &Live) -> Result<Option<String>> {
        let of_kind =
            |kind: &str| live.values().filter(|it| it["kind"] == kind).collect::<Vec<&Value>>();
        let (quotas, ranges) = (of_kind("ResourceQuota"), of_kind("LimitRange"));
        ensure!(!quotas.is_empty() && !ranges.is_empty(), "no limits: {live:#?}");
        let is_ours = |binding: &&Value| text(&binding["metadata"]["name"]).starts_with("tenant-");
        let bindings = of_kind("RoleBinding").into_iter().filter(is_ours);
        let tenants: Vec<&str> = bindings.map(tenant_of).collect();
        let Some(tenant) = tenants.first() else { return Ok(None) };
        ensure!(tenants.iter().all(|other| other == tenant), "rights of both: {live:#?}");
        let pods = self.pods.get(*tenant).with_context(|| format!("no such tenant: {tenant}"))?;
        let quota = quotas.iter().find(|it| it["metadata"]["name"] == "tenant-quota-0");
        let quota = quota.with_context(|| format!("no quota: {live:#?}"))?;
        ensure!(tenant_of(quota) == *tenant, "the quota of another tenant: {live:#?}");
        ensure!(quota["spec"]["hard"]["pods"] == **pods, "{live:#?}");
        ensure!(quota["status"]["hard"]["pods"] == **pods, "not enforced: {live:#?}");
        Ok(Some((*tenant).to_owned()))
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn key(object: &Value) -> (String, String) {
    (text(&object["kind"]).to_owned(), text(&object["metadata"]["name"]).to_owned())
}

fn tenant_of(object: &Value) -> &str {
    text(&object["metadata"]["labels"]["tenant-broker.io/tenant"])
}
