//! Settings of workload issuers, whose tokens machines exchange: `[workloads.NAME]`.

use std::{collections::BTreeMap, path::PathBuf};

use tenant_shared::is_dns_label;
use url::Url;

use super::{
    Settings,
    connector::{MISSING_ISSUER, issuer_identifier},
    declaration::{Declaration, Setting},
    parse::{from_str, optional},
};
use crate::issuer::{
    connector::is_https_or_loopback,
    token_exchange::{Rule, WorkloadSettings},
};

const ISSUER: Setting<String> = Setting::required(
    "issuer",
    MISSING_ISSUER,
    issuer_identifier,
    "Identifier of the issuer, exactly as in its tokens (`iss`). HTTPS, except on loopback.",
);
const AUDIENCE: Setting<String> = Setting::required(
    "audience",
    "the audience of its tokens",
    from_str,
    "Required audience of its tokens (`aud`): a text that identifies this broker and nothing else.",
);
pub(super) const CA_FILE: Setting<Option<PathBuf>> = Setting::new(
    "ca_file",
    "",
    optional,
    "PEM file with CAs that are trusted in addition to the system's. It is read again when it \
     changes.",
);
const JWKS_URI: Setting<Option<Url>> = Setting::new(
    "jwks_uri",
    "",
    jwks_uri,
    "URL of its keys, if its discovery document or the URL in it cannot be reached: \
     `https://HOST:6443/openid/v1/jwks` for a cluster.",
);
const RULE_WORKSPACE: Setting<String> = Setting::required(
    "workspace",
    "a workspace's identifier or namespace",
    from_str,
    "The workspace that machines matched by this rule may use: its identifier or its namespace.",
);
/// The key is the name of the claim.
const RULE_CLAIM: Setting<String> = Setting::required(
    "CLAIM",
    "a value",
    from_str,
    "The exact value that a claim must have; at least one besides `iss` and `aud`. Dots select \
     nested claims: `claims.\"kubernetes.io.serviceaccount.name\"`.",
);
/// The settings with the prefix of their keys on the reference page.
pub(super) const SETTINGS: &[(&str, &[&dyn Declaration])] = &[
    ("", &[&ISSUER, &AUDIENCE, &CA_FILE, &JWKS_URI]),
    ("rules.RULE.", &[&RULE_WORKSPACE]),
    ("rules.RULE.claims.", &[&RULE_CLAIM]),
];

/// The table of a workload.
pub(super) fn table(name: &str) -> String {
    format!("workloads.{name}")
}

/// Reads and validates all workloads.
pub(super) fn workloads(s: &mut Settings) -> BTreeMap<String, WorkloadSettings> {
    let names = s.names_below("workloads");
    names.into_iter().map(|name| (name.clone(), workload(s, &name))).collect()
}

fn workload(s: &mut Settings, name: &str) -> WorkloadSettings {
    let table = &table(name);
    if !is_dns_label(name) {
        ISSUER.fault_in(s, table, "a workload's name is lower case letters, digits and dashes");
    }
    WorkloadSettings {
        issuer: ISSUER.read_in(s, table),
        audience: AUDIENCE.read_in(s, table),
        ca_file: CA_FILE.read_in(s, table),
        jwks_uri: JWKS_URI.read_in(s, table),
        rules: rules(s, &format!("{table}.rules")),
    }
}

fn rules(s: &mut Settings, table: &str) -> BTreeMap<String, Rule> {
    let names = s.names_below(table);
    if names.is_empty() {
        s.fault(table, "missing: without a rule nobody may use anything");
    }
    names.into_iter().map(|name| (name.clone(), rule(s, &format!("{table}.{name}")))).collect()
}

fn rule(s: &mut Settings, table: &str) -> Rule {
    let workspace = RULE_WORKSPACE.read_in(s, table);
    let below = format!("{table}.claims");
    let claims: BTreeMap<String, String> = s
        .keys_below(&below)
        .into_iter()
        .map(|claim| {
            let value = RULE_CLAIM.read_at(s, &format!("{below}.{claim}"));
            (claim, value)
        })
        .collect();
    if !claims.keys().any(|claim| claim != "iss" && claim != "aud") {
        s.fault(&below, "missing: a rule names at least one claim besides iss and aud");
    }
    Rule { workspace, claims }
}

fn jwks_uri(text: &str) -> Result<Option<Url>, String> {
    let url: Option<Url> = optional(text)?;
    if url.as_ref().is_none_or(is_https_or_loopback) {
        Ok(url)
    } else {
        Err("an https URL (http on loopback only)".to_owned())
    }
}
