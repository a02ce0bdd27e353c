//! Reads of distributions and their ConfigMaps, and what a refusal of the API server means.

use std::time::Duration;

use http::StatusCode;
use serde::{Deserialize, de::SeqAccess};
use serde_json::{Value, json};

use super::{
    super::{
        InNamespace,
        call::Call,
        call_kind::CallKind,
        call_response::CallResponse,
        failure::Failure,
        known_keys::KnownKeys,
        lenient::{Lenient, for_each, lenient_objects, read},
        list::{List, Listed},
        owners::{MAX_OWNERS, OwnerReference},
    },
    desired::{
        CONFIG_MAP_NAME, DASHBOARD_LABEL, DISTRIBUTION_LABEL, INSTALLATION_ANNOTATION, KIND,
    },
    view::LlamaStackDistribution,
};

/// The path of an object of the namespace.
#[derive(Debug)]
pub(super) struct ObjectPath {
    pub(super) kind: CallKind,
    /// Path of the objects of the kind.
    pub(super) collection: String,
    pub(super) name: String,
}

impl ObjectPath {
    /// Path of the object.
    pub(super) fn object(&self) -> String {
        format!("{}/{}", self.collection, self.name)
    }
}

/// An object of which only the metadata is read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    #[serde(deserialize_with = "read")]
    pub(super) metadata: StoredMeta,
}

/// The metadata of a stored object.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct StoredMeta {
    #[serde(deserialize_with = "read")]
    pub(super) uid: String,
    #[serde(deserialize_with = "read")]
    resource_version: String,
    #[serde(deserialize_with = "read")]
    deletion_timestamp: String,
    #[serde(deserialize_with = "read")]
    labels: KnownKeys,
    #[serde(deserialize_with = "read")]
    annotations: KnownKeys,
    #[serde(deserialize_with = "read")]
    owner_references: Owners,
}

/// The owners of the kind. An object with more than [`MAX_OWNERS`] of them has none.
#[derive(Debug, Default)]
struct Owners(Vec<OwnerReference>);

impl Lenient for Owners {
    fn array<'de, A: SeqAccess<'de>>(array: A) -> Result<Self, A::Error> {
        let (mut owners, mut count) = (Vec::new(), 0_usize);
        for_each(array, |owner: OwnerReference| {
            if owner.kind == KIND {
                count = count.saturating_add(1);
                if count <= MAX_OWNERS {
                    owners.push(owner);
                }
            }
        })?;
        Ok(if count <= MAX_OWNERS { Self(owners) } else { Self::default() })
    }
}

lenient_objects!(StoredMeta);

impl Metadata {
    /// Whether it waits for finalizers.
    pub(super) fn is_being_deleted(&self) -> bool {
        !self.metadata.deletion_timestamp.is_empty()
    }

    /// Whether this installation created the object.
    pub(super) fn is_of_installation(&self, installation: &str) -> bool {
        let annotation = self.metadata.annotations.get(INSTALLATION_ANNOTATION);
        annotation == Some(installation)
    }

    /// Whether the distribution with this uid owns it.
    pub(super) fn is_owned_by(&self, uid: &str) -> bool {
        !uid.is_empty() && self.owners().iter().any(|owner| owner.uid == uid)
    }

    /// Whether the object is one of this API's.
    pub(super) fn is_labelled(&self) -> bool {
        self.metadata.labels.get(DASHBOARD_LABEL) == Some("true")
    }

    /// The preconditions of the deletion of exactly this object as it was read.
    pub(super) fn unchanged(&self) -> Value {
        let StoredMeta { uid, resource_version, .. } = &self.metadata;
        json!({"uid": uid, "resourceVersion": resource_version})
    }

    /// Whether it is the ConfigMap of a distribution of this name.
    pub(super) fn is_of_distribution(&self, distribution: &str) -> bool {
        let label = self.metadata.labels.get(DISTRIBUTION_LABEL);
        self.is_labelled()
            && label == Some(distribution)
            && self.owners().iter().any(|owner| owner.name == distribution)
    }

    /// Whether it is the ConfigMap of a distribution of this name with another uid than this one. That
    /// distribution exists no more if the one with this uid is read afterwards.
    pub(super) fn is_remainder_of(&self, distribution: &str, uid: &str) -> bool {
        self.is_of_distribution(distribution) && self.owners().iter().all(|owner| owner.uid != uid)
    }

    fn owners(&self) -> &[OwnerReference] {
        &self.metadata.owner_references.0
    }
}

/// The kind is not installed.
pub(super) fn not_installed() -> Failure {
    Failure::not_found(format!("the kind {KIND} is not installed in the cluster"))
}

impl InNamespace {
    /// Path of the distribution of this name.
    pub(super) fn distribution_path(&self, name: &str) -> ObjectPath {
        let (namespace, name) = (self.namespace(), name.to_owned());
        let collection =
            format!("/apis/llamastack.io/v1alpha1/namespaces/{namespace}/llamastackdistributions");
        ObjectPath { kind: CallKind::Distributions, collection, name }
    }

    /// Path of the ConfigMap of a distribution.
    pub(super) fn config_map_path(&self) -> ObjectPath {
        let collection = format!("/api/v1/namespaces/{}/configmaps", self.namespace());
        ObjectPath { kind: CallKind::ConfigMap, collection, name: CONFIG_MAP_NAME.to_owned() }
    }

    /// Requires that the caller may create or delete the distribution of this name. The API server
    /// decides that again with the change itself, but then the change has a row of the audit trail.
    ///
    /// # Errors
    /// The caller may not; the API server does not answer.
    pub(super) async fn require_right(&self, verb: &str, name: &str) -> Result<(), Failure> {
        let attributes = json!({
            "namespace": self.namespace(),
            "verb": verb,
            "group": "llamastack.io",
            "resource": "llamastackdistributions",
            "name": name,
        });
        if self.client().is_allowed(&attributes).await? {
            return Ok(());
        }
        let what = format!("you may not {verb} objects of kind {KIND}");
        Err(Failure::forbidden_to(&what, self.namespace()))
    }

    /// The distributions of this API in the namespace, by name; `None` if the kind is not installed.
    ///
    /// # Errors
    /// The caller may not list them; the API server does not answer.
    pub(super) async fn distributions(
        &self,
    ) -> Result<Option<Vec<LlamaStackDistribution>>, Failure> {
        let list = List::new(CallKind::Distributions, self.distribution_path("").collection)
            .labels(format!("{DASHBOARD_LABEL}=true"));
        match self.client().list::<LlamaStackDistribution>(&list).await? {
            Listed::Objects(mut found) => {
                found.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
                Ok(Some(found))
            }
            Listed::NotFound => Ok(None),
            Listed::Forbidden => {
                let what = format!("you may not list objects of kind {KIND}");
                Err(Failure::forbidden_to(&what, self.namespace()))
            }
        }
    }

    /// The metadata of an object; `None` if it does not exist.
    ///
    /// # Errors
    /// The caller may not read it; the API server does not answer.
    pub(super) async fn metadata(&self, path: &ObjectPath) -> Result<Option<Metadata>, Failure> {
        self.metadata_of(Call::get(path.kind, path.object())).await
    }

    /// Like [`Self::metadata`], after a write. The operation may have no time left, so the read has
    /// this timeout alone.
    ///
    /// # Errors
    /// See [`Self::metadata`].
    pub(super) async fn metadata_within(
        &self,
        path: &ObjectPath,
        timeout: Duration,
    ) -> Result<Option<Metadata>, Failure> {
        let call = Call::get(path.kind, path.object()).own_timeout(timeout);
        self.metadata_of(call).await
    }

    async fn metadata_of(&self, call: Call) -> Result<Option<Metadata>, Failure> {
        let response = self.client().send(call).await?;
        match response.status {
            StatusCode::OK => response.json().await.map(Some),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(self.refused("read it", &response)),
        }
    }

    /// The failure for a create, read or delete that was not done. The text of the API server is
    /// about the caller's own rights, quota and policies, so it is shown.
    pub(super) fn refused(&self, what: &str, response: &CallResponse) -> Failure {
        let said = response.message();
        match response.status {
            StatusCode::FORBIDDEN => {
                Failure::forbidden_to(&format!("you may not {what}: {said}"), self.namespace())
            }
            StatusCode::UNPROCESSABLE_ENTITY => {
                Failure::bad_request(format!("the API server refuses to {what}: {said}"))
            }
            StatusCode::CONFLICT => Failure::conflict(format!(
                "the API server reports a conflict; send the request again: {said}"
            )),
            _ => response.unexpected(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    #[test]
    fn a_remainder_is_owned_by_an_earlier_distribution_of_the_name() {
        let object = |labels: Value, owners: Value| -> Metadata {
            let metadata = json!({"labels": labels, "ownerReferences": owners});
            from_value(json!({ "metadata": metadata })).unwrap()
        };
        let ours = json!({"opendatahub.io/dashboard": "true", "llamastack.io/distribution": "lsd"});
        let owner = |name: &str, uid: &str| json!({"kind": "LlamaStackDistribution", "name": name, "uid": uid});
        for (labels, owners, expected) in [
            (ours.clone(), json!([owner("lsd", "old")]), true),
            (ours.clone(), json!([owner("lsd", "new")]), false),
            (ours.clone(), json!([owner("lsd", "old"), owner("lsd", "new")]), false),
            (ours.clone(), json!([owner("other", "old")]), false),
            (ours.clone(), json!([]), false),
            (json!({"opendatahub.io/dashboard": "true"}), json!([owner("lsd", "old")]), false),
            (json!({}), json!([owner("lsd", "old")]), false),
            (ours.clone(), json!([{"kind": "Pod", "name": "lsd", "uid": "old"}]), false),
            (ours.clone(), json!(vec![owner("lsd", "old"); MAX_OWNERS]), true),
            (ours, json!(vec![owner("lsd", "old"); MAX_OWNERS + 1]), false),
        ] {
            let found = object(labels, owners);
            assert_eq!(found.is_remainder_of("lsd", "new"), expected, "{found:?}");
        }
    }
}
