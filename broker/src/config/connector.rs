//! Settings of upstream OpenID providers: `[connectors.NAME]`.

use std::{collections::BTreeMap, path::PathBuf};

use secrecy::SecretString;
use tenant_shared::is_dns_label;
use url::Url;

use super::{
    Settings,
    declaration::{Declaration, Setting},
    parse::{from_str, list, optional, within},
};
use crate::issuer::connector::{ClientSecret, ConnectorSettings, is_https_or_loopback};

/// The error text for an issuer that is not set.
pub(super) const MISSING_ISSUER: &str =
    "the provider's identifier, such as https://sso.example.com";

const ISSUER: Setting<String> = Setting::required(
    "issuer",
    MISSING_ISSUER,
    issuer_identifier,
    "Identifier of the provider, exactly as in its discovery document. HTTPS, except on loopback.",
);
const CLIENT_ID: Setting<String> = Setting::required(
    "client_id",
    "the broker's client id at the provider",
    from_str,
    "The broker as a client there. Its redirect URI is `<public_url>/login/callback/NAME`.",
);
const CLIENT_SECRET: Setting<Option<String>> = Setting::new(
    "client_secret",
    "",
    optional,
    "The client's secret; without this and client_secret_file it is a public client.",
);
const CLIENT_SECRET_FILE: Setting<Option<PathBuf>> = Setting::new(
    "client_secret_file",
    "",
    optional,
    "File with the secret, instead of client_secret. It is read again when it changes.",
);
const DISPLAY_NAME: Setting<Option<String>> =
    Setting::derived("display_name", "NAME", optional, "Name of the provider on the sign-in page.");
const SCOPES: Setting<String> = Setting::new(
    "scopes",
    "openid email profile offline_access",
    scopes,
    "Scopes that are requested.",
);
const GROUPS_CLAIM: Setting<String> = Setting::new(
    "groups_claim",
    "groups",
    from_str,
    "Claim with a person's groups, in the ID token or in userinfo; `realm_access.roles` for a \
     nested claim.",
);
const ALLOWED_GROUPS: Setting<Vec<String>> = Setting::new(
    "allowed_groups",
    "",
    list,
    "Only members of one of these groups may sign in; empty: everybody who can sign in at the \
     provider.",
);
const ALLOWED_DOMAINS: Setting<Vec<String>> = Setting::new(
    "allowed_domains",
    "",
    list,
    "Only people with a verified e-mail address of one of these domains may sign in; empty: any.",
);
const ADMIN_GROUPS: Setting<Vec<String>> = Setting::new(
    "admin_groups",
    "",
    list,
    "Members of one of these groups are administrators, as long as they are members; no other \
     user of this provider is.",
);
pub(super) const CA_FILE: Setting<Option<PathBuf>> = Setting::new(
    "ca_file",
    "",
    optional,
    "PEM file with CAs that are trusted in addition to the system's. It is read again when it \
     changes.",
);
const OUTAGE_SECONDS: Setting<u32> = Setting::new(
    "outage_seconds",
    "3600",
    within::<0, 86_400>,
    "Seconds that sessions continue while the provider does not answer.",
);
const UNCHECKED_SECONDS: Setting<u32> = Setting::new(
    "unchecked_seconds",
    "28800",
    within::<300, 86_400>,
    "Lifetime of a session in seconds if the provider gives no refresh token with which the \
     session could be checked.",
);
pub(super) const SETTINGS: &[&dyn Declaration] = &[
    &ISSUER,
    &CLIENT_ID,
    &CLIENT_SECRET,
    &CLIENT_SECRET_FILE,
    &DISPLAY_NAME,
    &SCOPES,
    &GROUPS_CLAIM,
    &ALLOWED_GROUPS,
    &ALLOWED_DOMAINS,
    &ADMIN_GROUPS,
    &CA_FILE,
    &OUTAGE_SECONDS,
    &UNCHECKED_SECONDS,
];

/// The table of a connector.
pub(super) fn table(name: &str) -> String {
    format!("connectors.{name}")
}

/// Reads and validates all connectors.
pub(super) fn connectors(s: &mut Settings) -> BTreeMap<String, ConnectorSettings> {
    let names = s.names_below("connectors");
    names.into_iter().map(|name| (name.clone(), connector(s, &name))).collect()
}

fn connector(s: &mut Settings, name: &str) -> ConnectorSettings {
    let table = &table(name);
    if !is_dns_label(name) {
        let why = "a connector's name is lower case letters, digits and dashes";
        ISSUER.fault_in(s, table, why);
    }
    let client_secret = CLIENT_SECRET.read_or_file(&CLIENT_SECRET_FILE, s, table);
    let client_secret = client_secret.map(|secret| match secret.file {
        Some(path) => ClientSecret::File(path),
        None => ClientSecret::Text(SecretString::from(secret.text)),
    });
    ConnectorSettings {
        issuer: ISSUER.read_in(s, table),
        client_id: CLIENT_ID.read_in(s, table),
        client_secret,
        display_name: DISPLAY_NAME.read_in(s, table).unwrap_or_else(|| name.to_owned()),
        scopes: SCOPES.read_in(s, table),
        groups_claim: GROUPS_CLAIM.read_in(s, table),
        allowed_groups: ALLOWED_GROUPS.read_in(s, table),
        allowed_domains: ALLOWED_DOMAINS.read_in(s, table),
        admin_groups: ADMIN_GROUPS.read_in(s, table),
        ca_file: CA_FILE.read_in(s, table),
        outage_seconds: OUTAGE_SECONDS.read_in(s, table),
        unchecked_seconds: UNCHECKED_SECONDS.read_in(s, table),
        // `Config::read` sets it, because it follows from the settings of tenants.
        keep_groups: false,
    }
}

/// Validates the identifier of an issuer. It stays a text, because it is compared byte by byte. The
/// empty text is valid, because [`Setting::required`] reports it.
pub(super) fn issuer_identifier(text: &str) -> Result<String, String> {
    let is_identifier =
        |url: Url| is_https_or_loopback(&url) && url.query().is_none() && url.fragment().is_none();
    if text.is_empty() || text.parse().is_ok_and(is_identifier) {
        Ok(text.to_owned())
    } else {
        Err("an https URL without query and fragment (http on loopback only)".to_owned())
    }
}

fn scopes(text: &str) -> Result<String, String> {
    if text.split_ascii_whitespace().any(|scope| scope == "openid") {
        Ok(text.to_owned())
    } else {
        Err("openid must be one of them".to_owned())
    }
}
