//! Fields of a Tenant that the definition keeps and the broker does not carry out. The broker names
//! them in the condition `NotCarriedOut` of the status.

use serde_norway::Value;

use super::fields::is_empty;

/// Groups of fields of which nothing is carried out.
const UNSUPPORTED: [&str; 2] = ["networkPolicies", "containerRegistries"];
/// Domains whose labels and annotations the broker does not set on namespaces, because they steer
/// the cluster. Keys of their subdomains do so too, except for [`DESCRIPTIVE_DOMAIN`].
const RESERVED_DOMAINS: [&str; 3] = ["tenant-broker.io", "kubernetes.io", "k8s.io"];
/// A subdomain whose keys only describe an application.
const DESCRIPTIVE_DOMAIN: &str = "app.kubernetes.io";

/// Paths of the fields of a `spec` that are kept and not carried out.
pub(super) fn fields(spec: &Value) -> Vec<String> {
    let mut paths: Vec<String> = UNSUPPORTED
        .into_iter()
        .filter(|name| spec.get(name).is_some_and(|value| !is_empty(value)))
        .map(|name| format!("spec.{name}"))
        .collect();
    for (name, value) in entries(spec.get("ingressOptions")) {
        let is_default = name == "hostnameCollisionScope" && value == "Disabled";
        if !is_default && !is_empty(value) {
            paths.push(format!("spec.ingressOptions.{name}"));
        }
    }
    let metadata = spec.get("namespaceOptions").and_then(|it| it.get("additionalMetadata"));
    for kind in ["labels", "annotations"] {
        let reserved = entries(metadata.and_then(|it| it.get(kind)));
        let reserved = reserved.filter(|(key, _)| is_reserved(key));
        paths.extend(
            reserved
                .map(|(key, _)| format!("spec.namespaceOptions.additionalMetadata.{kind}[{key}]")),
        );
    }
    let selects_nodes = spec.get("nodeSelector").is_some_and(|value| !is_empty(value));
    for (index, owner) in items(spec.get("owners")).enumerate() {
        for (setting, granted) in items(owner.get("proxySettings")).enumerate() {
            let at = format!("spec.owners[{index}].proxySettings[{setting}]");
            paths.extend(of_proxy_setting(&at, granted, selects_nodes));
        }
    }
    paths
}

/// What is not carried out of a proxy setting: other operations than `List`, and lists that the
/// gateway cannot filter.
fn of_proxy_setting(at: &str, setting: &Value, selects_nodes: bool) -> Vec<String> {
    let mut paths = Vec::new();
    let operations = items(setting.get("operations")).filter_map(Value::as_str);
    let (lists, others): (Vec<&str>, Vec<&str>) = operations.partition(|it| *it == "List");
    if !others.is_empty() {
        paths.push(format!("{at}.operations ({})", others.join(", ")));
    }
    match setting.get("kind").and_then(Value::as_str) {
        _ if lists.is_empty() => {}
        Some("PersistentVolumes") => paths.push(format!("{at}.kind (PersistentVolumes)")),
        Some("Nodes") if !selects_nodes => {
            paths.push(format!("{at}.kind (Nodes without spec.nodeSelector)"));
        }
        _ => {}
    }
    paths
}

/// Names and values of an object's fields.
fn entries(value: Option<&Value>) -> impl Iterator<Item = (&str, &Value)> {
    let mapping = value.and_then(Value::as_mapping);
    mapping.into_iter().flatten().filter_map(|(name, value)| Some((name.as_str()?, value)))
}

/// Items of a list.
fn items(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_sequence).into_iter().flatten()
}

fn is_reserved(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    domain != DESCRIPTIVE_DOMAIN
        && RESERVED_DOMAINS.iter().any(|reserved| {
            domain.strip_suffix(reserved).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Vec<String> {
        fields(&serde_norway::from_str(text).unwrap())
    }

    #[test]
    fn fields_with_a_value_are_named() {
        let text = "networkPolicies: {items: [{}]}\ncontainerRegistries: {allowed: [b]}\n\
                    ingressOptions: {hostnameCollisionScope: Cluster, allowedClasses: {}}\n\
                    namespaceOptions: {additionalMetadata: {labels: {a: b, app.kubernetes.io/x: y, \
                    pod-security.kubernetes.io/enforce: privileged}}}\n\
                    owners: [{kind: User}, {proxySettings: [{operations: [List, Delete]}]}]\n";
        assert_eq!(
            named(text),
            [
                "spec.networkPolicies",
                "spec.containerRegistries",
                "spec.ingressOptions.hostnameCollisionScope",
                "spec.namespaceOptions.additionalMetadata.labels[pod-security.kubernetes.io/enforce]",
                "spec.owners[1].proxySettings[0].operations (Delete)",
            ]
        );
    }

    #[test]
    fn lists_that_cannot_be_filtered_are_named() {
        let owners = "owners: [{proxySettings: [{kind: Nodes, operations: [List]}, \
                      {kind: PersistentVolumes, operations: [List, Update]}, \
                      {kind: StorageClasses, operations: [List]}, \
                      {kind: Nodes, operations: []}]}]\n";
        let volumes = [
            "spec.owners[0].proxySettings[1].operations (Update)",
            "spec.owners[0].proxySettings[1].kind (PersistentVolumes)",
        ];
        assert_eq!(named(&format!("{owners}nodeSelector: {{pool: a}}\n")), volumes);
        let nodes = "spec.owners[0].proxySettings[0].kind (Nodes without spec.nodeSelector)";
        assert_eq!(named(owners), [nodes, volumes[0], volumes[1]]);
    }

    #[test]
    fn defaults_are_not_named() {
        let text = "networkPolicies: {}\ningressOptions: {hostnameCollisionScope: Disabled}\n\
                    owners: [{proxySettings: [{operations: [List]}]}]\n";
        assert_eq!(named(text), [""; 0]);
        assert_eq!(named("x"), [""; 0]);
    }
}
