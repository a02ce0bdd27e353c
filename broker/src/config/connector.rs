//! Settings of upstream OpenID providers: `[connectors.NAME]`.

use std::{collections::BTreeMap, path::PathBuf};

use secrecy::SecretString;
use url::Url;

use super::Settings;
use crate::{
    base::dns_label::is_dns_label,
    issuer::connector::{ConnectorSettings, is_https_or_loopback},
};

/// The settings of a connector: key, default, meaning.
pub(super) const FIELDS: [(&str, &str, &str); 13] = [
    (
        "issuer",
        "",
        "Identifier of the provider, exactly as in its discovery document. HTTPS, except on loopback.",
    ),
    (
        "client_id",
        "",
        "The broker as a client there. Its redirect URI is `<public_url>/login/callback/NAME`.",
    ),
    (
        "client_secret",
        "",
        "The client's secret; without this and client_secret_file it is a public client.",
    ),
    ("client_secret_file", "", "File with the secret, instead of client_secret."),
    ("display_name", "NAME", "Name of the provider on the sign-in page."),
    ("scopes", "openid email profile offline_access", "Scopes that are requested."),
    (
        "groups_claim",
        "groups",
        "Claim with a person's groups, in the ID token or in userinfo; `realm_access.roles` for a nested claim.",
    ),
    (
        "allowed_groups",
        "",
        "Only members of one of these groups may sign in; empty: everybody who can sign in at the provider.",
    ),
    (
        "allowed_domains",
        "",
        "Only people with a verified e-mail address of one of these domains may sign in; empty: any.",
    ),
    (
        "admin_groups",
        "",
        "Members of one of these groups are administrators, as long as they are members; no other user of this provider is.",
    ),
    ("ca_file", "", "PEM file with CAs that are trusted in addition to the system's."),
    (
        "outage_seconds",
        "3600",
        "Seconds that sessions continue while the provider does not answer.",
    ),
    (
        "unchecked_seconds",
        "28800",
        "Lifetime of a session in seconds if the provider gives no refresh token with which the session could be checked.",
    ),
];

/// Bounds of `outage_seconds`.
const OUTAGE_RANGE: (u32, u32) = (0, 86_400);
/// Bounds of `unchecked_seconds`.
const UNCHECKED_RANGE: (u32, u32) = (300, 86_400);

/// Reads and validates all connectors.
pub(super) fn connectors(s: &mut Settings) -> BTreeMap<String, ConnectorSettings> {
    let names = s.names_below("connectors");
    names.into_iter().map(|name| (name.clone(), connector(s, &name))).collect()
}

fn connector(s: &mut Settings, name: &str) -> ConnectorSettings {
    let key = |field: &str| format!("connectors.{name}.{field}");
    if !is_dns_label(name) {
        s.fault(&key("issuer"), "a connector's name is lower case letters, digits and dashes");
    }
    let number = |s: &mut Settings, field: &str, (min, max): (u32, u32)| {
        let text = get_or_default(s, name, field);
        text.parse().ok().filter(|n| (min..=max).contains(n)).unwrap_or_else(|| {
            s.fault(&key(field), &format!("a whole number from {min} to {max}"));
            min
        })
    };
    let scopes = get_or_default(s, name, "scopes");
    if !scopes.split_ascii_whitespace().any(|scope| scope == "openid") {
        s.fault(&key("scopes"), "openid must be one of them");
    }
    let display_name = s.get_non_empty(&key("display_name")).unwrap_or_else(|| name.to_owned());
    ConnectorSettings {
        issuer: issuer(s, &key("issuer")),
        client_id: required(s, &key("client_id"), "the broker's client id at the provider"),
        client_secret: secret(s, &key("client_secret"), &key("client_secret_file")),
        display_name,
        scopes,
        groups_claim: get_or_default(s, name, "groups_claim"),
        allowed_groups: list(s, &key("allowed_groups")),
        allowed_domains: list(s, &key("allowed_domains")),
        admin_groups: list(s, &key("admin_groups")),
        ca_file: s.path(&key("ca_file")),
        outage_seconds: number(s, "outage_seconds", OUTAGE_RANGE),
        unchecked_seconds: number(s, "unchecked_seconds", UNCHECKED_RANGE),
    }
}

fn get_or_default(s: &mut Settings, name: &str, field: &str) -> String {
    let default = FIELDS.iter().find(|(known, ..)| *known == field).map_or("", |(_, text, _)| text);
    s.get_non_empty(&format!("connectors.{name}.{field}")).unwrap_or_else(|| default.to_owned())
}

/// Reads an issuer's identifier, which is compared byte by byte.
pub(super) fn issuer(s: &mut Settings, key: &str) -> String {
    let text = required(s, key, "the provider's identifier, such as https://sso.example.com");
    match text.parse::<Url>() {
        Ok(url)
            if is_https_or_loopback(&url) && url.query().is_none() && url.fragment().is_none() => {}
        _ if text.is_empty() => {}
        _ => s.fault(key, "an https URL without query and fragment (http on loopback only)"),
    }
    text
}

pub(super) fn required(s: &mut Settings, key: &str, what: &str) -> String {
    s.get_non_empty(key).unwrap_or_else(|| {
        s.fault(key, &format!("missing: {what}"));
        String::new()
    })
}

fn secret(s: &mut Settings, key: &str, file_key: &str) -> Option<SecretString> {
    match (s.get_non_empty(key), s.get_non_empty(file_key).map(PathBuf::from)) {
        (Some(_), Some(_)) => {
            s.fault(file_key, "client_secret is set as well: set one of them");
            None
        }
        (Some(text), None) => Some(text.into()),
        (None, Some(path)) => match std::fs::read_to_string(&path) {
            Ok(text) => Some(text.trim().to_owned().into()),
            Err(error) => {
                s.fault(file_key, &format!("cannot read it: {error}"));
                None
            }
        },
        (None, None) => None,
    }
}

fn list(s: &mut Settings, key: &str) -> Vec<String> {
    let text = s.get_non_empty(key).unwrap_or_default();
    text.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect()
}
