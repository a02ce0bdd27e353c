//! Translation of one Tenant.

use serde_norway::{Mapping, Value};
use tenant_shared::{CAPSULE_NAMESPACE_DELETER_ROLE, NAMESPACE_DELETER_ROLE};

use super::{fields, not_carried_out};

/// API group of the Tenants that are translated.
pub(super) const API_GROUP: &str = "capsule.clastix.io";
/// Versions of the group, whose fields have the same names.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
/// `apiVersion` of translated Tenants.
pub(super) const NEW_API_VERSION: &str = "tenant-broker.io/v1alpha1";
/// Annotation of `kubectl apply` with the whole object before the translation.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A translated Tenant, and what became of its fields.
#[derive(Debug)]
pub(super) struct Translation {
    /// Name of the tenant.
    pub(super) name: String,
    /// The new object.
    pub(super) object: Value,
    /// Fields that are kept and that the broker does not carry out.
    pub(super) kept: Vec<String>,
    /// Fields that the new kind does not have.
    pub(super) left_out: Vec<String>,
    /// Whether [`CAPSULE_NAMESPACE_DELETER_ROLE`] was replaced.
    pub(super) renamed_role: bool,
    /// Whether Capsule refuses new objects in the tenant.
    pub(super) is_cordoned: bool,
}

/// Translates an object; [`None`] if it is no Tenant of Capsule.
///
/// # Errors
/// The object is a Tenant that cannot be translated; the text says why.
pub(super) fn translate(object: &Value) -> Result<Option<Translation>, String> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let api_version = text(object, "apiVersion").unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or_default();
    if group != API_GROUP || text(object, "kind").as_deref() != Some("Tenant") {
        return Ok(None);
    }
    if !VERSIONS.contains(&version) {
        return Err(format!(
            "version {version} of {API_GROUP} is not known; known are {}",
            VERSIONS.join(" and ")
        ));
    }
    let metadata = object.get("metadata").cloned().unwrap_or_default();
    let name = text(&metadata, "name").ok_or("metadata.name is missing, or is not a text")?;
    let Some(mut spec) = object.get("spec").filter(|spec| spec.is_mapping()).cloned() else {
        return Err(format!("Tenant {name} has no spec"));
    };
    let is_cordoned = spec.get("cordoned").and_then(Value::as_bool) == Some(true);
    let left_out = fields::remove_unknown(&mut spec);
    let renamed_role = rename_deleter_role(&mut spec);
    let kept = not_carried_out::fields(&spec);
    let mut object = Mapping::new();
    object.insert("apiVersion".into(), NEW_API_VERSION.into());
    object.insert("kind".into(), "Tenant".into());
    object.insert("metadata".into(), Value::Mapping(kept_metadata(&name, &metadata)));
    object.insert("spec".into(), spec);
    let object = Value::Mapping(object);
    Ok(Some(Translation { name, object, kept, left_out, renamed_role, is_cordoned }))
}

/// Name, labels and annotations. All other metadata belongs to the object in the cluster.
fn kept_metadata(name: &str, metadata: &Value) -> Mapping {
    let mut kept = Mapping::new();
    kept.insert("name".into(), name.into());
    for key in ["labels", "annotations"] {
        if let Some(Value::Mapping(texts)) = metadata.get(key) {
            let mut texts = texts.clone();
            texts.shift_remove(LAST_APPLIED);
            if !texts.is_empty() {
                kept.insert(key.into(), Value::Mapping(texts));
            }
        }
    }
    kept
}

/// Replaces the ClusterRole of owners that Capsule adds by default, and whose counterpart has
/// another name here. Returns whether it was there.
fn rename_deleter_role(spec: &mut Value) -> bool {
    let mut renamed = false;
    let owners = spec.get_mut("owners").and_then(Value::as_sequence_mut);
    for owner in owners.into_iter().flatten() {
        let roles = owner.get_mut("clusterRoles").and_then(Value::as_sequence_mut);
        for role in roles.into_iter().flatten() {
            if role.as_str() == Some(CAPSULE_NAMESPACE_DELETER_ROLE) {
                *role = NAMESPACE_DELETER_ROLE.into();
                renamed = true;
            }
        }
    }
    renamed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        serde_norway::from_str(text).unwrap()
    }

    #[test]
    fn a_tenant_of_a_cluster_becomes_a_new_object() {
        let text = "apiVersion: capsule.clastix.io/v1beta2\nkind: Tenant\nmetadata:\n  name: solar\n  \
                    uid: u\n  resourceVersion: '1'\n  finalizers: [x]\n  labels: {team: a}\n  \
                    annotations: {kubectl.kubernetes.io/last-applied-configuration: '{}'}\nspec:\n  \
                    cordoned: true\n  owners:\n  - kind: User\n    name: alice\n    \
                    clusterRoles: [admin, capsule-namespace-deleter]\nstatus: {size: 2}\n";
        let translated = translate(&value(text)).unwrap().unwrap();
        let expected = "apiVersion: tenant-broker.io/v1alpha1\nkind: Tenant\nmetadata:\n  \
                        name: solar\n  labels: {team: a}\nspec:\n  owners:\n  - kind: User\n    \
                        name: alice\n    clusterRoles: [admin, tenant-namespace-deleter]\n";
        assert_eq!(translated.object, value(expected));
        assert_eq!(
            (translated.kept, translated.left_out),
            (vec![], vec!["spec.cordoned".to_owned()])
        );
        assert!(translated.renamed_role && translated.is_cordoned);
    }

    #[test]
    fn other_objects_are_no_tenants() {
        for text in [
            "apiVersion: v1\nkind: Namespace",
            "apiVersion: capsule.clastix.io/v1beta2\nkind: CapsuleConfiguration",
            "apiVersion: tenant-broker.io/v1alpha1\nkind: Tenant",
            "text",
            "[1]",
            "apiVersion: 1\nkind: Tenant",
        ] {
            assert!(translate(&value(text)).unwrap().is_none(), "{text}");
        }
    }

    #[test]
    fn a_tenant_that_cannot_be_translated_says_why() {
        let head = "apiVersion: capsule.clastix.io/v1beta1\nkind: Tenant\n";
        for (text, why) in [
            (head.replace("v1beta1", "v1alpha1"), "version v1alpha1"),
            (head.to_owned(), "metadata.name is missing"),
            (format!("{head}metadata: {{name: 1}}"), "metadata.name is missing"),
            (format!("{head}metadata: {{name: solar}}"), "Tenant solar has no spec"),
            (format!("{head}metadata: {{name: solar}}\nspec: 1"), "has no spec"),
        ] {
            let error = translate(&value(&text)).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
