//! Settings of model services (`model_services.*`).

use std::net::SocketAddr;

use http::{HeaderName, header};

use super::{
    Settings,
    declaration::{Declaration, Setting},
    parse::{from_str, optional, within},
};
use crate::cluster::is_quantity;
use crate::model_services::{
    AccessCheck, ClusterDomain, DistributionSettings, ModelServicesSettings, TokenLimits,
};

const ENABLED: Setting<bool> = Setting::new(
    "model_services.enabled",
    "false",
    from_str,
    "Whether the broker serves model services at /gen-ai/api/v1: namespaces, models of KServe and \
     Llama Stack distributions, each with the caller's own rights.",
);
const KUBERNETES_TOKENS: Setting<bool> = Setting::new(
    "model_services.kubernetes_tokens",
    "true",
    from_str,
    "Whether callers of model services may use a Kubernetes token of their own. The API server \
     checks it; the broker sends it there and stores nothing. false accepts sessions of the broker \
     only.",
);
const TOKEN_HEADER: Setting<HeaderName> = Setting::new(
    "model_services.token_header",
    "authorization",
    header_name,
    "Request header with the caller's token, for authenticating proxies such as \
     x-forwarded-access-token. Without it in a request, Authorization counts, and then the cookie.",
);
const TOKEN_PREFIX: Setting<String> = Setting::derived(
    "model_services.token_prefix",
    "`Bearer` for Authorization, otherwise none",
    token_prefix,
    "Text before the token in model_services.token_header; a space may follow it.",
);
const LISTEN: Setting<Option<SocketAddr>> = Setting::new(
    "model_services.listen",
    "",
    optional,
    "Address of a second listener for model services alone, with the same certificate: below \
     /gen-ai/api/v1 and /api/v1. Empty: none.",
);
const ACCESS_CHECK: Setting<AccessCheck> = Setting::new(
    "model_services.access_check",
    "llamastackdistributions.llamastack.io",
    from_str,
    "Resource with its API group that a caller must be allowed to list in a namespace for every \
     operation there. Clusters without Llama Stack use inferenceservices.serving.kserve.io.",
);
const CLUSTER_DOMAIN: Setting<ClusterDomain> = Setting::new(
    "model_services.cluster_domain",
    "",
    cluster_domain,
    "Domain of the cluster's routes that GET /config reports, for example apps.example.com. auto \
     reads it from the object cluster of ingresses.config.openshift.io (OpenShift) with the broker's \
     own credential, for which install adds one right. Empty: it is not known.",
);
const DISTRIBUTION: Setting<String> = Setting::new(
    "model_services.distribution",
    "rh-dev",
    distribution,
    "Name of the Llama Stack distribution that the cluster's operator knows, or an image, which has a \
     slash or colon in it.",
);
const CPU_REQUEST: Setting<String> = Setting::new(
    "model_services.cpu_request",
    "250m",
    quantity,
    "CPU that a Llama Stack requests.",
);
const MEMORY_REQUEST: Setting<String> = Setting::new(
    "model_services.memory_request",
    "500Mi",
    quantity,
    "Memory that a Llama Stack requests.",
);
const CPU_LIMIT: Setting<String> =
    Setting::new("model_services.cpu_limit", "2", quantity, "CPU limit of a Llama Stack.");
const MEMORY_LIMIT: Setting<String> = Setting::new(
    "model_services.memory_limit",
    "12Gi",
    quantity,
    "Memory limit of a Llama Stack. A tier with less memory never starts its pod.",
);
const VERIFY_MODEL_TLS: Setting<bool> = Setting::new(
    "model_services.verify_model_tls",
    "false",
    from_str,
    "Whether a Llama Stack verifies the certificates of models.",
);
const REQUESTS_PER_SECOND: Setting<u32> = Setting::new(
    "model_services.requests_per_second",
    "50",
    within::<1, 100_000>,
    "Requests per second with one Kubernetes token; the burst is four times as many. Each replica \
     counts for itself. Requests of sessions have the limits of their tier.",
);
const REQUESTS_AT_ONCE: Setting<u32> = Setting::new(
    "model_services.requests_at_once",
    "50",
    within::<1, 10_000>,
    "Concurrent requests with one Kubernetes token.",
);
const CHANGES_PER_USER: Setting<u32> = Setting::new(
    "model_services.changes_per_user",
    "20",
    within::<1, 100_000>,
    "Installations and deletions of one user, and of all users in one namespace, within five minutes. \
     Each replica counts for itself.",
);
pub(super) const SETTINGS: &[&dyn Declaration] = &[
    &ENABLED,
    &KUBERNETES_TOKENS,
    &TOKEN_HEADER,
    &TOKEN_PREFIX,
    &LISTEN,
    &ACCESS_CHECK,
    &CLUSTER_DOMAIN,
    &DISTRIBUTION,
    &CPU_REQUEST,
    &MEMORY_REQUEST,
    &CPU_LIMIT,
    &MEMORY_LIMIT,
    &VERIFY_MODEL_TLS,
    &REQUESTS_PER_SECOND,
    &REQUESTS_AT_ONCE,
    &CHANGES_PER_USER,
];

pub(super) fn read(s: &mut Settings, others: [SocketAddr; 2]) -> ModelServicesSettings {
    let token_header = TOKEN_HEADER.read(s);
    let mut token_prefix = TOKEN_PREFIX.read(s);
    if token_prefix.is_empty() && token_header == header::AUTHORIZATION {
        "Bearer".clone_into(&mut token_prefix);
    }
    let settings = ModelServicesSettings {
        enabled: ENABLED.read(s),
        kubernetes_tokens: KUBERNETES_TOKENS.read(s),
        token_header,
        token_prefix,
        listen: LISTEN.read(s),
        access_check: ACCESS_CHECK.read(s),
        cluster_domain: CLUSTER_DOMAIN.read(s),
        distribution: DistributionSettings {
            distribution: DISTRIBUTION.read(s),
            cpu_request: CPU_REQUEST.read(s),
            memory_request: MEMORY_REQUEST.read(s),
            cpu_limit: CPU_LIMIT.read(s),
            memory_limit: MEMORY_LIMIT.read(s),
            verify_model_tls: VERIFY_MODEL_TLS.read(s),
        },
        token_limits: TokenLimits {
            requests_per_second: REQUESTS_PER_SECOND.read(s),
            requests_at_once: REQUESTS_AT_ONCE.read(s),
        },
        changes_per_user: CHANGES_PER_USER.read(s),
    };
    if settings.listen.is_some_and(|listen| others.contains(&listen)) {
        LISTEN.fault(s, "the same address as listen or operator_listen: use another one");
    }
    if settings.listen.is_some() && !settings.enabled {
        LISTEN.fault(s, "set model_services.enabled as well");
    }
    settings
}

/// The name of a header that carries nothing else.
fn header_name(text: &str) -> Result<HeaderName, String> {
    let name: HeaderName = text.parse().map_err(|_| "the name of a request header".to_owned())?;
    let taken = ["cookie", "host", "origin", "content-type", "content-length", "transfer-encoding"];
    if taken.contains(&name.as_str()) {
        return Err("a header that carries a token and nothing else".to_owned());
    }
    Ok(name)
}

/// A prefix of visible characters; empty if the setting is not set.
fn token_prefix(text: &str) -> Result<String, String> {
    let text = text.trim_end();
    if text.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(text.to_owned())
    } else {
        Err("visible characters without spaces".to_owned())
    }
}

/// The name or image of a distribution: visible characters.
fn distribution(text: &str) -> Result<String, String> {
    if (1..=500).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(text.to_owned())
    } else {
        Err("the name of a distribution, or an image".to_owned())
    }
}

fn quantity(text: &str) -> Result<String, String> {
    if is_quantity(text) {
        Ok(text.to_owned())
    } else {
        Err("a Kubernetes quantity, for example 500Mi".to_owned())
    }
}

fn cluster_domain(text: &str) -> Result<ClusterDomain, String> {
    if text.is_empty() {
        return Ok(ClusterDomain::Unknown);
    }
    if text == "auto" {
        return Ok(ClusterDomain::Auto);
    }
    if text.len() <= 253 && text.split('.').all(tenant_shared::is_dns_label) {
        return Ok(ClusterDomain::Known(text.to_owned()));
    }
    Err("a domain, for example apps.example.com, or auto".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Settings};

    fn config(lines: &str) -> Result<Config, String> {
        let toml = format!("[model_services]\n{lines}");
        let settings = Settings::load(Some(("test.toml", &toml)), std::iter::empty(), &[]);
        settings.and_then(Config::from_settings).map_err(|faults| faults.to_string())
    }

    #[test]
    fn they_are_off_by_default() {
        let settings = config("").unwrap().model_services;
        assert!(!settings.enabled && settings.kubernetes_tokens && settings.listen.is_none());
        assert_eq!(settings.token_prefix, "Bearer");
    }

    #[test]
    fn a_header_of_a_proxy_has_no_prefix_unless_one_is_set() {
        let prefix = |lines: &str| config(lines).unwrap().model_services.token_prefix;
        assert_eq!(prefix("token_header = 'X-Forwarded-Access-Token'"), "");
        assert_eq!(prefix("token_header = 'x-token'\ntoken_prefix = 'Token '"), "Token");
        assert_eq!(prefix("token_header = 'Authorization'"), "Bearer");
    }

    #[test]
    fn the_domain_is_read_from_the_cluster_only_if_model_services_are_on() {
        for (lines, reads) in [
            ("enabled = true\ncluster_domain = 'auto'", true),
            ("cluster_domain = 'auto'", false),
            ("enabled = true\ncluster_domain = 'apps.example.com'", false),
            ("enabled = true", false),
        ] {
            let settings = config(lines).unwrap().model_services;
            assert_eq!(settings.reads_cluster_domain(), reads, "{lines}");
        }
    }

    #[test]
    fn faults_name_the_setting() {
        for (line, key) in [
            ("token_header = 'a b'", "token_header"),
            ("token_header = 'Cookie'", "token_header"),
            ("token_prefix = 'a b'", "token_prefix"),
            ("access_check = 'pods'", "access_check"),
            ("access_check = 'a/b.c'", "access_check"),
            ("cluster_domain = 'https://apps.example.com'", "cluster_domain"),
            ("enabled = true\nlisten = '127.0.0.1:8080'", "listen"),
            ("listen = '127.0.0.1:8090'", "listen"),
            ("requests_at_once = 0", "requests_at_once"),
            ("changes_per_user = 0", "changes_per_user"),
        ] {
            let faults = config(line).unwrap_err();
            assert!(faults.contains(&format!("model_services.{key}")), "{line}: {faults}");
        }
    }
}
