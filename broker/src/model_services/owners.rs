//! Owners of objects (`metadata.ownerReferences`). The API server limits neither their number nor the
//! length of their texts, and a reference takes more memory than its text. So they are read only where
//! they decide something, and only those of kinds that count.

use serde::{Deserialize, de::SeqAccess};

use super::{
    lenient::{Lenient, MAX_NAME_BYTES, for_each, lenient_objects, read, read_at_most},
    models::{INFERENCE_SERVICES, LLM_INFERENCE_SERVICES},
};

/// Owners of an object that are kept.
pub(super) const MAX_OWNERS: usize = 64;
/// Kinds of models.
const MODEL_KINDS: [&str; 2] = [INFERENCE_SERVICES.name, LLM_INFERENCE_SERVICES.name];

/// Reference to the owner of an object. Texts that are too long are empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OwnerReference {
    #[serde(deserialize_with = "read_at_most::<MAX_NAME_BYTES, _>")]
    pub(super) kind: String,
    #[serde(deserialize_with = "read_at_most::<MAX_NAME_BYTES, _>")]
    pub(super) name: String,
    #[serde(deserialize_with = "read_at_most::<MAX_NAME_BYTES, _>")]
    pub(super) uid: String,
}

/// A model as the owner of an object. A name is not enough, because an InferenceService and an
/// LLMInferenceService may have the same one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ModelOwner {
    pub(super) kind: &'static str,
    pub(super) uid: Box<str>,
}

/// The models that own an object, the first [`MAX_OWNERS`].
#[derive(Clone, Debug, Default)]
struct ModelOwners(Vec<ModelOwner>);

impl Lenient for ModelOwners {
    fn array<'de, A: SeqAccess<'de>>(array: A) -> Result<Self, A::Error> {
        let mut owners = Vec::new();
        for_each(array, |owner: OwnerReference| {
            let kind = MODEL_KINDS.into_iter().find(|kind| *kind == owner.kind);
            if let Some(kind) = kind.filter(|_| owners.len() < MAX_OWNERS && !owner.uid.is_empty())
            {
                owners.push(ModelOwner { kind, uid: owner.uid.into() });
            }
        })?;
        owners.shrink_to_fit();
        Ok(Self(owners))
    }
}

/// Metadata of an object that a model may own.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct OwnedMeta {
    #[serde(deserialize_with = "read_at_most::<MAX_NAME_BYTES, _>")]
    pub(super) name: String,
    #[serde(deserialize_with = "read")]
    owner_references: ModelOwners,
}

impl OwnedMeta {
    /// Whether this model owns the object.
    pub(super) fn is_owned_by(&self, model: &ModelOwner) -> bool {
        self.owner_references.0.contains(model)
    }

    /// Whether a model with this uid owns the object.
    pub(super) fn is_owned_by_uid(&self, uid: &str) -> bool {
        self.owner_references.0.iter().any(|owner| *owner.uid == *uid)
    }
}

/// An object that a model may own, and of which only the metadata is read: a ServiceAccount.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OwnedObject {
    #[serde(deserialize_with = "read")]
    pub(super) metadata: OwnedMeta,
}

lenient_objects!(OwnerReference, OwnedMeta, OwnedObject);

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn owned(owners: &[Value]) -> OwnedMeta {
        let metadata = json!({"name": "a", "ownerReferences": owners});
        from_value::<OwnedObject>(json!({ "metadata": metadata })).unwrap().metadata
    }

    #[test]
    fn only_the_first_owners_that_are_models_are_kept() {
        let owner = |kind: &str, uid: &str| json!({"kind": kind, "name": "m", "uid": uid});
        let pods = vec![owner("Pod", "u"); 1000];
        assert_eq!(owned(&pods).owner_references.0.capacity(), 0);
        let models: Vec<Value> =
            (0..1000).map(|number| owner("InferenceService", &format!("u{number}"))).collect();
        let mixed = owned(&[pods, models].concat());
        let kept = &mixed.owner_references.0;
        assert_eq!((kept.len(), kept.capacity()), (MAX_OWNERS, MAX_OWNERS));
        assert!(mixed.is_owned_by_uid("u63") && !mixed.is_owned_by_uid("u64"));
        let model = |kind| ModelOwner { kind, uid: "u1".into() };
        assert!(mixed.is_owned_by(&model("InferenceService")));
        assert!(!mixed.is_owned_by(&model("LLMInferenceService")));
        let odd = owned(&[
            owner("InferenceService", ""),
            owner("InferenceService", &"u".repeat(254)),
            json!({"kind": ["InferenceService"], "uid": "u"}),
            json!(null),
        ]);
        assert!(odd.owner_references.0.is_empty() && !odd.is_owned_by_uid(""));
    }
}
