//! Parsers of the values of arguments.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use tenant_shared::{ExecApiVersion, MAX_TENANT_NAME_LENGTH, is_dns_label};
use uuid::Uuid;

pub(super) fn dns_label(text: &str) -> Result<String, String> {
    if is_dns_label(text) {
        Ok(text.to_owned())
    } else {
        Err("a name has 1 to 63 lower case letters, digits and dashes, and begins and ends with a \
             letter or digit"
            .to_owned())
    }
}

/// Parses the name of a tenant.
pub(super) fn tenant_name(text: &str) -> Result<String, String> {
    let begins_with_letter = text.starts_with(|first: char| first.is_ascii_lowercase());
    if is_dns_label(text) && begins_with_letter && text.len() <= MAX_TENANT_NAME_LENGTH {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "the name of a tenant has 1 to {MAX_TENANT_NAME_LENGTH} lower case letters, digits and dashes, \
             begins with a letter, and ends with a letter or digit"
        ))
    }
}

/// Parses the identifier of a session.
pub(super) fn session_id(text: &str) -> Result<Uuid, String> {
    Uuid::try_parse(text).map_err(|_| {
        "that is no identifier of a session (UUID); they are in the column ID of `kubectl tenant \
         sessions`"
            .to_owned()
    })
}

/// Parses a ServiceAccount: its namespace, a colon and its name.
pub(super) fn service_account(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((namespace, name)) if is_dns_label(namespace) && !name.is_empty() => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("write NAMESPACE:NAME".to_owned()),
    }
}

pub(super) fn key_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE".to_owned()),
    }
}

/// Parser of the versions without their group.
pub(super) fn exec_api_version() -> impl TypedValueParser<Value = ExecApiVersion> {
    PossibleValuesParser::new(["v1", "v1beta1"]).map(|text| match text.as_str() {
        "v1beta1" => ExecApiVersion::V1Beta1,
        _ => ExecApiVersion::V1,
    })
}

pub(super) fn absolute(text: &str) -> Result<String, String> {
    if PathBuf::from(text).is_absolute() {
        Ok(text.to_owned())
    } else {
        Err("it must be an absolute path".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_tenant_has_40_characters_at_most() {
        for name in ["a", "solar", "solar-2", &"a".repeat(40)] {
            assert_eq!(tenant_name(name).as_deref(), Ok(name));
        }
        for name in ["", "Solar", "2solar", "solar-", "-solar", "so.lar", &"a".repeat(41)] {
            let error = tenant_name(name).unwrap_err();
            assert!(error.starts_with("the name of a tenant has 1 to 40 "), "{name}: {error}");
        }
    }
}
