//! Requests to install and to delete, checked.

use std::collections::BTreeSet;

use tenant_shared::{InstallDistributionRequest, MAX_INSTALLED_MODELS};

use super::super::{failure::Failure, lenient::MAX_NAME_BYTES};

/// Whether a text is a DNS subdomain (RFC 1123), as names of most objects are. It may become part of
/// a path.
fn is_object_name(text: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| match label.as_bytes() {
        [] => false,
        [first, .., last] if !is_alphanumeric(*first) || !is_alphanumeric(*last) => false,
        bytes => bytes.iter().all(|byte| is_alphanumeric(*byte) || *byte == b'-'),
    };
    text.len() <= MAX_NAME_BYTES && text != "-" && text.split('.').all(is_label)
}

/// The names of the models of an installation.
///
/// # Errors
/// There is none or there are too many; one is no name, is there twice, or is of "model as a
/// service".
pub(in crate::model_services) fn models_of(
    request: &InstallDistributionRequest,
) -> Result<Vec<String>, Failure> {
    let models = &request.models;
    if models.is_empty() || models.len() > MAX_INSTALLED_MODELS {
        let text = format!("models: name 1 to {MAX_INSTALLED_MODELS} models");
        return Err(Failure::bad_request(text));
    }
    let mut known = BTreeSet::new();
    for model in models {
        let name = model.model_name.as_str();
        if !is_object_name(name) {
            return Err(Failure::bad_request(
                "models: model_name is the name of an InferenceService or LLMInferenceService",
            ));
        }
        if model.is_maas_model {
            let text = format!("models: {name} is a model as a service, which is not supported");
            return Err(Failure::bad_request(text));
        }
        if !known.insert(name) {
            return Err(Failure::bad_request(format!("models: {name} is there twice")));
        }
    }
    Ok(models.iter().map(|model| model.model_name.clone()).collect())
}

/// The name of a distribution to delete, from the body or the query.
///
/// # Errors
/// There is none, they differ, or it is no name.
pub(in crate::model_services) fn name_to_delete(
    in_body: &str,
    in_query: Option<&str>,
) -> Result<String, Failure> {
    let name = match (in_body, in_query) {
        ("", Some(name)) | (name, None) => name,
        (name, Some(other)) if name == other => name,
        _ => return Err(Failure::bad_request("name: body and query name different objects")),
    };
    if !is_object_name(name) {
        return Err(Failure::bad_request("name: the name of a LlamaStackDistribution is missing"));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn models_are_named_once_and_are_names() {
        let models = |models| models_of(&from_value(json!({ "models": models })).unwrap());
        let names = models(json!([{"model_name": "a"}, {"model_name": "b.c-1"}])).unwrap();
        assert_eq!(names, ["a", "b.c-1"]);
        let many: Vec<_> = (0..51).map(|i| json!({"model_name": format!("m{i}")})).collect();
        assert!(models(json!(many[..50])).is_ok());
        for bad in [
            json!([]),
            json!(many),
            json!([{"model_name": "a"}, {"model_name": "a"}]),
            json!([{"model_name": ""}]),
            json!([{"model_name": "A"}]),
            json!([{"model_name": "a/b"}]),
            json!([{"model_name": "../a"}]),
            json!([{"model_name": "a..b"}]),
            json!([{"model_name": "-"}]),
            json!([{"model_name": "a".repeat(254)}]),
            json!([{"model_name": "a", "is_maas_model": true}]),
        ] {
            let failure = models(bad.clone()).unwrap_err();
            assert_eq!(failure.status().as_u16(), 400, "{bad}");
            assert!(failure.message().starts_with("models: "), "{bad}");
        }
    }

    #[test]
    fn a_name_comes_from_body_or_query() {
        for (body, query, expected) in [
            ("lsd", None, Some("lsd")),
            ("", Some("lsd"), Some("lsd")),
            ("lsd", Some("lsd"), Some("lsd")),
            ("lsd", Some("other"), None),
            ("", None, None),
            ("", Some(""), None),
            ("a/b", None, None),
        ] {
            let name = name_to_delete(body, query);
            assert_eq!(name.ok().as_deref(), expected, "{body:?} {query:?}");
        }
    }
}
