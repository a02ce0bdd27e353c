//! Conflicts of an installation with what is there: each with what the caller can do about it.

use tenant_shared::DISTRIBUTION_NAME;

use super::{
    super::failure::Failure,
    desired::{CONFIG_MAP_NAME, KIND},
    objects::Metadata,
};

/// The failure of an installation where there is a distribution of this name, which was read.
pub(super) fn distribution_exists(name: &str, found: Result<Option<Metadata>, Failure>) -> Failure {
    found.map_or_else(|failure| failure, |found| distribution_conflict(name, found.as_ref()))
}

fn distribution_conflict(name: &str, found: Option<&Metadata>) -> Failure {
    Failure::conflict(match found {
        None => format!("the {KIND} {name} was deleted meanwhile; send the request again"),
        Some(found) if found.is_being_deleted() => {
            format!("the {KIND} {name} is being deleted; try again when it is gone")
        }
        Some(found) if found.is_labelled() => {
            format!("there is a {KIND} already, {name}; delete it first to install another one")
        }
        Some(_) => format!(
            "there is a {KIND} {name} that this service did not create and does not delete; delete \
             it with kubectl to install another one"
        ),
    })
}

/// The failure of an installation whose ConfigMap cannot be created because of this one, which is no
/// remainder; `None` if it was deleted meanwhile.
pub(super) fn config_map_conflict(found: Option<&Metadata>) -> Failure {
    Failure::conflict(match found {
        None => {
            format!("the ConfigMap {CONFIG_MAP_NAME} was deleted meanwhile; send the request again")
        }
        Some(found) if found.is_being_deleted() => {
            format!("the ConfigMap {CONFIG_MAP_NAME} is being deleted; try again when it is gone")
        }
        Some(found) if found.is_of_distribution(DISTRIBUTION_NAME) => format!(
            "another installation created the ConfigMap {CONFIG_MAP_NAME} meanwhile; look at the \
             status before you send the request again"
        ),
        Some(_) => format!(
            "there is a ConfigMap {CONFIG_MAP_NAME} that belongs to something else; delete or rename \
             it"
        ),
    })
}

/// The failure of an installation whose distribution was deleted or replaced meanwhile.
pub(super) fn deleted_meanwhile() -> Failure {
    Failure::conflict(format!(
        "the {KIND} {DISTRIBUTION_NAME} was deleted while it was installed; send the request again"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    #[test]
    fn each_conflict_says_what_to_do() {
        let object = |metadata: Value| from_value(json!({ "metadata": metadata })).ok();
        let ours = json!({"opendatahub.io/dashboard": "true", "llamastack.io/distribution": DISTRIBUTION_NAME});
        let owner = json!({"kind": KIND, "name": DISTRIBUTION_NAME, "uid": "u"});
        let deleted = json!({"labels": ours, "deletionTimestamp": "2026-01-01T00:00:00Z"});
        for (found, text) in [
            (None, "send the request again"),
            (object(deleted.clone()), "is being deleted"),
            (object(json!({ "labels": ours })), "delete it first"),
            (object(json!({"labels": {"opendatahub.io/dashboard": "false"}})), "kubectl"),
            (object(json!({})), "kubectl"),
        ] {
            let failure = distribution_conflict("lsd", found.as_ref());
            assert!(failure.message().contains(text), "{failure}");
            assert_eq!(failure.status().as_u16(), 409);
        }
        for (found, text) in [
            (None, "send the request again"),
            (object(deleted), "is being deleted"),
            (object(json!({"labels": ours, "ownerReferences": [owner]})), "another installation"),
            (object(json!({ "labels": ours })), "belongs to something else"),
            (object(json!({})), "belongs to something else"),
        ] {
            let failure = config_map_conflict(found.as_ref());
            assert!(failure.message().contains(text), "{failure}");
            assert_eq!(failure.status().as_u16(), 409);
        }
    }
}
