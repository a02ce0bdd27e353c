//! Tenants in YAML files, as kubectl reads them.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;
use tenant_shared::is_dns_label;

use crate::{
    error::Error,
    output,
    tenants::{
        documents::{self, Object},
        input_file, render,
    },
    world::Input,
};

/// `apiVersion` of the Tenants that the broker writes.
const API_VERSION: &str = "tenant-broker.io/v1alpha1";
/// API group of Tenants that `import` translates.
const CAPSULE_GROUP: &str = "capsule.clastix.io/";
/// Metadata that the broker does not write.
const NOT_WRITTEN: [&str; 4] = ["labels", "annotations", "finalizers", "ownerReferences"];
/// The annotation in which `kubectl apply` keeps the file.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A Tenant of a file.
#[derive(Debug, PartialEq)]
pub(super) struct Manifest {
    pub(super) name: String,
    pub(super) spec: Value,
    /// Paths of metadata that the broker does not write.
    pub(super) not_written: Vec<String>,
}

/// A Tenant as kubectl reads it.
#[derive(Serialize)]
struct PrintedTenant<'a> {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    spec: &'a Value,
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
}

/// Reads the Tenants of a file; `-` is standard input.
pub(super) fn read(path: &Path, stdin: &Input) -> Result<Vec<Manifest>, Error> {
    let text = input_file::read(path, stdin)?;
    let name = path.display().to_string();
    let in_file = |error: Error| Error { message: format!("{name}: {}", error.message), ..error };
    let manifests = parse(&text).map_err(in_file)?;
    if manifests.is_empty() {
        return Err(Error::other(format!("{name} has no Tenant")));
    }
    Ok(manifests)
}

/// Parses the Tenants of a text.
pub(super) fn parse(text: &str) -> Result<Vec<Manifest>, Error> {
    let manifests: Vec<Manifest> =
        documents::read(text)?.iter().map(manifest).collect::<Result<_, Error>>()?;
    for (index, manifest) in manifests.iter().enumerate() {
        if manifests[..index].iter().any(|earlier| earlier.name == manifest.name) {
            return Err(Error::other(format!("the Tenant {} is there twice", manifest.name)));
        }
    }
    Ok(manifests)
}

fn manifest(object: &Object) -> Result<Manifest, Error> {
    let place = &object.place;
    let value = serde_json::to_value(&object.value)
        .map_err(|error| Error::other(format!("{place} is no JSON object: {error}")))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&value["apiVersion"]), text(&value["kind"]));
    if kind != "Tenant" || api_version != API_VERSION {
        let error =
            Error::other(format!("{place} is no Tenant of {API_VERSION}: {kind} of {api_version}"));
        return Err(if api_version.starts_with(CAPSULE_GROUP) {
            error.hint("translate it first: kubectl tenant import -f FILE")
        } else {
            error.hint("the file has to have Tenants only")
        });
    }
    let name = text(&value["metadata"]["name"]);
    if !is_dns_label(&name) {
        return Err(Error::other(format!("{place}: metadata.name is no name of a tenant")));
    }
    if !value["spec"].is_object() {
        return Err(Error::other(format!("{place}: the Tenant {name} has no spec")));
    }
    let not_written = not_written(&value["metadata"]);
    Ok(Manifest { name, spec: value["spec"].clone(), not_written })
}

fn not_written(metadata: &Value) -> Vec<String> {
    let is_ours = |key: &str| key != LAST_APPLIED;
    let has_some = |value: &Value| match value {
        Value::Object(entries) => entries.keys().any(|key| is_ours(key)),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    let fields = NOT_WRITTEN.into_iter().filter(|field| has_some(&metadata[*field]));
    fields.map(|field| format!("metadata.{field}")).collect()
}

/// Renders a Tenant as YAML, for kubectl and for an editor.
pub(super) fn print(name: &str, spec: &Value) -> Result<String, Error> {
    let value = serde_norway::to_value(printed(name, spec))
        .map_err(|error| Error::other(format!("cannot write the Tenant: {error}")))?;
    render::render(&value)
}

/// Renders a Tenant as JSON, for kubectl.
pub(super) fn print_json(name: &str, spec: &Value) -> Result<String, Error> {
    output::json(&printed(name, spec))
}

fn printed<'a>(name: &'a str, spec: &'a Value) -> PrintedTenant<'a> {
    PrintedTenant { api_version: API_VERSION, kind: "Tenant", metadata: Metadata { name }, spec }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SOLAR: &str = "apiVersion: tenant-broker.io/v1alpha1\nkind: Tenant\n\
                         metadata: {name: solar}\nspec: {owners: [{kind: User, name: alice}]}\n";

    fn error(text: &str) -> Error {
        parse(text).unwrap_err()
    }

    #[test]
    fn a_printed_tenant_is_read_again() {
        let spec = json!({"owners": [{"kind": "User", "name": "yes"}], "tier": "basic"});
        let text = print("solar", &spec).unwrap();
        let parsed = parse(&text).unwrap();
        assert_eq!(parsed, [Manifest { name: "solar".to_owned(), spec, not_written: vec![] }]);
    }

    #[test]
    fn metadata_that_is_not_written_is_named() {
        let with = |metadata: &str| {
            let text = SOLAR.replace("{name: solar}", &format!("{{name: solar, {metadata}}}"));
            parse(&text).unwrap().remove(0).not_written
        };
        assert_eq!(with("uid: x, resourceVersion: '1'"), [""; 0]);
        assert_eq!(with("labels: {a: b}"), ["metadata.labels"]);
        assert_eq!(with("labels: {}, finalizers: [x]"), ["metadata.finalizers"]);
        assert_eq!(with(&format!("annotations: {{{LAST_APPLIED}: '{{}}'}}")), [""; 0]);
        assert_eq!(with("annotations: {a: b}"), ["metadata.annotations"]);
    }

    #[test]
    fn other_objects_are_refused_with_their_place() {
        let capsule = SOLAR.replace("tenant-broker.io/v1alpha1", "capsule.clastix.io/v1beta2");
        assert!(error(&capsule).hint.unwrap().contains("kubectl tenant import"));
        let pod = format!("{SOLAR}---\napiVersion: v1\nkind: Pod\n");
        assert!(error(&pod).message.starts_with("document 2 is no Tenant"), "{:?}", error(&pod));
        assert!(error(&format!("{SOLAR}---\n{SOLAR}")).message.contains("twice"));
        assert!(error(&SOLAR.replace("solar", "a/b")).message.contains("metadata.name"));
        assert!(
            error(&SOLAR.replace("{owners: [{kind: User, name: alice}]}", "[]"))
                .message
                .contains("no spec")
        );
        assert!(parse("").unwrap().is_empty());
    }
}
