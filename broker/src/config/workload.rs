//! Settings of workload issuers, whose tokens machines exchange: `[workloads.NAME]`.

use std::collections::BTreeMap;

use url::Url;

use super::{Settings, connector};
use crate::{
    base::dns_label::is_dns_label,
    issuer::{
        connector::is_https_or_loopback,
        token_exchange::{Rule, WorkloadSettings},
    },
};

/// The settings of a workload: key, meaning.
pub(super) const FIELDS: [(&str, &str); 6] = [
    (
        "issuer",
        "Identifier of the issuer, exactly as in its tokens (`iss`). HTTPS, except on loopback.",
    ),
    (
        "audience",
        "Required audience of its tokens (`aud`): a text that identifies this broker and nothing else.",
    ),
    ("ca_file", "PEM file with CAs that are trusted in addition to the system's."),
    (
        "jwks_uri",
        "URL of its keys, if its discovery document or the URL in it cannot be reached: `https://HOST:6443/openid/v1/jwks` for a cluster.",
    ),
    (
        "rules.RULE.workspace",
        "The workspace that machines matched by this rule may use: its identifier or its namespace.",
    ),
    (
        "rules.RULE.claims.CLAIM",
        "The exact value that a claim must have; at least one besides `iss` and `aud`. Dots select nested claims: `claims.\"kubernetes.io.serviceaccount.name\"`.",
    ),
];

/// Reads and validates all workloads.
pub(super) fn workloads(s: &mut Settings) -> BTreeMap<String, WorkloadSettings> {
    let names = s.names_below("workloads");
    names.into_iter().map(|name| (name.clone(), workload(s, &name))).collect()
}

fn workload(s: &mut Settings, name: &str) -> WorkloadSettings {
    let key = |field: &str| format!("workloads.{name}.{field}");
    if !is_dns_label(name) {
        s.fault(&key("issuer"), "a workload's name is lower case letters, digits and dashes");
    }
    let audience = connector::required(s, &key("audience"), "the audience of its tokens");
    let jwks_uri =
        s.get_non_empty(&key("jwks_uri")).and_then(|_| s.parsed::<Url>(&key("jwks_uri")));
    if jwks_uri.as_ref().is_some_and(|url| !is_https_or_loopback(url)) {
        s.fault(&key("jwks_uri"), "an https URL (http on loopback only)");
    }
    let rules: BTreeMap<_, _> = s
        .names_below(&key("rules"))
        .into_iter()
        .map(|rule| (rule.clone(), self::rule(s, &key("rules"), &rule)))
        .collect();
    if rules.is_empty() {
        s.fault(&key("rules"), "missing: without a rule nobody may use anything");
    }
    WorkloadSettings {
        issuer: connector::issuer(s, &key("issuer")),
        audience,
        ca_file: s.path(&key("ca_file")),
        jwks_uri,
        rules,
    }
}

fn rule(s: &mut Settings, rules: &str, name: &str) -> Rule {
    let key = format!("{rules}.{name}");
    let workspace = format!("{key}.workspace");
    let workspace = connector::required(s, &workspace, "a workspace's identifier or namespace");
    let below = format!("{key}.claims");
    let claims: BTreeMap<String, String> = s
        .keys_below(&below)
        .into_iter()
        .map(|claim| {
            let value = connector::required(s, &format!("{below}.{claim}"), "a value");
            (claim, value)
        })
        .collect();
    if !claims.keys().any(|claim| claim != "iss" && claim != "aud") {
        s.fault(&below, "missing: a rule names at least one claim besides iss and aud");
    }
    Rule { workspace, claims }
}
