//! Parser of the `Namespace` that a client creates, in JSON or Protobuf. Pure.
//!
//! Name, labels and annotations are read. Fields that the API server would set or reset itself are
//! ignored, and what the gateway does not carry out is refused.

use std::collections::BTreeMap;

use http::{HeaderMap, header};
use k8s_openapi::api::core::v1::Namespace;
use prost::Message;
use tenant_shared::TENANT_LABEL;

use super::namespace_refusal::{NamespaceRefusal, RefusalReason};
use crate::cluster::{ProtobufEnvelope, TypeMeta};

/// Random bytes of a generated name; each gives one character.
pub(in crate::gateway) const SUFFIX_BYTES: usize = 5;
/// The characters of generated names, those of the API server. It leaves out vowels and digits that
/// look like them, so no words appear.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// The longest name of a namespace.
const MAX_NAME_CHARS: usize = 63;
/// The finalizer that every namespace has in `spec.finalizers`.
const KUBERNETES_FINALIZER: &str = "kubernetes";
/// The label with the name that the API server gives every namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Format {
    Json,
    Protobuf,
    /// Server-side apply. Of YAML the part that is JSON, which kubectl and Helm send.
    Apply,
}

impl Format {
    /// The format that `Content-Type` names. The API server reads a body without the header as JSON.
    pub(in crate::gateway) fn of_request(headers: &HeaderMap) -> Option<Self> {
        let Some(value) = headers.get(header::CONTENT_TYPE) else { return Some(Self::Json) };
        match value.to_str().ok()?.split(';').next()?.trim() {
            "application/json" => Some(Self::Json),
            "application/vnd.kubernetes.protobuf" => Some(Self::Protobuf),
            "application/apply-patch+yaml" => Some(Self::Apply),
            _ => None,
        }
    }
}

/// A namespace that is to be created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::gateway) struct NewNamespace {
    pub(in crate::gateway) name: String,
    /// The tenant that its label names.
    pub(in crate::gateway) tenant: Option<String>,
    pub(in crate::gateway) labels: BTreeMap<String, String>,
    pub(in crate::gateway) annotations: BTreeMap<String, String>,
}

/// The parts of both formats.
#[derive(Default)]
struct Fields {
    name: String,
    generate_name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    has_owners: bool,
    has_finalizers: bool,
}

/// `core/v1` `Namespace`.
#[derive(Message)]
struct NamespaceMessage {
    #[prost(message, optional, tag = "1")]
    metadata: Option<MetadataMessage>,
    #[prost(message, optional, tag = "2")]
    spec: Option<SpecMessage>,
}

/// `meta/v1` `ObjectMeta`.
#[derive(Message)]
struct MetadataMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    generate_name: String,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
    #[prost(bytes = "vec", repeated, tag = "13")]
    owner_references: Vec<Vec<u8>>,
    #[prost(string, repeated, tag = "14")]
    finalizers: Vec<String>,
}

/// `core/v1` `NamespaceSpec`.
#[derive(Message)]
struct SpecMessage {
    #[prost(string, repeated, tag = "1")]
    finalizers: Vec<String>,
}

/// Reads a namespace. A `generateName` gets these random bytes as its suffix.
///
/// # Errors
/// The body is no namespace, or has what the gateway does not carry out.
pub(in crate::gateway) fn parse(
    format: Format,
    body: &[u8],
    suffix: [u8; SUFFIX_BYTES],
) -> Result<NewNamespace, NamespaceRefusal> {
    let fields = match format {
        Format::Json | Format::Apply => from_json(body),
        Format::Protobuf => from_protobuf(body),
    };
    let fields =
        fields.map_err(|text| NamespaceRefusal::new(RefusalReason::BadRequest(text), ""))?;
    let Fields { name, generate_name, mut labels, annotations, .. } = fields;
    let name = if name.is_empty() { generated_name(&generate_name, suffix) } else { name };
    let invalid = |text: &str| {
        Err(NamespaceRefusal::new(RefusalReason::Invalid(text.to_owned()), name.as_str()))
    };
    if name.is_empty() {
        return invalid("metadata.name: name or generateName is required");
    }
    if fields.has_owners {
        return invalid("metadata.ownerReferences: namespaces of tenants have no owners");
    }
    if fields.has_finalizers {
        return invalid("finalizers: namespaces of tenants have no finalizers but kubernetes");
    }
    let tenant = labels.remove(TENANT_LABEL);
    // An exported object has it.
    if labels.get(NAME_LABEL) == Some(&name) {
        labels.remove(NAME_LABEL);
    }
    Ok(NewNamespace { name, tenant, labels, annotations })
}

fn from_json(body: &[u8]) -> Result<Fields, String> {
    let namespace: Namespace = serde_json::from_slice(body)
        .map_err(|error| format!("the body is no Namespace of v1 in JSON: {error}"))?;
    let metadata = namespace.metadata;
    let in_spec = namespace.spec.and_then(|spec| spec.finalizers).unwrap_or_default();
    Ok(Fields {
        name: metadata.name.unwrap_or_default(),
        generate_name: metadata.generate_name.unwrap_or_default(),
        labels: metadata.labels.unwrap_or_default(),
        annotations: metadata.annotations.unwrap_or_default(),
        has_owners: metadata.owner_references.is_some_and(|all| !all.is_empty()),
        has_finalizers: has_finalizers(&metadata.finalizers.unwrap_or_default(), &in_spec),
    })
}

fn from_protobuf(body: &[u8]) -> Result<Fields, String> {
    let namespace = decode(body).ok_or("the body is no Namespace of v1 in Protobuf")?;
    let metadata = namespace.metadata.unwrap_or_default();
    let in_spec = namespace.spec.unwrap_or_default().finalizers;
    Ok(Fields {
        name: metadata.name,
        generate_name: metadata.generate_name,
        labels: metadata.labels,
        annotations: metadata.annotations,
        has_owners: !metadata.owner_references.is_empty(),
        has_finalizers: has_finalizers(&metadata.finalizers, &in_spec),
    })
}

fn decode(body: &[u8]) -> Option<NamespaceMessage> {
    let envelope = ProtobufEnvelope::parse(body)?;
    // As in JSON, the path says what is missing here.
    let TypeMeta { api_version, kind } = envelope.type_meta.unwrap_or_default();
    let is_namespace = matches!(&*api_version, "" | "v1") && matches!(&*kind, "" | "Namespace");
    is_namespace.then(|| NamespaceMessage::decode(&*envelope.raw).ok()).flatten()
}

fn has_finalizers(in_metadata: &[String], in_spec: &[String]) -> bool {
    !in_metadata.is_empty() || in_spec.iter().any(|it| it != KUBERNETES_FINALIZER)
}

/// The name for `generateName`, as the API server makes it: empty if there is no prefix.
fn generated_name(prefix: &str, suffix: [u8; SUFFIX_BYTES]) -> String {
    if prefix.is_empty() {
        return String::new();
    }
    let letters = suffix.iter().filter_map(|byte| {
        SUFFIX_ALPHABET.get(usize::from(*byte) % SUFFIX_ALPHABET.len()).copied().map(char::from)
    });
    prefix.chars().take(MAX_NAME_CHARS - SUFFIX_BYTES).chain(letters).collect()
}

#[cfg(test)]
mod tests;
