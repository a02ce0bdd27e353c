//! Parsers of the values of arguments.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use tenant_shared::{ExecApiVersion, is_dns_label};

pub(super) fn dns_label(text: &str) -> Result<String, String> {
    if is_dns_label(text) {
        Ok(text.to_owned())
    } else {
        Err("a name has 1 to 63 lower case letters, digits and dashes, and begins and ends with a \
             letter or digit"
            .to_owned())
    }
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
